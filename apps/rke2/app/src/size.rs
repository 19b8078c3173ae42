//! Disk space and time that a release needs on a node, derived from its size.
//!
//! A node holds a release several times: the staged files, the installed files, the images that containerd imported, and their unpacked
//! layers. None of these is removed while RKE2 runs.

use std::time::Duration;

use gpuaas_planner::ReleaseView;

use crate::manifest::{ARCHIVE, IMAGES};

/// Lowest rate at which a release is fetched: a line of 100 Mbit/s, 12.5 MB/s, less a fifth.
pub(crate) const FETCHED_BYTES_PER_SECOND_MIN: u64 = 10_000_000;
/// Lowest rate at which a release is copied, imported and unpacked. RKE2's install script was measured to copy and digest 348 MB of images
/// in 3.0 s on a machine with other load, 116 MB/s; this is about a sixth of that.
pub(crate) const WRITTEN_BYTES_PER_SECOND_MIN: u64 = 20_000_000;
/// Largest ratio of a file's unpacked to its packed size. The images of K3s v1.21.0 have 358 MB, and 86.3 MB packed with zstd (k3s-io/k3s
/// issue 2941), a factor of 4.1; those of the stand-in 3.3. containerd keeps the layers unpacked.
const UNPACKED_FACTOR: u64 = 5;
/// Space for the data of a young cluster: etcd's log and data, logs of pods, data of pods.
pub(crate) const CLUSTER_BYTES: u64 = 1 << 30;

/// The part of a release that is on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstallProgress {
    /// Possibly nothing.
    None,
    /// The release is staged, and may be partly installed.
    Fetched,
    /// The release is completely installed, and may be imported.
    Installed,
}

/// Sizes of the files of a release that a node receives, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseSize {
    archive: u64,
    images: u64,
}

impl ReleaseSize {
    /// Returns the sizes of a release; a missing file has size zero.
    pub(crate) fn of(release: &ReleaseView) -> Self {
        let size = |name: &str| {
            let found = release.artifacts.iter().find(|artifact| artifact.name == name);
            found.map_or(0, |artifact| artifact.size_bytes)
        };
        Self { archive: size(ARCHIVE), images: size(IMAGES) }
    }

    /// Returns the bytes that must be free on the data disk before the next step. Parts that may already be there are not counted again.
    pub(crate) fn free_bytes_min(self, arrival: InstallProgress) -> u64 {
        let still_to_come = match arrival {
            InstallProgress::None => self.fetched().saturating_add(self.installed()).saturating_add(self.imported()),
            InstallProgress::Fetched => self.installed().saturating_add(self.imported()),
            InstallProgress::Installed => 0,
        };
        still_to_come.saturating_add(CLUSTER_BYTES)
    }

    /// Returns the longest time to fetch the release.
    pub(crate) fn fetch_time(self) -> Duration {
        at_rate(self.fetched(), FETCHED_BYTES_PER_SECOND_MIN)
    }

    /// Returns the longest time to install the release.
    pub(crate) fn install_time(self) -> Duration {
        at_rate(self.installed(), WRITTEN_BYTES_PER_SECOND_MIN)
    }

    /// Returns the longest time for containerd to import the images and unpack their layers.
    pub(crate) fn import_time(self) -> Duration {
        at_rate(self.imported(), WRITTEN_BYTES_PER_SECOND_MIN)
    }

    /// Returns the bytes of the staged files.
    const fn fetched(self) -> u64 {
        self.archive.saturating_add(self.images)
    }

    /// Returns the bytes of the unpacked archive and of the packed images.
    const fn installed(self) -> u64 {
        self.archive.saturating_mul(UNPACKED_FACTOR).saturating_add(self.images)
    }

    /// Returns the bytes of the imported images and of their unpacked layers.
    const fn imported(self) -> u64 {
        self.images.saturating_mul(2 * UNPACKED_FACTOR)
    }
}

/// Returns the time in whole seconds, rounded up.
const fn at_rate(bytes: u64, bytes_per_second: u64) -> Duration {
    Duration::from_secs(bytes.div_ceil(bytes_per_second))
}

#[cfg(test)]
mod tests {
    use gpuaas_planner::ArtifactView;

    use super::*;

    fn release(archive: u64, images: u64) -> ReleaseView {
        let artifact =
            |name: &str, size_bytes| ArtifactView { name: name.to_owned(), sha256: "0".repeat(64), size_bytes };
        let artifacts =
            vec![artifact(ARCHIVE, archive), artifact("rke2-images-all.linux-amd64.txt", 7), artifact(IMAGES, images)];
        ReleaseView { version: "v1".to_owned(), artifacts }
    }

    #[test]
    fn free_space_covers_all_copies_that_are_still_missing() {
        let size = ReleaseSize::of(&release(50_000_000, 800_000_000));
        let (staged, laid_out, imported) = (850_000_000, 250_000_000 + 800_000_000, 8_000_000_000);
        assert_eq!(size.free_bytes_min(InstallProgress::None), staged + laid_out + imported + CLUSTER_BYTES);
        assert_eq!(size.free_bytes_min(InstallProgress::Fetched), laid_out + imported + CLUSTER_BYTES);
        assert_eq!(size.free_bytes_min(InstallProgress::Installed), CLUSTER_BYTES);
    }

    #[test]
    fn times_cover_every_byte_at_the_minimum_rate() {
        let size = ReleaseSize::of(&release(50_000_000, 800_000_000));
        let seconds = [size.fetch_time(), size.install_time(), size.import_time()].map(|time| time.as_secs());
        assert_eq!(seconds, [85, 53, 400]);
    }

    #[test]
    fn huge_release_does_not_overflow() {
        let size = ReleaseSize::of(&release(u64::MAX, u64::MAX));
        assert_eq!(size.free_bytes_min(InstallProgress::None), u64::MAX);
        assert!(size.import_time() > Duration::from_secs(1 << 30));
    }
}

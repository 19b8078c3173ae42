//! Disk space and time that a release needs on a node, by its size.
//!
//! A node holds a release several times: the staged files, the files that are laid out, the images that containerd imported, and their unpacked
//! layers. None of these is removed while RKE2 runs.

use std::time::Duration;

use gpuaas_planner::ReleaseView;

use crate::manifest::{ARCHIVE, IMAGES};

/// The least rate at which a release is fetched: what a line of 100 Mbit/s carries of it, 12.5 MB/s less a fifth.
pub(crate) const FETCHED_BYTES_PER_SECOND_MIN: u64 = 10_000_000;
/// The least rate at which a release is copied, imported and unpacked: RKE2's install script was measured to copy and to digest 348 MB of images in
/// 3.0 s on a machine that others used too, 116 MB/s; a sixth of that.
pub(crate) const WRITTEN_BYTES_PER_SECOND_MIN: u64 = 20_000_000;
/// How much larger a packed file is at most when it is unpacked. Images of K3s v1.21.0 have 358 MB, packed by zstd 86.3 MB (k3s-io/k3s issue 2941), a
/// factor of 4.2; those of the stand-in 3.3. containerd keeps layers as it unpacked them.
const UNPACKED_FACTOR: u64 = 5;
/// Room for what a young cluster writes: etcd's log and data, journals of pods, what pods write.
pub(crate) const CLUSTER_BYTES: u64 = 1 << 30;

/// How much of a release is on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Perhaps nothing.
    None,
    /// It is staged, and may be laid out in part.
    Fetched,
    /// All of it is laid out, and may be imported.
    LaidOut,
}

/// Bytes of the files of a release that a node gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseSize {
    archive: u64,
    images: u64,
}

impl ReleaseSize {
    /// Of a release; what is not in it has no size.
    pub(crate) fn of(release: &ReleaseView) -> Self {
        let size = |name: &str| {
            let found = release.artifacts.iter().find(|artifact| artifact.name == name);
            found.map_or(0, |artifact| artifact.size_bytes)
        };
        Self { archive: size(ARCHIVE), images: size(IMAGES) }
    }

    /// Bytes that must be free on the data disk before the next step. Parts that may be there already are not counted again.
    pub(crate) fn free_bytes_min(self, arrival: Arrival) -> u64 {
        let still_to_come = match arrival {
            Arrival::None => self.fetched().saturating_add(self.laid_out()).saturating_add(self.imported()),
            Arrival::Fetched => self.laid_out().saturating_add(self.imported()),
            Arrival::LaidOut => 0,
        };
        still_to_come.saturating_add(CLUSTER_BYTES)
    }

    /// Longest time to fetch it.
    pub(crate) fn fetch_time(self) -> Duration {
        at_rate(self.fetched(), FETCHED_BYTES_PER_SECOND_MIN)
    }

    /// Longest time to lay it out.
    pub(crate) fn install_time(self) -> Duration {
        at_rate(self.laid_out(), WRITTEN_BYTES_PER_SECOND_MIN)
    }

    /// Longest time for containerd to import the images and unpack their layers.
    pub(crate) fn import_time(self) -> Duration {
        at_rate(self.imported(), WRITTEN_BYTES_PER_SECOND_MIN)
    }

    /// Bytes of the staged files.
    const fn fetched(self) -> u64 {
        self.archive.saturating_add(self.images)
    }

    /// Bytes of the unpacked archive, and of the images as they came.
    const fn laid_out(self) -> u64 {
        self.archive.saturating_mul(UNPACKED_FACTOR).saturating_add(self.images)
    }

    /// Bytes of the imported images, and of their unpacked layers.
    const fn imported(self) -> u64 {
        self.images.saturating_mul(2 * UNPACKED_FACTOR)
    }
}

/// Whole seconds, rounded up.
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
    fn room_is_for_all_copies_of_a_release_and_less_once_it_has_arrived() {
        let size = ReleaseSize::of(&release(50_000_000, 800_000_000));
        let (staged, laid_out, imported) = (850_000_000, 250_000_000 + 800_000_000, 8_000_000_000);
        assert_eq!(size.free_bytes_min(Arrival::None), staged + laid_out + imported + CLUSTER_BYTES);
        assert_eq!(size.free_bytes_min(Arrival::Fetched), laid_out + imported + CLUSTER_BYTES);
        assert_eq!(size.free_bytes_min(Arrival::LaidOut), CLUSTER_BYTES);
    }

    #[test]
    fn time_is_for_every_byte_at_the_least_rate() {
        let size = ReleaseSize::of(&release(50_000_000, 800_000_000));
        let seconds = [size.fetch_time(), size.install_time(), size.import_time()].map(|time| time.as_secs());
        assert_eq!(seconds, [85, 53, 400]);
    }

    #[test]
    fn release_of_absurd_size_overflows_nothing() {
        let size = ReleaseSize::of(&release(u64::MAX, u64::MAX));
        assert_eq!(size.free_bytes_min(Arrival::None), u64::MAX);
        assert!(size.import_time() > Duration::from_secs(1 << 30));
    }
}

//! Free disk space for the data of the nodes, checked before anything is built.
//!
//! Deliberately absent: nodes whose data is in memory, because the disk is an overlay.
//!
//! All nodes share one disk. A preflight sees what the nodes before it have left free, and names only the space that its own node needs.

use anyhow::Context;
use camino::Utf8Path;

use super::{place, refusal::Refusal, tree};

/// Bytes that a deployment of the stand-in needs on the disk of one node, as its preflight (`disk_space` in `docs/findings.md`) computes
/// them: 12 times the archive of images, 104 MB, and 6 times the archive of programs, 12 MB.
const STAND_IN_BYTES_PER_NODE: u64 = 12 * 104_000_000 + 6 * 12_000_000;
/// Bytes that the last preflight requires in addition, for the cluster (`CLUSTER_BYTES` in `apps/rke2/app/src/size.rs`).
const CLUSTER_BYTES: u64 = 1 << 30;
/// Archives of a release, with the multiples of their sizes that a preflight requires.
const ARCHIVES: [(&str, u64); 2] = [("rke2-images.linux-amd64.tar.zst", 12), ("rke2.linux-amd64.tar.gz", 6)];

/// Checks that the disk of [`place::DATA`] has enough free space for a deployment on this many nodes: of the release in this folder, or
/// else of the stand-in.
pub(super) fn check(nodes: u8, release: Option<&Utf8Path>) -> anyhow::Result<()> {
    let per_node = release.map_or(Ok(STAND_IN_BYTES_PER_NODE), bytes_per_node)?;
    let needed = u64::from(nodes).saturating_mul(per_node).saturating_add(CLUSTER_BYTES);
    let data = Utf8Path::new(place::DATA);
    let existing = data.ancestors().find(|folder| folder.exists()).unwrap_or(data);
    if tree::is_overlay(existing)? {
        return Ok(());
    }
    let disk = rustix::fs::statvfs(existing.as_str()).with_context(|| format!("the disk of {existing}"))?;
    Ok(require(disk.f_bavail.saturating_mul(disk.f_frsize), needed, nodes)?)
}

fn bytes_per_node(release: &Utf8Path) -> anyhow::Result<u64> {
    ARCHIVES.iter().try_fold(0_u64, |sum, (name, factor)| {
        let file = release.join(name);
        let size = file.metadata().with_context(|| file.to_string())?.len();
        Ok(sum.saturating_add(size.saturating_mul(*factor)))
    })
}

fn require(free: u64, needed: u64, nodes: u8) -> Result<(), Refusal> {
    if free >= needed { Ok(()) } else { Err(Refusal::Space { free, needed, nodes }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_full_disk_is_refused_with_its_path_and_both_sizes() {
        assert!(require(5_000_000_000, 5_000_000_000, 3).is_ok());
        let error = require(4_999_999_999, 5_000_000_000, 3).expect_err("a byte is missing");
        let text = error.to_string();
        assert!(
            text.contains("/var/lib/gpuaas-lab") && text.contains("4999999999") && text.contains("5000000000"),
            "{text}"
        );
        assert_eq!(error.exit_code(), 3);
    }

    #[test]
    fn space_for_a_release_follows_from_its_archives() {
        let kept = tempfile::tempdir().expect("a temporary folder");
        let folder = Utf8Path::from_path(kept.path()).expect("the path is UTF-8");
        assert!(bytes_per_node(folder).is_err(), "a folder without archives is accepted");
        for ((name, _), size) in ARCHIVES.iter().zip([1_000, 10]) {
            std::fs::write(folder.join(name), vec![0; size]).expect("written");
        }
        assert_eq!(bytes_per_node(folder).expect("both archives exist"), 12 * 1_000 + 6 * 10);
    }
}

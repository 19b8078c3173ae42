//! Latency of small writes to a disk, in the pattern of etcd: append, `fdatasync`, repeat.

use std::{
    fs::File,
    io::Write,
    time::{Duration, Instant},
};

use gpuaas_wire::task::WriteLatency;

use super::Tree;
use crate::{error::HostError, place::Draft};

/// Bytes of one write: a typical entry of etcd's log, by etcd's own advice for measuring disks.
const WRITE_BYTES: usize = 2_300;
/// The file's name if it needs one; fixed, so that the next measurement removes the file of one that was interrupted.
const FILE: &str = ".gpuaas-write-latency";

/// Limits of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteLimits {
    /// Most writes.
    pub writes_max: u32,
    /// No write begins after this time.
    pub time_max: Duration,
}

impl WriteLimits {
    /// 150 KB and half a second, unless the last write takes longer.
    pub const DEFAULT: Self = Self { writes_max: 64, time_max: Duration::from_millis(500) };
}

/// Measures in a folder of a machine, or in the deepest existing folder above it, and leaves nothing there. Returns `None` if no write was
/// made in time.
pub fn write_latency(tree: &Tree, folder: &str, limits: WriteLimits) -> Result<Option<WriteLatency>, HostError> {
    let place = tree.nearest(folder, FILE)?;
    // An earlier version of the agent can have left this file, or it was planted.
    place.unlink()?;
    let draft = Draft::begin(&place)?;
    measure(&draft.file, limits).map_err(|error| HostError::file("measure writes to", folder.into())(error))
}

fn measure(mut file: &File, limits: WriteLimits) -> std::io::Result<Option<WriteLatency>> {
    let began = Instant::now();
    let mut took = Vec::new();
    while took.len() < limits.writes_max as usize && began.elapsed() < limits.time_max {
        let write = Instant::now();
        file.write_all(&[0x5a; WRITE_BYTES])?;
        file.sync_data()?;
        took.push(write.elapsed());
    }
    took.sort_unstable();
    Ok(summary(&took))
}

/// Summarises sorted latencies; `None` if there are none.
fn summary(took: &[Duration]) -> Option<WriteLatency> {
    let last = took.len().checked_sub(1)?;
    let us = |at: usize| u32::try_from(took[at.min(last)].as_micros()).unwrap_or(u32::MAX);
    let at = |percent: usize| (took.len() * percent).div_ceil(100).saturating_sub(1);
    let writes = u32::try_from(took.len()).unwrap_or(u32::MAX);
    Some(WriteLatency { writes, p50_us: us(at(50)), p99_us: us(at(99)), max_us: us(last) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().unwrap();
        let path = camino::Utf8PathBuf::from_path_buf(folder.path().to_owned()).unwrap();
        (folder, Tree::at(path))
    }

    #[test]
    fn a_measurement_is_bounded_and_leaves_nothing() {
        let (folder, tree) = tree();
        let few = WriteLimits { writes_max: 5, time_max: Duration::from_secs(60) };
        let measured = write_latency(&tree, "/", few).unwrap().unwrap();
        assert_eq!(measured.writes, 5);
        assert!(measured.p50_us <= measured.p99_us && measured.p99_us <= measured.max_us && measured.max_us > 0);
        let no_time = WriteLimits { time_max: Duration::ZERO, ..few };
        assert_eq!(write_latency(&tree, "/not/there", no_time).unwrap(), None);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn leftover_file_is_removed_and_a_planted_link_is_not_followed() {
        let (folder, tree) = tree();
        let path = folder.path();
        std::fs::write(path.join("precious"), "precious").unwrap();
        std::os::unix::fs::symlink(path.join("precious"), path.join(FILE)).unwrap();
        std::os::unix::fs::symlink(path, path.join("link")).unwrap();
        let one = WriteLimits { writes_max: 1, time_max: Duration::from_secs(60) };
        assert!(write_latency(&tree, "/", one).unwrap().is_some());
        assert_eq!(std::fs::read_to_string(path.join("precious")).unwrap(), "precious");
        assert!(!path.join(FILE).exists());
        assert!(matches!(write_latency(&tree, "/link/data", one), Err(HostError::UnsafePath { .. })));
    }

    #[test]
    fn slowest_of_a_hundred_writes_is_not_p99() {
        let took: Vec<Duration> = (1..=100).map(Duration::from_micros).collect();
        let expected = WriteLatency { writes: 100, p50_us: 50, p99_us: 99, max_us: 100 };
        assert_eq!((summary(&took), summary(&[])), (Some(expected), None));
    }
}

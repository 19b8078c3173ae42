//! How quickly small writes reach a disk, as etcd makes them: append, `fdatasync`, again.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    time::{Duration, Instant},
};

use camino::Utf8Path;
use gpuaas_wire::task::WriteLatency;

use crate::error::HostError;

/// Bytes of one write: a typical entry of etcd's log, by etcd's own advice for measuring disks.
const WRITE_BYTES: usize = 2_300;
/// The file; of one name, so that a measurement which died leaves what the next one removes.
const FILE: &str = ".gpuaas-write-latency";

/// How much is measured at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteLimits {
    /// Writes.
    pub writes_max: u32,
    /// No write begins after this long.
    pub time_max: Duration,
}

impl WriteLimits {
    /// 150 KB and half a second, unless the very last write takes longer.
    pub const USUAL: Self = Self { writes_max: 64, time_max: Duration::from_millis(500) };
}

/// Measures in that folder, and leaves nothing there. `None` when not one write was made in time.
pub fn write_latency(folder: &Utf8Path, limits: WriteLimits) -> Result<Option<WriteLatency>, HostError> {
    let path = folder.join(FILE);
    let measured = measure(&path, limits).map_err(HostError::file("measure writes to", &path));
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(HostError::file("remove", &path)(error)),
        _ => measured,
    }
}

fn measure(path: &Utf8Path, limits: WriteLimits) -> std::io::Result<Option<WriteLatency>> {
    // What another measurement left is not followed, wherever it leads.
    let _ = std::fs::remove_file(path);
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?;
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

/// Of latencies in order.
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

    fn folder() -> (tempfile::TempDir, camino::Utf8PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = camino::Utf8PathBuf::from_path_buf(folder.path().to_owned()).unwrap();
        (folder, path)
    }

    #[test]
    fn a_measurement_is_bounded_and_leaves_nothing() {
        let (_folder, path) = folder();
        let few = WriteLimits { writes_max: 5, time_max: Duration::from_secs(60) };
        let measured = write_latency(&path, few).unwrap().unwrap();
        assert_eq!(measured.writes, 5);
        assert!(measured.p50_us <= measured.p99_us && measured.p99_us <= measured.max_us && measured.max_us > 0);
        let no_time = WriteLimits { time_max: Duration::ZERO, ..few };
        assert_eq!(write_latency(&path, no_time).unwrap(), None);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    }

    #[test]
    fn what_a_dead_measurement_left_is_removed_and_a_planted_link_is_not_followed() {
        let (_folder, path) = folder();
        std::fs::write(path.join("precious"), "precious").unwrap();
        std::os::unix::fs::symlink(path.join("precious"), path.join(FILE)).unwrap();
        let one = WriteLimits { writes_max: 1, time_max: Duration::from_secs(60) };
        assert!(write_latency(&path, one).unwrap().is_some());
        assert_eq!(std::fs::read_to_string(path.join("precious")).unwrap(), "precious");
        assert!(!path.join(FILE).exists() && write_latency(&path.join("nowhere"), one).is_err());
    }

    #[test]
    fn of_a_hundred_writes_the_slowest_is_no_p99() {
        let took: Vec<Duration> = (1..=100).map(Duration::from_micros).collect();
        let expected = WriteLatency { writes: 100, p50_us: 50, p99_us: 99, max_us: 100 };
        assert_eq!((summary(&took), summary(&[])), (Some(expected), None));
    }
}

//! Speed of the disk that the demo uses: tasks and database rows wait for it.

use std::{fs::File, io::Write, time::Instant};

use anyhow::Context;
use camino::Utf8Path;

/// Number of measured writes.
const WRITES: usize = 200;
/// Bytes per write, about one row with its index.
const WRITE_BYTES: usize = 4_096;

/// Median time in microseconds for a write and fdatasync of one page to a file in `folder`.
pub(super) fn fdatasync_p50_us(folder: &Utf8Path) -> anyhow::Result<u64> {
    let path = folder.join(".fdatasync");
    let mut file = File::create(&path).with_context(|| format!("creating {path}"))?;
    let mut took = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        file.write_all(&[0_u8; WRITE_BYTES])?;
        let began = Instant::now();
        file.sync_data()?;
        took.push(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    std::fs::remove_file(&path)?;
    took.sort_unstable();
    Ok(took[WRITES / 2])
}

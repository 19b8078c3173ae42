//! Room on the disk, asked for before the first minute is spent.

use anyhow::{Context, bail};

use crate::shell;

/// What the tests write beside what is built (nodes with a distribution each, databases, artifacts), and above it the 1 GiB that preflight wants free
/// on every node until the end.
const FOR_TESTS: u64 = 4 << 30;
/// What a first build writes: 4 GB of programs and tests, the Kubernetes components and what Go keeps beside them.
const FOR_FIRST_BUILD: u64 = 8 << 30;

/// Fails when the disk that holds the checkout, or the one for temporary files, cannot take the build and the tests.
///
/// Without it nodes would refuse deployments for want of space, in twenty tests at once and half an hour later.
pub(super) fn require_room() -> anyhow::Result<()> {
    let built = shell::root().join("target/debug/deps").exists() || std::env::var_os("CARGO_TARGET_DIR").is_some();
    let needed = FOR_TESTS + if built { 0 } else { FOR_FIRST_BUILD };
    for place in [shell::root(), &std::env::temp_dir()] {
        let disk = rustix::fs::statvfs(place).with_context(|| format!("the disk of {}", place.display()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < needed {
            bail!(
                "{} has {} MiB free of the {} MiB needed: free some space (`cargo clean` removes what earlier builds left)",
                place.display(),
                free >> 20,
                needed >> 20
            );
        }
    }
    Ok(())
}

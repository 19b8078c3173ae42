//! Checks the free disk space before the build and the tests start.

use anyhow::{Context, bail};

use crate::shell;

/// Bytes for the tests beside the build: what they write (nodes with a distribution each, databases, artifacts), and the 1 GiB that must
/// still be free when the last of them deploys, because a preflight requires it.
const TEST_BYTES: u64 = 4 << 30;
/// Bytes that a first build writes: 4 GB of programs and tests, the Kubernetes components and Go's caches.
const FIRST_BUILD_BYTES: u64 = 8 << 30;

/// Fails if the disk of the checkout or the one of temporary files has too little space for the build and the tests.
///
/// Without this check, nodes would refuse deployments for lack of space half an hour later, in twenty tests at once.
pub(super) fn require_free_space() -> anyhow::Result<()> {
    // With `CARGO_TARGET_DIR`, a first build takes its space elsewhere, where it is not checked.
    let built = shell::root().join("target/debug/deps").exists() || std::env::var_os("CARGO_TARGET_DIR").is_some();
    let needed = TEST_BYTES + if built { 0 } else { FIRST_BUILD_BYTES };
    for place in [shell::root(), &std::env::temp_dir()] {
        let disk =
            rustix::fs::statvfs(place).with_context(|| format!("reading the free space at {}", place.display()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < needed {
            bail!(
                "{} has {} MiB of free disk space, and the tests need {} MiB: free some (`cargo clean` removes earlier builds)",
                place.display(),
                free >> 20,
                needed >> 20
            );
        }
    }
    Ok(())
}

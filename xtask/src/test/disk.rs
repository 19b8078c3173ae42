//! Check of free disk space before the tests start.

use anyhow::{Context, bail};

use crate::shell;

/// Bytes that the tests write in addition to the build (nodes with a distribution each, databases, artifacts), plus the 1 GiB that the
/// preflight requires on every node until the end.
const FOR_TESTS: u64 = 4 << 30;
/// Bytes that a first build writes: 4 GB of programs and tests, the Kubernetes components and Go's caches.
const FOR_FIRST_BUILD: u64 = 8 << 30;

/// Fails if the disk of the checkout or the one of temporary files has too little space for the build and the tests.
///
/// Otherwise nodes would refuse deployments for lack of space, in twenty tests at once and half an hour later.
pub(super) fn require_free_space() -> anyhow::Result<()> {
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

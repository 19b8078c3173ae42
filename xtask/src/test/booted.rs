//! The lab's main path as part of all tests: where this machine can hold a lab.

use crate::lab;

/// What is played: the contract of a booted host, and the main path of a cluster.
const ACTS: [&str; 2] = ["contract", "rke2"];
/// What its checks are counted as.
pub(super) const KIND: &str = "on booted machines";

/// Makes what the acts need: packages, a release with its images. Nothing where none can be played.
pub(super) fn prepare() -> anyhow::Result<()> {
    if lab::can_hold().is_err() { Ok(()) } else { lab::prepare(&ACTS) }
}

/// How many checks held, or why none was tried.
pub(super) fn run() -> anyhow::Result<Result<u32, String>> {
    if let Err(why) = lab::can_hold() {
        return Ok(Err(format!("{why:#}").replace('\n', " ")));
    }
    eprintln!("==> lab test {}", ACTS.join(" "));
    lab::play(&ACTS).map(Ok)
}

//! The lab's main scenario as part of all tests, if this machine can run a lab.

use crate::lab::Checkout;

/// Scenarios to run: the contract of a booted host, and the main path of a cluster.
const RUNS: [&str; 2] = ["contract", "rke2"];
/// Kind under which their checks are counted.
pub(super) const KIND: &str = "on booted machines";

/// Builds the parts that they need: packages, a release with its images. Does nothing if this machine cannot run a lab.
pub(super) fn prepare() -> anyhow::Result<()> {
    if gpuaas_lab::check_machine().is_err() { Ok(()) } else { gpuaas_lab::prepare(&RUNS, &Checkout) }
}

/// Returns the number of checks that passed, or the reason why none ran.
pub(super) fn run() -> anyhow::Result<Result<u32, String>> {
    if let Err(why) = gpuaas_lab::check_machine() {
        return Ok(Err(format!("{why:#}").replace('\n', " ")));
    }
    eprintln!("==> lab test {}", RUNS.join(" "));
    gpuaas_lab::run_tests(&RUNS, &Checkout).map(Ok)
}

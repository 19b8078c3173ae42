//! `cargo xtask bench lab`: measurements on booted nodes, run between two inventories like any test of the lab.

use crate::lab::Checkout;

/// Options of `bench lab`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of enrollments.
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=50))]
    runs: u8,
    /// Cargo profile of the measured programs.
    #[arg(long, default_value = "dist")]
    profile: String,
}

/// Runs the benchmark.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    gpuaas_lab::measure(options.runs, &options.profile, &Checkout)
}

//! `cargo xtask bench lab`: figures of booted nodes. The lab plays them between two inventories, like any act.

use crate::lab;

/// How to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Times that a node is brought in.
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=50))]
    runs: u8,
    /// The cargo profile of everything that runs.
    #[arg(long, default_value = "dist")]
    profile: String,
}

/// Measures.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    lab::measure(options.runs, &options.profile)
}

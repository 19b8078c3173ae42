//! `cargo xtask bench ui`: what a person waits for in the workload shell, and what a long list costs the browser.

use anyhow::Context;
use serde::Deserialize;

use super::figures::format_value;
use crate::{
    package::programs,
    ui,
    ui_tests::{self, Tools},
};

/// Options of `bench ui`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Cargo profile of the measured programs.
    #[arg(long, default_value = "dist")]
    profile: String,
}

/// A figure that the tests measured.
#[derive(Deserialize)]
struct Measured {
    what: String,
    unit: String,
    /// Null if it was not measured.
    value: Option<f64>,
    target: Option<f64>,
}

/// Runs the benchmark.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    ui::build_if_possible()?;
    let tools = Tools::of(programs::folder(&options.profile)?, &options.profile, "bench-ui")?;
    ui::install(&ui_tests::folder().join("bench/lighthouse"))?;
    tools.playwright("measuring the shell in Chromium", &["--config", "bench.config.ts"])?;
    let figures: Vec<Measured> =
        serde_json::from_value(tools.written("figures.json")?).context("figures.json has another form")?;
    println!(
        "Debian's Chromium without a window; browser, control plane and nodes share the machine. The list has made-up rows."
    );
    println!("ui, profile {}", options.profile);
    for Measured { what, unit, value, target } in figures {
        let value = value.map_or_else(|| "not measured".to_owned(), format_value);
        let target = target.map_or_else(String::new, |target| format!("   (target {} {unit})", format_value(target)));
        println!("  {what:<62}{value:>14} {unit}{target}");
    }
    Ok(())
}

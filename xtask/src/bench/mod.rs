//! `cargo xtask bench`: figures, printed. Nothing is asserted here: a machine that is busy makes no test red.

use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use clap::Subcommand;

use crate::{demo, shell};

/// What is measured.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// The main job as shipped: profile `dist`, every write on the disk.
    MainJob {
        /// The cargo profile of everything that runs.
        #[arg(long, default_value = "dist")]
        profile: String,
        /// Also time builds after a touched file, with profile `dev`.
        #[arg(long)]
        builds: bool,
    },
}

/// Files whose change is felt most often, with the limit of a rebuild after it.
const TOUCHED: [&str; 2] = ["crates/server/src/lib.rs", "crates/app-rke2/src/lib.rs"];

pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    let Bench::MainJob { profile, builds } = bench;
    let report = demo::measured(profile)?;
    println!("main job, profile {profile}");
    let figures = [
        ("platform's own share of the deploy", report.platform_ms as f64, "ms", "1000"),
        ("distribution", report.distribution_ms as f64, "ms", ""),
        ("stand-in's first server ready", report.cluster_start_ms as f64, "ms", "8000"),
        ("no-op task, p50", report.dispatch_p50_ms, "ms", "10"),
        ("no-op task, p99", report.dispatch_p99_ms, "ms", "50"),
        ("fdatasync of a page, p50", report.fdatasync_p50_ms, "ms", ""),
        ("gpuaas dev ready", report.dev_ready_ms as f64, "ms", "1500"),
        ("agent, idle", report.agent_idle_rss_bytes as f64 / 1e6, "MB", "10"),
        ("agent, after the job", report.agent_rss_bytes as f64 / 1e6, "MB", ""),
        ("control plane, idle", report.server_idle_rss_bytes as f64 / 1e6, "MB", "60"),
        ("control plane, after the job", report.server_rss_bytes as f64 / 1e6, "MB", ""),
    ];
    for (what, value, unit, target) in figures {
        let target = if target.is_empty() { String::new() } else { format!("   (target {target} {unit})") };
        println!("  {what:<36}{value:>10.2} {unit}{target}");
    }
    if *builds {
        for file in TOUCHED {
            println!("  {:<36}{:>10.2} s   (target 15 s)", format!("build after {file}"), rebuild(file)?.as_secs_f64());
        }
    }
    Ok(())
}

/// How long the programs take to build after a file was touched.
fn rebuild(file: &str) -> anyhow::Result<Duration> {
    shell::build_programs("dev")?;
    let touched = std::fs::File::options().append(true).open(shell::root().join(file));
    touched.and_then(|file| file.set_modified(SystemTime::now())).with_context(|| format!("touching {file}"))?;
    let began = Instant::now();
    shell::build_programs("dev")?;
    Ok(began.elapsed())
}

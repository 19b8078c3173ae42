//! `cargo xtask bench`: prints measurements. Nothing is asserted, so a busy machine fails no test.

mod control_plane;
mod dispatch_rate;
mod figures;
mod growth;
mod lab;
mod life;
mod lists;
mod soak;
mod sse;
mod syscalls;
mod ui;
mod usage;

use std::{
    os::unix::process::CommandExt,
    process::Command,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Context;
use camino::Utf8PathBuf;
use clap::Subcommand;

use crate::{
    demo::{self, Report, Store},
    package::programs,
    shell,
};

/// Benchmarks.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Measure the main job with the packaged programs and durable writes, on SQLite and PostgreSQL.
    MainJob {
        /// Cargo profile of the measured programs.
        #[arg(long, default_value = "dist")]
        profile: String,
        /// Also time builds after a touched file, with profile `dev`.
        #[arg(long)]
        builds: bool,
        #[command(flatten)]
        chosen: Chosen,
    },
    /// Measure a start with 1,000 open operations: time until the first task and until all tasks are sent.
    Restart {
        /// Cargo profile of the measured programs.
        #[arg(long, default_value = "dist")]
        profile: String,
    },
    /// Measure no-op tasks to many sandbox nodes: rate and cost per task.
    DispatchRate(dispatch_rate::Options),
    /// Measure event stream subscribers: cost of a write with and without them, and delivery time to the last one.
    Sse(sse::Options),
    /// Measure the pages of every list with thousands of nodes.
    Lists(lists::Options),
    /// Measure the bytes that operations and idempotency keys leave in the database.
    Growth(growth::Options),
    /// Run a mixed load for half an hour, and print every minute what the control plane and its agents hold.
    Soak(soak::Options),
    /// Measure the platform's share of an added and of a removed agent, and how soon a dead service and a silent node are visible.
    Life(life::Options),
    /// Measure booted nodes of a lab: enrollment, the agent's resources, log following. Needs root.
    Lab(lab::Options),
    /// Measure the workload shell in Debian's Chromium: first load, event to pixel, a list of 10,000 rows.
    Ui(ui::Options),
    /// Measure twenty concurrent deployments to simulated nodes, with one replica and with two on a shared PostgreSQL.
    Replicas {
        /// Cargo profile of the measured programs.
        #[arg(long, default_value = "dist")]
        profile: String,
    },
}

/// Files that are edited most often, to measure rebuilds.
const TOUCHED: [&str; 2] = ["crates/server/src/lib.rs", "apps/rke2/app/src/lib.rs"];

pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    if bench.sends_load() && cfg!(debug_assertions) {
        return run_optimised();
    }
    match bench {
        Bench::MainJob { profile, builds, chosen } => main_job(profile, *builds, chosen),
        Bench::Restart { profile } => run_engine_bench(&["restart"], profile),
        Bench::DispatchRate(options) => dispatch_rate::run(options),
        Bench::Sse(options) => sse::run(options),
        Bench::Lists(options) => lists::run(options),
        Bench::Growth(options) => growth::run(options),
        Bench::Soak(options) => soak::run(options),
        Bench::Life(options) => life::run(options),
        Bench::Lab(options) => lab::run(options),
        Bench::Ui(options) => ui::run(options),
        Bench::Replicas { profile } => run_engine_bench(&["replicas"], profile),
    }
}

impl Bench {
    /// Reports whether clients in this process generate the load.
    fn sends_load(&self) -> bool {
        matches!(self, Self::DispatchRate(_) | Self::Sse(_) | Self::Lists(_) | Self::Soak(_) | Self::Life(_))
    }
}

/// Rebuilds this program with profile `release` and continues as that: unoptimised clients would take CPU time from the measured programs.
fn run_optimised() -> anyhow::Result<()> {
    let build = ["build", "--quiet", "--locked", "--release", "--package", "xtask"];
    shell::run("building the clients with profile release", &mut shell::cargo(&build))?;
    let program = shell::target().join("release/xtask");
    let error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
    Err(error).with_context(|| format!("starting {}", program.display()))
}

/// Runs a benchmark of the engine crate, whose nodes are simulated.
fn run_engine_bench(arguments: &[&str], profile: &str) -> anyhow::Result<()> {
    let bench = ["bench", "--quiet", "--locked", "-p", "gpuaas-engine", "--all-features", "--bench", "scale"];
    let what = arguments.first().copied().unwrap_or_default();
    shell::run(what, shell::cargo(&bench).args(["--profile", profile, "--"]).args(arguments))
}

/// Selection of programs and databases.
#[derive(clap::Args)]
pub(crate) struct Chosen {
    /// Measure only this database; by default SQLite and PostgreSQL.
    #[arg(long, value_enum)]
    store: Option<Store>,
    /// Measure `gpuaas` and `gpuaas-agent` in this folder, for example of an earlier commit, instead of building them.
    #[arg(long, value_name = "FOLDER")]
    programs: Option<Utf8PathBuf>,
}

impl Chosen {
    fn stores(&self) -> Vec<Store> {
        self.store.map_or_else(|| vec![Store::Sqlite, Store::Postgres], |one| vec![one])
    }

    /// Folder of the programs; builds them with this profile unless a folder was given.
    fn programs(&self, profile: &str) -> anyhow::Result<Utf8PathBuf> {
        self.programs.clone().map_or_else(|| programs::folder(profile), Ok)
    }
}

/// Runs a future on a multi-threaded runtime.
fn block_on<T>(measuring: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting a runtime")?.block_on(measuring)
}

/// A figure of the main job: name, unit, target, and its value in the report.
type Figure = (&'static str, &'static str, &'static str, fn(&Report) -> f64);

const FIGURES: [Figure; 11] = [
    ("platform's own share of the deploy", "ms", "1000", |report| report.platform_ms as f64),
    ("distribution", "ms", "", |report| report.distribution_ms as f64),
    ("stand-in's first server ready", "ms", "8000", |report| report.cluster_start_ms as f64),
    ("no-op task, p50", "ms", "10", |report| report.dispatch_p50_ms),
    ("no-op task, p99", "ms", "50", |report| report.dispatch_p99_ms),
    ("fdatasync of a page, p50", "ms", "", |report| report.fdatasync_p50_ms),
    ("gpuaas dev ready", "ms", "1500", |report| report.dev_ready_ms as f64),
    ("agent, idle", "MB", "10", |report| report.agent_idle_rss_bytes as f64 / 1e6),
    ("agent, after the job", "MB", "", |report| report.agent_rss_bytes as f64 / 1e6),
    ("control plane, idle", "MB", "60", |report| report.server_idle_rss_bytes as f64 / 1e6),
    ("control plane, after the job", "MB", "", |report| report.server_rss_bytes as f64 / 1e6),
];

fn main_job(profile: &str, builds: bool, chosen: &Chosen) -> anyhow::Result<()> {
    let reports = chosen
        .stores()
        .into_iter()
        .map(|store| Ok((figures::name(store), demo::measured(profile, chosen.programs.clone(), store)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let titles: String = reports.iter().map(|(title, _)| format!("{title:>12}")).collect();
    println!("{:<38}{titles}", format!("main job, profile {profile}"));
    for (what, unit, target, figure) in FIGURES {
        let target = if target.is_empty() { String::new() } else { format!("   (target {target} {unit})") };
        let values: String = reports.iter().map(|(_, report)| format!("{:>12.2}", figure(report))).collect();
        println!("  {what:<36}{values} {unit}{target}");
    }
    if builds {
        for file in TOUCHED {
            println!("  {:<36}{:>10.2} s   (target 15 s)", format!("build after {file}"), rebuild(file)?.as_secs_f64());
        }
    }
    Ok(())
}

/// Time to build the programs after touching a file.
fn rebuild(file: &str) -> anyhow::Result<Duration> {
    shell::build_programs()?;
    let touched = std::fs::File::options().append(true).open(shell::root().join(file));
    touched.and_then(|file| file.set_modified(SystemTime::now())).with_context(|| format!("touching {file}"))?;
    let began = Instant::now();
    shell::build_programs()?;
    Ok(began.elapsed())
}

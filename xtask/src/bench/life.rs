//! `cargo xtask bench life`: what the platform itself costs when a running workload grows and shrinks, and how soon the API shows losses.

mod cluster;
mod losses;

use std::time::{Duration, Instant};

use camino::Utf8Path;

use super::{
    Chosen,
    control_plane::{ControlPlane, Place, SETTINGS},
    figures::{self, Figure, percentile_ms},
};
use crate::{
    components::{self, ComponentsOptions},
    demo::Store,
    release::{self, ReleaseOptions},
    shell,
};
use cluster::Cluster;

/// A figure's name, and how it is read from the times of one operation.
type Part = (&'static str, fn(&cluster::OperationTimes) -> Duration);

/// Options of `bench life`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of rounds: each adds and removes an agent, kills a service and stops a node's agent.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=50))]
    rounds: u8,
    /// Also time this many seeds of the simulation of whole lives.
    #[arg(long, value_name = "N")]
    seeds: Option<u32>,
    /// Cargo profile of the measured programs.
    #[arg(long, default_value = "dist")]
    profile: String,
    #[command(flatten)]
    chosen: Chosen,
}

/// Sandbox nodes: a server, an agent that stays, and one that is added and removed.
const NODES: u8 = 3;

/// Runs the benchmark.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let programs = options.chosen.programs(&options.profile)?;
    let components =
        components::ensure(&ComponentsOptions { download: false, dir: None }, components::Part::ControlPlane)?;
    let profile = options.profile.clone();
    let release = release::build(&ReleaseOptions { components, node: None, rke2: None, profile, out: None })?;
    let mut columns = Vec::new();
    for store in options.chosen.stores() {
        columns.push((store, super::block_on(measured(options, &programs, &release, store))?));
    }
    println!(
        "An operation lasts from its request until the client has the event of its end. The platform's share is the part in which no step with a"
    );
    println!(
        "task on a node or a call to the cluster runs; its target is 500 ms. As bench main-job counts it, only what the distribution does is left"
    );
    println!(
        "out: starts, stops, uninstalls, drains and waits for KubeNodes. A killed service is visible when the client has the event (target 2,000 ms);"
    );
    println!(
        "a node whose agent is stopped with SIGSTOP, so that no connection is closed, when it is `unreachable` (target 15,000 ms). {SETTINGS}"
    );
    figures::side_by_side(&format!("life, profile {}, {} rounds", options.profile, options.rounds), &columns);
    options.seeds.map_or(Ok(()), time_seeds)
}

async fn measured(
    options: &Options,
    programs: &Utf8Path,
    release: &Utf8Path,
    store: Store,
) -> anyhow::Result<Vec<Figure>> {
    let place = Place::fresh(store).await?;
    let plane = ControlPlane::start(programs, &place, NODES).await?;
    let cluster = Cluster::deploy(plane.client()?, release).await?;
    let (mut adds, mut removals) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        adds.push(cluster.add().await?);
        removals.push(cluster.remove().await?);
    }
    let mut figures = Vec::new();
    for (name, measured) in [("add", adds), ("remove", removals)] {
        let parts: [Part; 3] = [
            ("platform's share", cluster::OperationTimes::platform),
            ("platform's share as main-job counts it", cluster::OperationTimes::platform_of_main_job),
            ("whole", |took| took.whole),
        ];
        for (part, value) in parts {
            let values = measured.iter().map(value).collect();
            figures.extend(median_and_most(&format!("{name}: {part}"), values));
        }
    }
    let (mut killed, mut stale, mut unreachable) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        killed.push(losses::kill_service(&cluster, &place).await?);
        let silence = losses::stop_agent(&cluster, &place).await?;
        stale.push(silence.stale_after);
        unreachable.push(silence.unreachable_after);
    }
    figures.extend(median_and_most("killed service visible", killed));
    figures.extend(median_and_most("silent node stale", stale));
    figures.extend(median_and_most("silent node unreachable", unreachable));
    plane.stop();
    Ok(figures)
}

fn median_and_most(what: &str, mut took: Vec<Duration>) -> [Figure; 2] {
    let mut figure =
        |name: &str, percent| Figure::new(format!("{what}, {name}"), "ms", percentile_ms(&mut took, percent));
    [figure("median", 50), figure("most", 100)]
}

/// Times the simulation of whole lives as the tests run it, without its compilation.
fn time_seeds(seeds: u32) -> anyhow::Result<()> {
    let words = ["test", "--quiet", "--workspace", "--all-features", "--locked", "--test", "simulation"];
    shell::run("building the simulation", shell::cargo(&words).arg("--no-run"))?;
    let began = Instant::now();
    let count = seeds.to_string();
    shell::run("whole lives", shell::cargo(&words).arg("whole_lives").env("GPUAAS_LIFE_SEEDS", &count))?;
    println!(
        "  {:<58}{:>14.1} s   (target 180 s for 1,000)",
        format!("{count} seeds of whole lives"),
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

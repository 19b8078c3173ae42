//! `cargo xtask demo`: the main job as a user performs it, through the command line only: a control plane, three sandbox nodes, a cluster
//! on two of them, the third added, and kubectl with the delivered kubeconfig. `--lifecycle` performs everything that follows, too, until the
//! workload is decommissioned.

mod disk;
mod lifecycle;
mod replica;
mod report;
mod running;
mod verify;

use std::{
    fs::{File, TryLockError},
    time::Instant,
};

use anyhow::{Context, bail};
use camino::{Utf8Path, Utf8PathBuf};

use crate::{components, package::programs, release, ui};
pub(crate) use report::Report;
use running::RunningDemo;
use serde::Serialize;

/// Sandbox nodes of the main job.
const NODES: u8 = 3;
/// Sandbox nodes of a whole life: one of them replaces another.
const NODES_OF_WHOLE_LIFE: u8 = 4;

/// Options of `cargo xtask demo`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Verify everything, tear down and exit.
    #[arg(long)]
    once: bool,
    /// Write a JSON report to this file.
    #[arg(long, value_name = "FILE")]
    report: Option<Utf8PathBuf>,
    /// Run the whole life of a workload: add, drain, uncordon, remove, replace, stop, start, reconcile, repair, decommission.
    #[arg(long, requires = "once", conflicts_with = "kill_replica")]
    lifecycle: bool,
    /// Break the state behind one verification on purpose, to see that it fails; `list` prints the names. With --lifecycle, the demo succeeds
    /// if exactly that verification fails, and `all` breaks them one after the other.
    #[arg(long, value_name = "NAME", requires = "once")]
    sabotage: Option<String>,
    /// Cargo profile of everything that runs.
    #[arg(long, default_value = "dev")]
    profile: String,
    /// Database of the control plane; `postgres` starts a server for the demo.
    #[arg(long, value_enum, default_value_t = Store::Sqlite)]
    store: Store,
    /// Number of control-plane processes; more than one requires `--store postgres`.
    #[arg(long, default_value_t = 1, value_name = "N")]
    replicas: u8,
    /// Kill the process that drives the deployment halfway, and continue with the others.
    #[arg(long, requires = "once")]
    kill_replica: bool,
    /// Remove the remains of earlier runs, and exit.
    #[arg(long)]
    clean: bool,
    /// Folder of existing programs to run, instead of building them.
    #[arg(skip)]
    programs: Option<Utf8PathBuf>,
}

impl Options {
    /// Options of the demo within `cargo xtask test`.
    pub(crate) fn once() -> Self {
        Self { once: true, ..Self::of_profile("dev") }
    }

    /// Options of the whole life with every sabotage within `cargo xtask test`.
    pub(crate) fn lifecycle() -> Self {
        Self { lifecycle: true, sabotage: Some("all".to_owned()), ..Self::once() }
    }

    fn of_profile(profile: &str) -> Self {
        Self {
            once: false,
            report: None,
            lifecycle: false,
            sabotage: None,
            profile: profile.to_owned(),
            store: Store::Sqlite,
            replicas: 1,
            kill_replica: false,
            clean: false,
            programs: None,
        }
    }
}

/// Database of the control plane.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Store {
    /// A file, used by a single process.
    Sqlite,
    /// A server, which several processes share.
    Postgres,
}

/// Runs the demo.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.sabotage.as_deref() == Some("list") {
        print_sabotages(options.lifecycle);
        return Ok(());
    }
    let folder = components::root()?.join("target/demo");
    let _lock = lock(&folder)?;
    if options.clean {
        return remove(&folder);
    }
    if options.replicas > 1 && options.store == Store::Sqlite {
        bail!("several replicas need a shared database: add --store postgres");
    }
    if options.kill_replica && options.replicas < 2 {
        bail!("--kill-replica needs another replica to continue: add --replicas 2");
    }
    if options.lifecycle {
        return whole_life(options);
    }
    if let Some(name) = &options.sabotage {
        verify::check_name(name)?;
    }
    let mut report = Report::default();
    let mut running = build_and_run(options, &mut report)?;
    if !options.once {
        println!("  The demo keeps running. In another terminal:  export GPUAAS_READY_FILE={}", running.ready_file);
        println!("  In a browser:  {}", running.sign_in_link()?);
        println!("  (The link works once, within 10 minutes; another one:  gpuaas login --browser)");
        println!("  Ctrl-C stops everything and removes nothing; `cargo xtask demo --clean` removes target/demo.");
        return running.wait();
    }
    if let Some(name) = &options.sabotage {
        println!("  sabotage        {name}");
        verify::sabotage(&running, name)?;
    }
    verify::running(&running, &mut report)?;
    running.measure(&mut report)?;
    running.stop()?;
    verify::stopped(&running, options.sabotage.as_deref(), &mut report)?;
    write_report(options, &report)?;
    report.print();
    match report.failed() {
        failed if failed.is_empty() => Ok(()),
        failed => bail!("these verifications failed: {}", failed.join(", ")),
    }
}

/// Runs the whole life of a workload, with the chosen sabotages.
fn whole_life(options: &Options) -> anyhow::Result<()> {
    let choice = lifecycle::Choice::parse(options.sabotage.as_deref())?;
    let (mut running, release) = build_and_start(options, NODES_OF_WHOLE_LIFE)?;
    prepare(&running, &release)?;
    let report = lifecycle::run(&running, choice);
    running.stop()?;
    write_report(options, &report)?;
    report.print();
    let left: Vec<String> = running.processes()?.into_iter().map(|process| process.command).collect();
    if let Some(failure) = report.failure() {
        bail!("{failure}");
    }
    anyhow::ensure!(left.is_empty(), "these processes are left: {}", left.join("; "));
    if let lifecycle::Choice::One(sabotage) = choice {
        println!("  {} failed where it was meant to, and nowhere before", sabotage.verification());
    }
    Ok(())
}

fn write_report(options: &Options, report: &impl Serialize) -> anyhow::Result<()> {
    let Some(path) = &options.report else { return Ok(()) };
    std::fs::write(path, serde_json::to_vec_pretty(report)?).with_context(|| format!("writing {path}"))
}

/// Prints what `--sabotage` accepts.
fn print_sabotages(of_whole_life: bool) {
    if of_whole_life {
        lifecycle::print_sabotages();
        println!("  all            all of them, one after the other");
    } else {
        verify::names().iter().for_each(|name| println!("  {name}"));
    }
}

/// Runs the main job with its measurements and without its verifications, with the programs of this folder or with new ones.
pub(crate) fn measured(profile: &str, programs: Option<Utf8PathBuf>, store: Store) -> anyhow::Result<Report> {
    let _lock = lock(&components::root()?.join("target/demo"))?;
    let mut report = Report::default();
    let mut running = build_and_run(&Options { store, programs, ..Options::of_profile(profile) }, &mut report)?;
    running.measure(&mut report)?;
    running.stop()?;
    Ok(report)
}

/// Builds everything, starts a new environment, and runs the main job in it.
fn build_and_run(options: &Options, report: &mut Report) -> anyhow::Result<RunningDemo> {
    let (mut running, release) = build_and_start(options, NODES)?;
    (report.agent_idle_rss_bytes, report.server_idle_rss_bytes) = running.memory()?;
    prepare(&running, &release)?;
    main_job(&mut running, report, options.kill_replica)?;
    Ok(running)
}

/// Builds everything, and starts a new environment with this number of nodes. Returns the folder of the release, too.
fn build_and_start(options: &Options, nodes: u8) -> anyhow::Result<(RunningDemo, Utf8PathBuf)> {
    let profile = &options.profile;
    let folder = components::root()?.join("target/demo");
    ui::build_if_possible()?;
    let components = components::ensure(
        &components::ComponentsOptions { download: false, dir: None },
        components::Part::ControlPlane,
    )?;
    let kubectl = components.program("kubectl");
    let release_options =
        release::ReleaseOptions { components, node: None, rke2: None, profile: profile.clone(), out: None };
    let release = release::build(&release_options)?;
    remove(&folder)?;
    let database = (options.store == Store::Postgres).then(running::Database::start).transpose()?;
    let key = release::public_key(&release)?;
    let programs = options.programs.clone().map_or_else(|| programs::folder(profile), Ok)?;
    let running = RunningDemo::start(&folder, &programs, kubectl, database, (nodes, options.replicas), &key)?;
    Ok((running, release))
}

/// Waits until no other demo of this checkout runs: they share the folder, and each removes its content at the end.
fn lock(folder: &Utf8Path) -> anyhow::Result<File> {
    let path = folder.with_extension("lock");
    std::fs::create_dir_all(folder.parent().unwrap_or(folder)).with_context(|| format!("creating {path}"))?;
    let lock = File::create(&path).with_context(|| format!("creating {path}"))?;
    if let Err(TryLockError::WouldBlock) = lock.try_lock() {
        println!("  Another demo of this checkout is running; waiting until it ends.");
        lock.lock().with_context(|| format!("locking {path}"))?;
    }
    Ok(lock)
}

fn remove(folder: &Utf8Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {folder}"))
        }
        _ => Ok(()),
    }
}

/// Imports the release, and gives every node to the project.
fn prepare(running: &RunningDemo, release: &Utf8Path) -> anyhow::Result<()> {
    running.gpuaas(&["artifact", "import", "rke2", release.as_str()])?;
    running.gpuaas(&["project", "create", running::PROJECT])?;
    for node in running.nodes()? {
        running.gpuaas(&["allocation", "create", "--node", &node])?;
    }
    running.await_allocations()
}

fn main_job(running: &mut RunningDemo, report: &mut Report, kill_replica: bool) -> anyhow::Result<()> {
    let began = Instant::now();
    println!("  deploy          rke2 (stand-in) · server demo-1 · agent demo-2");
    let placed = ["--name", running::WORKLOAD, "--server", "demo-1", "--agent", "demo-2"];
    let deploy = [&["workload", "deploy", "rke2"], &placed[..]].concat();
    let deployed = match kill_replica {
        false => running.gpuaas(&[&deploy[..], &["--wait"]].concat())?,
        true => replica::kill_during_start(running, &deploy)?,
    };
    report.take_deploy(&deployed, began.elapsed());
    report.print_deploy();
    let began = Instant::now();
    let added = running.gpuaas(&["workload", "add-member", running::WORKLOAD, "--agent", "demo-3", "--wait"])?;
    report.take_steps(&added);
    println!("  add member      demo-3 joined in {:.1} s", began.elapsed().as_secs_f64());
    running.fetch_kubeconfig()?;
    println!("  $ kubectl --kubeconfig target/demo/kubeconfig get nodes");
    for line in running.kubectl(&["get", "nodes"])?.lines() {
        println!("    {line}");
    }
    Ok(())
}

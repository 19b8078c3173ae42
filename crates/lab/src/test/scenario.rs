//! What can run between two inventories: a scenario on a running lab, or a crash of the lab itself.

use std::process::Stdio;

use anyhow::{Context, Error, bail, ensure};
use camino::Utf8Path;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
};

use super::{
    evidence,
    parts::{Part, Prepared},
};
use crate::{cgroups, inventory, node::Lab, place, shell, up};

/// Number of nodes in the runs that crash the lab.
const NODES_OF_CRASHES: u8 = 2;

/// A test on booted nodes.
pub(crate) struct Scenario {
    /// Name on the command line.
    pub(crate) name: &'static str,
    /// Number of nodes that it needs.
    pub(crate) nodes: u8,
    /// Parts that must be built before the lab starts.
    pub(crate) needs: &'static [Part],
    /// Runs it, in a separate process.
    pub(crate) run: fn(&Lab, &Prepared) -> anyhow::Result<()>,
}

/// One run of `lab test`.
pub(super) enum Run {
    /// A scenario on a running lab.
    Scenario(&'static Scenario),
    /// `up` is killed while its nodes boot.
    KilledWhileBooting,
    /// Every supervisor is killed while its node runs.
    SupervisorsKilled,
}

/// How a run ended that did not fail.
pub(super) enum Outcome {
    /// It is complete.
    Done,
    /// A signal interrupted it.
    Interrupted,
}

impl Run {
    /// Lists all runs.
    pub(super) fn all(scenarios: &'static [Scenario]) -> Vec<Self> {
        scenarios.iter().map(Self::Scenario).chain([Self::KilledWhileBooting, Self::SupervisorsKilled]).collect()
    }

    /// Parts that must be built before it.
    pub(super) fn needs(&self) -> &'static [Part] {
        match self {
            Self::Scenario(scenario) => scenario.needs,
            Self::KilledWhileBooting | Self::SupervisorsKilled => &[],
        }
    }

    /// Number of checks that passed the last time; a run that is no scenario counts as one.
    pub(super) fn passed_checks(&self, prepared: &Prepared) -> anyhow::Result<u32> {
        match self {
            Self::Scenario(scenario) => evidence::passed(scenario.name, prepared),
            Self::KilledWhileBooting | Self::SupervisorsKilled => Ok(1),
        }
    }

    /// Number of nodes of its lab.
    pub(super) fn nodes(&self) -> u8 {
        match self {
            Self::Scenario(scenario) => scenario.nodes,
            Self::KilledWhileBooting | Self::SupervisorsKilled => NODES_OF_CRASHES,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Scenario(scenario) => scenario.name,
            Self::KilledWhileBooting => "killed-while-booting",
            Self::SupervisorsKilled => "supervisors-killed",
        }
    }

    /// Executes the run until it ends or SIGINT or SIGTERM arrives. After that only the lab's own processes are left.
    pub(super) fn execute(&self, prepared: &Prepared) -> anyhow::Result<Outcome> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            tokio::select! {
                biased;
                // Dropping the future kills its child.
                _ = interrupt.recv() => Ok(Outcome::Interrupted),
                _ = terminate.recv() => Ok(Outcome::Interrupted),
                executed = self.execute_to_end(prepared) => executed.map(|()| Outcome::Done),
            }
        })
    }

    async fn execute_to_end(&self, prepared: &Prepared) -> anyhow::Result<()> {
        match self {
            Self::Scenario(scenario) => {
                let input = evidence::write_input(scenario.name, prepared)?;
                run_up(scenario.nodes).await?;
                let ended = wait_for_success(&mut start_scenario(scenario, &input)?).await;
                // The scenario's own reason says more than its exit status.
                ended.map_err(|error| evidence::failure(scenario.name, prepared).map_or(error, Error::msg))
            }
            Self::KilledWhileBooting => killed_while_booting().await,
            Self::SupervisorsKilled => {
                run_up(NODES_OF_CRASHES).await?;
                kill_supervisors()
            }
        }
    }
}

async fn run_up(nodes: u8) -> anyhow::Result<()> {
    wait_for_success(&mut spawn(own_command(&["lab", "up", "--nodes", &nodes.to_string()]))?).await
}

async fn killed_while_booting() -> anyhow::Result<()> {
    let mut command = own_command(&["lab", "up", "--nodes", &NODES_OF_CRASHES.to_string()]);
    command.stdout(Stdio::piped());
    let mut up = spawn(command)?;
    let mut lines = BufReader::new(up.stdout.take().context("stdout is not piped")?).lines();
    while let Some(line) = lines.next_line().await? {
        println!("{line}");
        if line.trim_start().starts_with(up::BOOTING) {
            up.kill().await.context("killing `lab up`")?;
            println!("  killed");
            return Ok(());
        }
    }
    bail!("`lab up` ended before it could be killed: {}", up.wait().await?)
}

fn kill_supervisors() -> anyhow::Result<()> {
    let supervisors = cgroups::members(&place::group(place::SUPERVISORS))?;
    ensure!(
        supervisors.len() == usize::from(NODES_OF_CRASHES),
        "expected {NODES_OF_CRASHES} supervisors, found {}",
        supervisors.len()
    );
    for supervisor in supervisors {
        kill_process(Pid::from_raw(supervisor).context("a supervisor has no valid PID")?, Signal::KILL)?;
    }
    println!("  killed");
    Ok(())
}

/// Starts a scenario as a process; the processes that it starts belong to the lab and end with it.
fn start_scenario(scenario: &Scenario, input: &Utf8Path) -> anyhow::Result<Child> {
    let words = own_arguments(&["lab", "scenario", scenario.name, "--given", input.as_str()]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    spawn(cgroups::joined(&place::group(place::SERVICES), &words)?.into())
}

/// Returns a command of this program, as a child that dies with this process.
fn own_command(arguments: &[&str]) -> Command {
    let words = own_arguments(arguments);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

fn own_arguments(arguments: &[&str]) -> Vec<String> {
    let within = ["--within".to_owned(), std::process::id().to_string()];
    let arguments = arguments.iter().map(|word| (*word).to_owned());
    std::iter::once(shell::own_program()).chain(arguments).chain(within).collect()
}

fn spawn(mut command: Command) -> anyhow::Result<Child> {
    command
        .env(inventory::MARK, "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("starting this program again")
}

async fn wait_for_success(child: &mut Child) -> anyhow::Result<()> {
    let status = child.wait().await?;
    ensure!(status.success(), "the process ended with {status}");
    Ok(())
}

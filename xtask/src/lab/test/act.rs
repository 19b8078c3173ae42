//! What can run between two inventories: a scenario on a running lab, or a crash of the lab itself.

use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use camino::Utf8Path;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
};

use super::{
    evidence,
    prepare::{Part, Prepared},
};
use crate::{
    lab::{cgroups, inventory, node::Lab, place, up},
    shell,
};

/// A test on booted nodes.
pub(crate) struct Story {
    /// Name on the command line.
    pub(crate) name: &'static str,
    /// Number of nodes that it needs.
    pub(crate) nodes: u8,
    /// Parts that must be built before the lab starts.
    pub(crate) needs: &'static [Part],
    /// Runs it, in a separate process.
    pub(crate) tell: fn(&Lab, &Prepared) -> anyhow::Result<()>,
}

/// One run of `lab test`.
pub(super) enum Act {
    /// A scenario on a running lab.
    Story(&'static Story),
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

impl Act {
    /// Lists all runs.
    pub(super) fn all(stories: &'static [Story]) -> Vec<Self> {
        stories.iter().map(Self::Story).chain([Self::KilledWhileBooting, Self::SupervisorsKilled]).collect()
    }

    /// Parts that must be built before it.
    pub(super) fn needs(&self) -> &'static [Part] {
        match self {
            Self::Story(story) => story.needs,
            Self::KilledWhileBooting | Self::SupervisorsKilled => &[],
        }
    }

    /// Number of checks that passed the last time; a run that is no scenario counts as one.
    pub(super) fn held(&self) -> anyhow::Result<u32> {
        match self {
            Self::Story(story) => evidence::held(story.name),
            Self::KilledWhileBooting | Self::SupervisorsKilled => Ok(1),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Story(story) => story.name,
            Self::KilledWhileBooting => "killed-while-booting",
            Self::SupervisorsKilled => "supervisors-killed",
        }
    }

    /// Executes the run until it ends or SIGINT or SIGTERM arrives. After that only the lab's own processes are left.
    pub(super) fn play(&self, prepared: &Prepared) -> anyhow::Result<Outcome> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            tokio::select! {
                biased;
                // Dropping the future kills its child.
                _ = interrupt.recv() => Ok(Outcome::Interrupted),
                _ = terminate.recv() => Ok(Outcome::Interrupted),
                played = self.play_through(prepared) => played.map(|()| Outcome::Done),
            }
        })
    }

    async fn play_through(&self, prepared: &Prepared) -> anyhow::Result<()> {
        match self {
            Self::Story(story) => {
                let given = evidence::give(story.name, prepared)?;
                up_to_its_end(story.nodes).await?;
                succeeded(&mut told(story, &given)?).await
            }
            Self::KilledWhileBooting => killed_while_booting().await,
            Self::SupervisorsKilled => {
                up_to_its_end(2).await?;
                kill_supervisors()
            }
        }
    }
}

async fn up_to_its_end(nodes: u8) -> anyhow::Result<()> {
    succeeded(&mut began(ours(&["lab", "up", "--nodes", &nodes.to_string()]))?).await
}

async fn killed_while_booting() -> anyhow::Result<()> {
    let mut command = ours(&["lab", "up", "--nodes", "2"]);
    command.stdout(Stdio::piped());
    let mut up = began(command)?;
    let mut lines = BufReader::new(up.stdout.take().context("its output")?).lines();
    while let Some(line) = lines.next_line().await? {
        println!("{line}");
        if line.trim_start().starts_with(up::BOOTING) {
            up.kill().await.context("killing it")?;
            println!("  killed");
            return Ok(());
        }
    }
    bail!("`lab up` ended before it could be killed: {}", up.wait().await?)
}

fn kill_supervisors() -> anyhow::Result<()> {
    let supervisors = cgroups::members(&place::group(place::SUPERVISORS))?;
    ensure!(supervisors.len() == 2, "2 nodes have {} supervisors", supervisors.len());
    for supervisor in supervisors {
        kill_process(Pid::from_raw(supervisor).context("a process")?, Signal::KILL)?;
    }
    println!("  killed");
    Ok(())
}

/// Starts a scenario as a process; the processes that it starts belong to the lab and end with it.
fn told(story: &Story, given: &Utf8Path) -> anyhow::Result<Child> {
    let words = ours_words(&["lab", "story", story.name, "--given", given.as_str()]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    began(cgroups::joined(&place::group(place::SERVICES), &words)?.into())
}

/// Returns a command of this program, as a child that dies with this process.
fn ours(arguments: &[&str]) -> Command {
    let words = ours_words(arguments);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

fn ours_words(arguments: &[&str]) -> Vec<String> {
    let within = ["--within".to_owned(), std::process::id().to_string()];
    let arguments = arguments.iter().map(|word| (*word).to_owned());
    std::iter::once(shell::own_program()).chain(arguments).chain(within).collect()
}

fn began(mut command: Command) -> anyhow::Result<Child> {
    command.env(inventory::MARK, "1").stdin(Stdio::null()).kill_on_drop(true).spawn().context("starting ourselves")
}

async fn succeeded(child: &mut Child) -> anyhow::Result<()> {
    let status = child.wait().await?;
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}

//! Handle of a node for tests.

use std::{
    net::Ipv4Addr,
    os::unix::process::CommandExt,
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Context, ensure};
use camino::Utf8PathBuf;

use super::{
    control::{Condition, Power, Request, Supervisor},
    kind::{self, Kind},
    name::NodeName,
    place::{self, DOMAIN},
    plan::Plan,
    refusal::Refusal,
    state::{Journal, State},
    supervisor::console_of,
};

/// Longest boot.
const BOOT_MAX: Duration = Duration::from_secs(120);
/// Longest shutdown, orderly or not.
const OFF_MAX: Duration = Duration::from_secs(120);
/// Longest run of a command of [`Node::run`].
const RUN_MAX: Duration = Duration::from_secs(600);

/// A running lab.
pub(crate) struct Lab {
    state: State,
}

impl Lab {
    /// Returns the lab of this machine; fails if none is up.
    pub(crate) fn open() -> anyhow::Result<Self> {
        Ok(Self { state: State::read_complete()? })
    }

    /// The nodes, in order.
    pub(crate) fn nodes(&self) -> anyhow::Result<Vec<Node>> {
        self.state.shape.nodes.iter().map(|name| Node::of(&self.state, name)).collect()
    }

    /// Returns the node with this name.
    pub(crate) fn node(&self, name: &NodeName) -> anyhow::Result<Node> {
        Node::of(&self.state, name)
    }

    /// This machine's address in the nodes' network; nodes reach services of this machine there.
    pub(crate) fn gateway(&self) -> Ipv4Addr {
        self.state.shape.subnet.gateway()
    }
}

/// One node.
pub(crate) struct Node {
    plan: Plan,
    kind: Box<dyn Kind>,
}

impl Node {
    /// Returns the handle; the lab may still be under construction.
    pub(super) fn of(state: &State, name: &NodeName) -> anyhow::Result<Self> {
        Ok(Self { plan: Plan::of(state, name)?, kind: kind::named(&state.shape.kind)? })
    }

    /// Name of the node.
    pub(crate) fn name(&self) -> &NodeName {
        &self.plan.name
    }

    /// Fully qualified name in the lab's DNS.
    pub(crate) fn dns_name(&self) -> String {
        format!("{}.{DOMAIN}", self.plan.name)
    }

    /// Address of the node, the same at every boot.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.plan.address
    }

    /// The node's root folder on this machine, also while the node is off. It lacks what the node keeps in memory (`/run`, `/dev`,
    /// `/proc`).
    pub(crate) fn root(&self) -> Utf8PathBuf {
        place::root_of(&self.plan.name)
    }

    /// Reads the node's condition from its supervisor.
    pub(crate) fn condition(&self) -> anyhow::Result<Condition> {
        Supervisor::of(&self.plan.name).condition()
    }

    /// Runs a command in the node as root, for [`RUN_MAX`] at most, and returns its status and output.
    pub(crate) fn run(&self, argv: &[&str]) -> anyhow::Result<Output> {
        self.run_within(RUN_MAX, argv)
    }

    /// Does the same with another limit. After it the command is killed and its exit code is 124 or 137.
    pub(crate) fn run_within(&self, longest: Duration, argv: &[&str]) -> anyhow::Result<Output> {
        let seconds = longest.as_secs().max(1).to_string();
        let limited = [&["timeout", "--kill-after=5", &seconds][..], argv].concat();
        let mut command = self.command(&limited)?;
        command.stdin(std::process::Stdio::null());
        command.output().with_context(|| format!("running {argv:?} in {}", self.plan.name))
    }

    /// Runs a command that must succeed; returns its trimmed stdout.
    pub(crate) fn capture(&self, argv: &[&str]) -> anyhow::Result<String> {
        let output = self.run(argv)?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(
            output.status.success(),
            "{}: {argv:?}: {}: {}{}",
            self.plan.name,
            output.status,
            out.trim(),
            err.trim()
        );
        Ok(out.trim().to_owned())
    }

    /// Returns a command in the node, for callers that handle its streams.
    pub(crate) fn command(&self, argv: &[&str]) -> anyhow::Result<Command> {
        let condition = self.condition()?;
        let not_on = |next: &str| Refusal::NotRunning {
            node: self.plan.name.clone(),
            state: condition.describe(),
            next: next.to_owned(),
        };
        let leader = match (&condition.power, condition.leader) {
            (Power::On, Some(leader)) => leader,
            (Power::Booting | Power::On, _) => return Err(not_on("wait until it has booted").into()),
            (Power::Off(_), _) => return Err(not_on("start it with `cargo xtask lab up`").into()),
        };
        self.kind.inside(&self.plan, leader, argv)
    }

    /// Replaces this process with a command in the node, or with a login shell.
    pub(super) fn become_shell(&self, argv: &[String]) -> anyhow::Error {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let words = if words.is_empty() { vec!["bash", "--login"] } else { words };
        match self.command(&words) {
            Ok(mut command) => {
                command.env("TERM", std::env::var_os("TERM").unwrap_or_else(|| "dumb".into()));
                anyhow::Error::new(command.exec()).context("entering the node")
            }
            Err(error) => error,
        }
    }

    /// Reboots the node with `systemctl reboot` and waits until it has booted.
    pub(crate) fn reboot(&self) -> anyhow::Result<Condition> {
        let before = self.condition()?.boots;
        // The node may go down before the command has returned.
        let _ = self.run(&["systemctl", "reboot"])?;
        self.await_boot_after(before)
    }

    /// Powers the node off with `systemctl poweroff` and waits until it is off.
    pub(crate) fn switch_off(&self) -> anyhow::Result<()> {
        let _ = self.run(&["systemctl", "poweroff"])?;
        Supervisor::of(&self.plan.name).watch(OFF_MAX, |now| matches!(now.power, Power::Off(_)))?;
        Ok(())
    }

    /// Kills all processes of the node at once. Data they had not written is lost; the page cache of this machine is not.
    pub(crate) fn power_cut(&self) -> anyhow::Result<()> {
        Supervisor::of(&self.plan.name).request(Request::Cut)?;
        Supervisor::of(&self.plan.name).watch(OFF_MAX, |now| matches!(now.power, Power::Off(_)))?;
        Ok(())
    }

    /// Powers the node off if it is on, recreates it empty with the same name and address, and boots it.
    pub(crate) fn reimage(&self) -> anyhow::Result<Condition> {
        if !matches!(self.condition()?.power, Power::Off(_)) {
            self.switch_off()?;
        }
        self.kind.wipe(&self.plan).with_context(|| format!("wiping {}", self.plan.name))?;
        self.kind.create(&self.plan, &mut Journal::reopen()?)?;
        self.start()
    }

    /// Boots the node if it is off, and waits until it has booted.
    pub(crate) fn start(&self) -> anyhow::Result<Condition> {
        let before = self.condition()?;
        if before.power == Power::On {
            return Ok(before);
        }
        Supervisor::of(&self.plan.name).request(Request::Start)?;
        self.await_boot_after(if before.power == Power::Booting { before.boots - 1 } else { before.boots })
    }

    /// Waits until a boot with a number above `number` has finished.
    pub(super) fn await_boot_after(&self, number: u32) -> anyhow::Result<Condition> {
        let is_done = |now: &Condition| now.boots > number && now.power != Power::Booting;
        let not_booted = |why: String| Refusal::NotBooted {
            node: self.plan.name.clone(),
            why,
            console: console_of(&self.plan.name).into_string(),
        };
        match Supervisor::of(&self.plan.name).watch(BOOT_MAX, is_done) {
            Ok(now) if now.power == Power::On => Ok(now),
            Ok(now) => Err(not_booted(now.describe()).into()),
            Err(error) => Err(not_booted(format!("{error:#}")).into()),
        }
    }
}

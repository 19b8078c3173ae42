//! The scenario of the packages: control plane and agent are installed on booted machines as Debian packages, upgraded, removed and purged
//! without remains.
//!
//! Deliberately absent: archives for machines without dpkg, refusals (see the faults) and workloads.

use std::{
    cell::OnceCell,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_api_types::{CreatedToken, Node as Shown, RegisteredNode};
use serde::de::DeserializeOwned;

use super::{
    check::check,
    left::Left,
    prepare::{Part, Prepared},
    said::says,
};
use crate::{
    lab::node::{Lab, Node},
    package::check::EXPOSURE_TENTHS_MAX,
};

const SERVER: &str = "gpuaas-server";
const AGENT: &str = "gpuaas-agent";
/// Folders that dpkg and APT change with every installation.
const LEFT_OUT: [&str; 3] = ["/var/lib/dpkg", "/var/log", "/var/cache"];
/// Longest wait for an agent's reconnection: five of its longest pauses.
const DIALS_AGAIN_MAX: Duration = Duration::from_secs(25);

/// Runs the scenario.
pub(super) fn tell(lab: &Lab, given: &Prepared) -> anyhow::Result<()> {
    let nodes = lab.nodes()?;
    let [host, machine, ..] = nodes.as_slice() else { bail!("two nodes are needed") };
    let (first, second) = (given.path(Part::Packages)?, given.path(Part::PackagesNewer)?);
    let look = |node: &Node| Left::look(node, &LEFT_OUT);
    let (host_before, machine_before) = (look(host)?, look(machine)?);

    let server = Server { node: host, token: OnceCell::new() };
    check("the control plane's package is installed, and serves", || {
        install(host, first, SERVER)?;
        server.is_configured()
    })?;
    let line = check("a machine comes in by the line that its registration printed", || {
        let registered: RegisteredNode = server.gpuaas(&["node", "register", machine.name().as_str()])?;
        says(machine, &registered.enrollment.command)?;
        server.awaits_connected(machine)?;
        Ok(registered.enrollment.command)
    })?;
    check("both units are as closed as they may be", || {
        let (of_server, of_agent) = (exposure(host, SERVER)?, exposure(machine, AGENT)?);
        println!("    systemd-analyze security: {SERVER} {of_server}, {AGENT} {of_agent}");
        let most = f64::from(EXPOSURE_TENTHS_MAX) / 10.0;
        ensure!(of_server <= most, "{SERVER} is at {of_server}, and {most} is the most");
        Ok(())
    })?;
    check("no core file of either unit's process can hold its keys", || {
        for (node, unit) in [(host, SERVER), (machine, AGENT)] {
            let limit = node.says(&["systemctl", "show", "--property=LimitCORE", "--value", unit])?;
            ensure!(limit == "0", "{unit} may write core files of {limit} bytes");
        }
        Ok(())
    })?;
    check("the same line once more changes nothing", || changes_nothing(machine, &line, &look))?;

    check("the control plane is upgraded, and knows what it knew", || {
        upgrade(host, second, SERVER)?;
        server.awaits_connected(machine)
    })?;
    check("the same line then upgrades the agent, which stays who it is", || {
        let (before, was) = (identity(machine)?, version(machine, AGENT)?);
        says(machine, &line)?;
        ensure!(version(machine, AGENT)? != was, "it is {was} as before");
        ensure!(identity(machine)? == before, "it is another node");
        server.awaits_connected(machine)
    })?;
    check("an agent that is removed and installed again is who it was", || {
        let before = identity(machine)?;
        machine.says(&["dpkg", "--remove", AGENT])?;
        let unit = machine.says(&["systemctl", "show", "--property=LoadState", "--value", AGENT])?;
        ensure!(unit != "loaded", "its unit is still there");
        install(machine, second, AGENT)?;
        ensure!(identity(machine)? == before, "it is another node");
        server.awaits_connected(machine)
    })?;
    check("a purged agent leaves nothing", || {
        machine.says(&["dpkg", "--purge", AGENT])?;
        look(machine)?.is(&machine_before, machine)
    })?;
    check("brought in anew, install.sh --uninstall leaves nothing either", || {
        let reset: RegisteredNode = server.gpuaas(&[
            "node",
            "reset",
            "--force",
            "--reason",
            "the lab brings it in again",
            machine.name().as_str(),
        ])?;
        says(machine, &reset.enrollment.command)?;
        server.awaits_connected(machine)?;
        machine.says(&["sh", "/usr/share/gpuaas-agent/install.sh", "--uninstall"])?;
        look(machine)?.is(&machine_before, machine)
    })?;
    check("a removed control plane keeps its rows and keys, a purged one nothing", || {
        host.says(&["dpkg", "--remove", SERVER])?;
        host.says(&["test", "-s", "/var/lib/gpuaas/sealing.key", "-a", "-s", "/etc/gpuaas/server.toml"])?;
        host.says(&["dpkg", "--purge", SERVER])?;
        look(host)?.is(&host_before, host)
    })
}

/// Finds the file of a package in a folder of packages.
fn file_of(packages: &Utf8Path, package: &str) -> anyhow::Result<Utf8PathBuf> {
    let is_it = |name: &str| name.starts_with(&format!("{package}_")) && name.ends_with(".deb");
    let mut found = packages.read_dir_utf8().with_context(|| packages.to_string())?.flatten();
    let found = found.find(|entry| is_it(entry.file_name()));
    found.map(|entry| entry.into_path()).with_context(|| format!("{packages} has no {package}"))
}

fn install(node: &Node, packages: &Utf8Path, package: &str) -> anyhow::Result<()> {
    let file = file_of(packages, package)?;
    let there = node.root().join("tmp/package.deb");
    std::fs::copy(&file, &there).with_context(|| file.to_string())?;
    node.says(&["dpkg", "--install", "/tmp/package.deb"])?;
    std::fs::remove_file(&there).with_context(|| there.to_string())
}

fn version(node: &Node, package: &str) -> anyhow::Result<String> {
    node.says(&["dpkg-query", "--show", "--showformat=${Version}", package])
}

/// Upgrades to a later build; the unit must then run as a new process.
fn upgrade(node: &Node, packages: &Utf8Path, package: &str) -> anyhow::Result<()> {
    let process = || node.says(&["systemctl", "show", "--property=MainPID", "--value", package]);
    let (was, ran) = (version(node, package)?, process()?);
    install(node, packages, package)?;
    ensure!(version(node, package)? != was, "{package} is {was} as before");
    ensure!(process()? != ran, "its old process still runs");
    ensure!(node.says(&["systemctl", "is-active", package])? == "active", "it does not run");
    Ok(())
}

/// Exposure level of a unit by `systemd-analyze security`: 0 is the best.
fn exposure(node: &Node, unit: &str) -> anyhow::Result<f64> {
    let said = node.says(&["systemd-analyze", "security", "--no-pager", &format!("{unit}.service")])?;
    let overall = said.lines().find_map(|line| line.split_once("exposure level for ")?.1.split_whitespace().nth(1));
    overall.and_then(|number| number.parse().ok()).with_context(|| format!("systemd-analyze says: {said}"))
}

/// Identity of the agent.
fn identity(machine: &Node) -> anyhow::Result<String> {
    says(machine, "grep -w key /var/lib/gpuaas-agent/identity.json | sha256sum && gpuaas-agent status")
}

fn changes_nothing(machine: &Node, line: &str, look: &dyn Fn(&Node) -> anyhow::Result<Left>) -> anyhow::Result<()> {
    let files = "set -e; find /usr/bin/gpuaas-agent /usr/share/gpuaas-agent /lib/systemd/system/gpuaas-agent.service /var/lib/gpuaas-agent \
                 ! -name 'ledger*' ! -type d -printf '%p %s %m %u %T@\\n' >/tmp/files; sort /tmp/files; rm /tmp/files";
    let state = || -> anyhow::Result<(String, String)> {
        let run = ["systemctl", "show", "--property=MainPID,ActiveEnterTimestampMonotonic,UnitFileState", AGENT];
        Ok((machine.says(&run)?, says(machine, files)?))
    };
    let (left, before) = (look(machine)?, state()?);
    let said = says(machine, line)?;
    ensure!(said.starts_with("nothing to do"), "it says: {said}");
    let after = state()?;
    ensure!(after == before, "it changed something:\n{before:?}\n{after:?}");
    look(machine)?.is(&left, machine)
}

/// A control plane on a separate machine.
struct Server<'a> {
    node: &'a Node,
    /// Token of the administrator, once it exists.
    token: OnceCell<String>,
}

impl Server<'_> {
    fn url(&self) -> String {
        format!("https://{}:7443", self.node.dns_name())
    }

    /// Configures it to listen on all addresses under its name, as an operator does; checks that it serves as an unprivileged user.
    fn is_configured(&self) -> anyhow::Result<()> {
        let lines =
            format!("listen = \"0.0.0.0:7443\"\nchannel-listen = \"0.0.0.0:7444\"\npublic-url = \"{}\"\n", self.url());
        self.node.says(&["sh", "-c", "printf '%s' \"$0\" >>/etc/gpuaas/server.toml", &lines])?;
        self.node.says(&["systemctl", "restart", SERVER])?;
        let user = self.node.says(&["ps", "-o", "user=", "-C", "gpuaas"])?;
        ensure!(user == "gpuaas", "it runs as {user:?}");
        let one_time = "/var/lib/gpuaas/admin.token";
        let made: CreatedToken = self.gpuaas(&["bootstrap", "--name", "lab", "--token-file", one_time])?;
        ensure!(self.token.set(made.secret).is_ok(), "it has an administrator already");
        ensure!(
            self.node.says(&["ls", "/var/lib/gpuaas"])?.lines().all(|name| name != "admin.token"),
            "{one_time} stays"
        );
        self.gpuaas::<serde_json::Value>(&["whoami"]).map(drop)
    }

    /// Runs a `gpuaas` command on the control plane's machine as its first administrator.
    fn gpuaas<T: DeserializeOwned>(&self, words: &[&str]) -> anyhow::Result<T> {
        let script = "GPUAAS_SERVER=$0 GPUAAS_TOKEN=$1; export GPUAAS_SERVER GPUAAS_TOKEN; shift; \
                      GPUAAS_CA_FILE=/var/lib/gpuaas/ca.pem exec gpuaas \"$@\" --output json";
        let token = self.token.get().map_or("", String::as_str);
        let said = self.node.says(&[&["sh", "-c", script, &self.url(), token][..], words].concat())?;
        serde_json::from_str(&said).with_context(|| format!("gpuaas {}: {said}", words.join(" ")))
    }

    /// Waits until an agent answers after a restart of either side, by polling: no event reports a reconnection, because the database never
    /// recorded a disconnection.
    fn awaits_connected(&self, machine: &Node) -> anyhow::Result<()> {
        let began = Instant::now();
        let ping = ["node", "ping", machine.name().as_str()];
        while let Err(error) = self.gpuaas::<serde_json::Value>(&ping) {
            if began.elapsed() > DIALS_AGAIN_MAX {
                return Err(error).context("it does not dial again");
            }
            std::thread::sleep(DIALS_AGAIN_MAX / 100);
        }
        let shown: Shown = self.gpuaas(&["node", "show", machine.name().as_str()])?;
        ensure!(shown.state == "active", "it is {}", shown.state);
        Ok(())
    }
}

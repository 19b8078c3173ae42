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
    command_output::capture_script,
    listing::MachineListing,
    parts::{Part, Prepared},
};
use crate::node::{Lab, Node};

/// Highest permitted exposure level of the control plane's unit, in tenths: 3.0.
pub const EXPOSURE_TENTHS_MAX: u8 = 30;

const SERVER: &str = "gpuaas-server";
const AGENT: &str = "gpuaas-agent";
/// Folders that dpkg and APT change with every installation.
const EXCLUDED: [&str; 3] = ["/var/lib/dpkg", "/var/log", "/var/cache"];
/// Longest wait for an agent's reconnection: five of its longest pauses.
const RECONNECT_MAX: Duration = Duration::from_secs(25);

/// Runs the scenario.
pub(super) fn run_scenario(lab: &Lab, given: &Prepared) -> anyhow::Result<()> {
    let nodes = lab.nodes()?;
    let [host, machine, ..] = nodes.as_slice() else { bail!("the lab has fewer than two nodes") };
    let (first, second) = (given.path(Part::Packages)?, given.path(Part::PackagesNewer)?);
    let look = |node: &Node| MachineListing::read(node, &EXCLUDED);
    let (host_before, machine_before) = (look(host)?, look(machine)?);

    let server = Server { node: host, token: OnceCell::new() };
    check("the control plane's package is installed, and the control plane serves", || {
        install(host, first, SERVER)?;
        server.configure()
    })?;
    let line = check("a machine is enrolled by the command that its registration printed", || {
        let registered: RegisteredNode = server.gpuaas(&["node", "register", machine.name().as_str()])?;
        capture_script(machine, &registered.enrollment.command)?;
        server.wait_connected(machine)?;
        Ok(registered.enrollment.command)
    })?;
    check("the exposure of the units is measured, and the server's is low enough", || {
        let (of_server, of_agent) = (exposure(host, SERVER)?, exposure(machine, AGENT)?);
        println!("    systemd-analyze security: {SERVER} {of_server}, {AGENT} {of_agent}");
        let most = f64::from(EXPOSURE_TENTHS_MAX) / 10.0;
        ensure!(of_server <= most, "the exposure of {SERVER} is {of_server}; at most {most} is allowed");
        Ok(())
    })?;
    check("neither unit may write core files, which would contain keys", || {
        for (node, unit) in [(host, SERVER), (machine, AGENT)] {
            let limit = node.capture(&["systemctl", "show", "--property=LimitCORE", "--value", unit])?;
            ensure!(limit == "0", "{unit} may write core files of {limit} bytes");
        }
        Ok(())
    })?;
    check("the same command again changes nothing", || check_nothing_changes(machine, &line, &look))?;

    check("the control plane is upgraded and keeps its data", || {
        upgrade(host, second, SERVER)?;
        server.wait_connected(machine)
    })?;
    check("the same command then upgrades the agent, which keeps its identity", || {
        let (before, was) = (identity(machine)?, version(machine, AGENT)?);
        capture_script(machine, &line)?;
        ensure!(version(machine, AGENT)? != was, "the version is still {was}");
        ensure!(identity(machine)? == before, "the identity changed");
        server.wait_connected(machine)
    })?;
    check("an agent that is removed and installed again keeps its identity", || {
        let before = identity(machine)?;
        machine.capture(&["dpkg", "--remove", AGENT])?;
        let unit = machine.capture(&["systemctl", "show", "--property=LoadState", "--value", AGENT])?;
        ensure!(unit != "loaded", "the unit is still loaded");
        install(machine, second, AGENT)?;
        ensure!(identity(machine)? == before, "the identity changed");
        server.wait_connected(machine)
    })?;
    check("a purged agent leaves nothing", || {
        machine.capture(&["dpkg", "--purge", AGENT])?;
        look(machine)?.check_same(&machine_before, machine)
    })?;
    check("enrolled again, install.sh --uninstall leaves nothing either", || {
        let reset: RegisteredNode = server.gpuaas(&[
            "node",
            "reset",
            "--yes",
            "--force",
            "--reason",
            "the lab enrolls it again",
            machine.name().as_str(),
        ])?;
        capture_script(machine, &reset.enrollment.command)?;
        server.wait_connected(machine)?;
        machine.capture(&["sh", "/usr/share/gpuaas-agent/install.sh", "--uninstall"])?;
        look(machine)?.check_same(&machine_before, machine)
    })?;
    check("a removed control plane keeps its data and keys, a purged one leaves nothing", || {
        host.capture(&["dpkg", "--remove", SERVER])?;
        host.capture(&["test", "-s", "/var/lib/gpuaas/sealing.key", "-a", "-s", "/etc/gpuaas/server.toml"])?;
        host.capture(&["dpkg", "--purge", SERVER])?;
        look(host)?.check_same(&host_before, host)
    })
}

/// Finds the file of a package in a folder of packages.
fn file_of(packages: &Utf8Path, package: &str) -> anyhow::Result<Utf8PathBuf> {
    let is_it = |name: &str| name.starts_with(&format!("{package}_")) && name.ends_with(".deb");
    let mut found = packages.read_dir_utf8().with_context(|| packages.to_string())?.flatten();
    let found = found.find(|entry| is_it(entry.file_name()));
    found.map(|entry| entry.into_path()).with_context(|| format!("{packages} contains no package {package}"))
}

fn install(node: &Node, packages: &Utf8Path, package: &str) -> anyhow::Result<()> {
    let file = file_of(packages, package)?;
    let there = node.root().join("tmp/package.deb");
    std::fs::copy(&file, &there).with_context(|| file.to_string())?;
    node.capture(&["dpkg", "--install", "/tmp/package.deb"])?;
    std::fs::remove_file(&there).with_context(|| there.to_string())
}

fn version(node: &Node, package: &str) -> anyhow::Result<String> {
    node.capture(&["dpkg-query", "--show", "--showformat=${Version}", package])
}

/// Upgrades to a later build; the unit must then run as a new process.
fn upgrade(node: &Node, packages: &Utf8Path, package: &str) -> anyhow::Result<()> {
    let process = || node.capture(&["systemctl", "show", "--property=MainPID", "--value", package]);
    let (was, ran) = (version(node, package)?, process()?);
    install(node, packages, package)?;
    ensure!(version(node, package)? != was, "the version of {package} is still {was}");
    ensure!(process()? != ran, "the old process still runs");
    ensure!(node.capture(&["systemctl", "is-active", package])? == "active", "the unit is not active");
    Ok(())
}

/// Exposure level of a unit by `systemd-analyze security`: 0 is the best.
fn exposure(node: &Node, unit: &str) -> anyhow::Result<f64> {
    let output = node.capture(&["systemd-analyze", "security", "--no-pager", &format!("{unit}.service")])?;
    let overall = output.lines().find_map(|line| line.split_once("exposure level for ")?.1.split_whitespace().nth(1));
    overall
        .and_then(|number| number.parse().ok())
        .with_context(|| format!("no exposure level in the output of systemd-analyze: {output}"))
}

/// Identity of the agent.
fn identity(machine: &Node) -> anyhow::Result<String> {
    capture_script(machine, "grep -w key /var/lib/gpuaas-agent/identity.json | sha256sum && gpuaas-agent status")
}

fn check_nothing_changes(
    machine: &Node,
    line: &str,
    look: &dyn Fn(&Node) -> anyhow::Result<MachineListing>,
) -> anyhow::Result<()> {
    let files = "set -e; find /usr/bin/gpuaas-agent /usr/share/gpuaas-agent /lib/systemd/system/gpuaas-agent.service /var/lib/gpuaas-agent \
                 ! -name 'ledger*' ! -type d -printf '%p %s %m %u %T@\\n' >/tmp/files; sort /tmp/files; rm /tmp/files";
    let state = || -> anyhow::Result<(String, String)> {
        let run = ["systemctl", "show", "--property=MainPID,ActiveEnterTimestampMonotonic,UnitFileState", AGENT];
        Ok((machine.capture(&run)?, capture_script(machine, files)?))
    };
    let (left, before) = (look(machine)?, state()?);
    let output = capture_script(machine, line)?;
    ensure!(output.starts_with("nothing to do"), "the command printed: {output}");
    let after = state()?;
    ensure!(after == before, "the command changed something:\n{before:?}\n{after:?}");
    look(machine)?.check_same(&left, machine)
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
    fn configure(&self) -> anyhow::Result<()> {
        let lines =
            format!("listen = \"0.0.0.0:7443\"\nchannel-listen = \"0.0.0.0:7444\"\npublic-url = \"{}\"\n", self.url());
        self.node.capture(&["sh", "-c", "printf '%s' \"$0\" >>/etc/gpuaas/server.toml", &lines])?;
        self.node.capture(&["systemctl", "restart", SERVER])?;
        let user = self.node.capture(&["ps", "-o", "user=", "-C", "gpuaas"])?;
        ensure!(user == "gpuaas", "the control plane runs as {user:?}");
        let one_time = "/var/lib/gpuaas/admin.token";
        let made: CreatedToken = self.gpuaas(&["bootstrap", "--name", "lab", "--token-file", one_time])?;
        ensure!(self.token.set(made.secret).is_ok(), "the control plane already has an administrator");
        ensure!(
            self.node.capture(&["ls", "/var/lib/gpuaas"])?.lines().all(|name| name != "admin.token"),
            "{one_time} still exists"
        );
        self.gpuaas::<serde_json::Value>(&["whoami"]).map(drop)
    }

    /// Runs a `gpuaas` command on the control plane's machine as its first administrator.
    fn gpuaas<T: DeserializeOwned>(&self, arguments: &[&str]) -> anyhow::Result<T> {
        let script = "GPUAAS_SERVER=$0 GPUAAS_TOKEN=$1; export GPUAAS_SERVER GPUAAS_TOKEN; shift; \
                      GPUAAS_CA_FILE=/var/lib/gpuaas/ca.pem exec gpuaas \"$@\" --output json";
        let token = self.token.get().map_or("", String::as_str);
        let output = self.node.capture(&[&["sh", "-c", script, &self.url(), token][..], arguments].concat())?;
        serde_json::from_str(&output).with_context(|| format!("gpuaas {}: {output}", arguments.join(" ")))
    }

    /// Waits until an agent answers after a restart of either side, by polling: no event reports a reconnection, because the database never
    /// recorded a disconnection.
    fn wait_connected(&self, machine: &Node) -> anyhow::Result<()> {
        let began = Instant::now();
        let ping = ["node", "ping", machine.name().as_str()];
        while let Err(error) = self.gpuaas::<serde_json::Value>(&ping) {
            if began.elapsed() > RECONNECT_MAX {
                return Err(error).context("the agent did not reconnect");
            }
            std::thread::sleep(RECONNECT_MAX / 100);
        }
        let shown: Shown = self.gpuaas(&["node", "show", machine.name().as_str()])?;
        ensure!(shown.state == "active", "the node is {}", shown.state);
        Ok(())
    }
}

//! A control plane next to the lab: `gpuaas server` on this machine, which nodes reach at the lab's gateway, and commands against it.
//!
//! Guarantees: its database lies in the lab's folder and its process belongs to the lab, so both are removed with the lab; dropping the
//! handle kills the process earlier. After a kill and restart it has the same database and the same addresses. Its log is kept in the
//! scenario's evidence folder.
//!
//! Deliberately absent: what tests do with it. `machines.rs` enrolls nodes, `operations.rs` changes workloads, `following.rs` waits for
//! results, and `cluster.rs` uses the deployed clusters.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    net::Ipv4Addr,
    os::unix::{fs::OpenOptionsExt, net::UnixDatagram},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use aws_lc_rs::digest::{SHA256, digest};
use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_api_types::{CreatedToken, Project};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    command_output::CommandOutput,
    parts::{Part, Prepared},
};
use crate::{inventory, node::Lab, place};

/// File of a release that lists its digests.
const SUMS: &str = "sha256sum-amd64.txt";

/// The project that owns everything in the tests.
pub(crate) const PROJECT: &str = "lab";
/// File with the administrator's token, in the control plane's folder.
pub(super) const ADMIN_TOKEN: &str = "lab.token";
/// API port; nodes use the next port.
const PORT: u16 = 7443;
/// Longest start.
const START_MAX: Duration = Duration::from_secs(60);
/// Interval at which a start checks that the process still runs.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A control plane that runs or was killed.
pub(crate) struct ControlPlane {
    process: Option<Child>,
    programs: Utf8PathBuf,
    packages: Utf8PathBuf,
    kubectl: Option<Utf8PathBuf>,
    gateway: Ipv4Addr,
    folder: Utf8PathBuf,
    evidence: Utf8PathBuf,
    /// Token of the administrator, once it exists.
    token: Option<String>,
}

impl ControlPlane {
    /// Starts a control plane with an empty database and creates [`PROJECT`]. Needs [`Part::Programs`] and [`Part::Packages`].
    pub(crate) fn start(lab: &Lab, given: &Prepared) -> anyhow::Result<Self> {
        let folder = place::control_plane();
        fs::create_dir(&folder).with_context(|| folder.to_string())?;
        let mut control_plane = Self {
            process: None,
            programs: given.path(Part::Programs)?.to_owned(),
            packages: given.path(Part::Packages)?.to_owned(),
            kubectl: given.path(Part::Kubectl).ok().map(Utf8Path::to_owned),
            gateway: lab.gateway(),
            folder,
            evidence: given.evidence().to_owned(),
            token: None,
        };
        control_plane.restart()?;
        control_plane.exchange_one_time_admin()?;
        control_plane.gpuaas::<Project>(&["project", "create", PROJECT])?;
        Ok(control_plane)
    }

    /// Exchanges the one-time token in the data directory for the first administrator's token.
    fn exchange_one_time_admin(&mut self) -> anyhow::Result<()> {
        let one_time = self.folder.join("data/admin.token");
        let words = ["bootstrap", "--name", "lab", "--token-file", one_time.as_str()];
        let token = self.gpuaas::<CreatedToken>(&words)?.secret;
        // Kept for people who inspect a lab that `--keep` leaves running.
        let mut file =
            OpenOptions::new().create_new(true).write(true).mode(0o600).open(self.folder.join(ADMIN_TOKEN))?;
        file.write_all(token.as_bytes())?;
        self.token = Some(token);
        Ok(())
    }

    /// Starts it, or kills and restarts it, with its database; returns once it serves.
    pub(crate) fn restart(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        let socket = self.folder.join("notify");
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).context("removing the notify socket");
            }
            _ => {}
        }
        let notices = UnixDatagram::bind(&socket).with_context(|| socket.to_string())?;
        notices.set_read_timeout(Some(POLL_INTERVAL))?;
        let log = OpenOptions::new().append(true).create(true).open(self.log())?;
        let (data, began) = (self.folder.join("data"), Instant::now());
        let mut server = isolated_command(&self.programs.join("gpuaas"), &self.folder);
        server
            .args(["server", "--data-dir", data.as_str(), "--ready-file", self.ready_file().as_str()])
            .args(["--listen", &format!("{}:{PORT}", self.gateway)])
            .args(["--channel-listen", &format!("{}:{}", self.gateway, PORT + 1)])
            .args(["--packages-dir", self.packages.as_str(), "--release-import-dir", "/"])
            .env("NOTIFY_SOCKET", &socket)
            .stdout(log.try_clone()?)
            .stderr(log);
        let process = self.process.insert(server.spawn().context("starting gpuaas server")?);
        let mut notice = [0; 4096];
        loop {
            match notices.recv(&mut notice) {
                Ok(length) if String::from_utf8_lossy(&notice[..length]).lines().any(|line| line == "READY=1") => {
                    return Ok(());
                }
                Err(error) if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Err(error).context("receiving notifications");
                }
                _ => {}
            }
            if let Some(status) = process.try_wait()? {
                bail!("gpuaas server ended with {status}; see its log {}", self.log());
            }
            ensure!(
                began.elapsed() < START_MAX,
                "gpuaas server did not become ready in time; see its log {}",
                self.log()
            );
        }
    }

    /// Kills it with SIGKILL, if it runs.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill().and_then(|()| process.wait()).context("killing gpuaas server")?;
        }
        Ok(())
    }

    /// PID of the server, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// URL of the API.
    pub(crate) fn url(&self) -> String {
        format!("https://{}:{PORT}", self.gateway)
    }

    /// Path of its log, which all its restarts append to.
    pub(crate) fn log(&self) -> Utf8PathBuf {
        self.evidence.join("control-plane.log")
    }

    /// The control plane's folder, which is removed with it.
    pub(super) fn folder(&self) -> &Utf8Path {
        &self.folder
    }

    pub(super) fn kubectl(&self) -> anyhow::Result<&Utf8Path> {
        self.kubectl.as_deref().context("the scenario does not declare the part Kubectl")
    }

    fn ready_file(&self) -> Utf8PathBuf {
        self.folder.join("ready.json")
    }

    /// Returns a `gpuaas` command as administrator in [`PROJECT`] with JSON output.
    pub(super) fn gpuaas_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.plain_command(arguments);
        command.args(["--output", "json"]);
        command
    }

    /// Returns the command with the output for people.
    fn plain_command(&self, arguments: &[&str]) -> Command {
        let mut command = isolated_command(&self.programs.join("gpuaas"), &self.folder);
        command
            .args(arguments)
            .env("GPUAAS_READY_FILE", self.ready_file())
            .envs(self.token.as_ref().map(|token| ("GPUAAS_TOKEN", token)))
            .env("GPUAAS_SERVER", self.url())
            .env("GPUAAS_PROJECT", PROJECT);
        command
    }

    /// Runs a `gpuaas` command, whatever its outcome.
    pub(super) fn run(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        output_of(arguments, &mut self.gpuaas_command(arguments))
    }

    /// Runs a `gpuaas` command that must succeed; returns its parsed output.
    pub(crate) fn gpuaas<T: DeserializeOwned>(&self, arguments: &[&str]) -> anyhow::Result<T> {
        let output = self.run(arguments)?;
        ensure!(output.status.success(), describe_output(arguments, &output));
        parse_output(arguments, &output)
    }

    /// Runs a `gpuaas` command that must be refused. Returns what a person reads.
    pub(crate) fn refused(&self, arguments: &[&str]) -> anyhow::Result<CommandOutput> {
        let output = output_of(arguments, &mut self.plain_command(arguments))?;
        ensure!(!output.status.success(), "gpuaas {} was not refused", arguments.join(" "));
        Ok(output.into())
    }

    /// Imports a folder with the layout of an RKE2 release, by the digest of its checksum file.
    pub(crate) fn import(&self, release: &Utf8Path) -> anyhow::Result<()> {
        let sums = release.join(SUMS);
        let sums_sha256 = hex::encode(digest(&SHA256, &fs::read(&sums).with_context(|| sums.to_string())?));
        let words = ["artifact", "import", "rke2", release.as_str(), "--sums-sha256", &sums_sha256];
        self.gpuaas::<Value>(&words).map(drop)
    }
}

fn output_of(arguments: &[&str], command: &mut Command) -> anyhow::Result<Output> {
    command.output().with_context(|| format!("running gpuaas {}", arguments.join(" ")))
}

/// Returns a command without the environment variables that select a control plane, a cluster or a proxy.
pub(super) fn isolated_command(program: &Utf8Path, home: &Utf8Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().to_ascii_lowercase();
        let ours = text.starts_with("gpuaas_") && name != inventory::MARK;
        if ours || text.ends_with("_proxy") || text == "kubeconfig" {
            command.env_remove(&name);
        }
    }
    command.env("HOME", home).env_remove("XDG_CONFIG_HOME").stdin(Stdio::null());
    command
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Parses the JSON output of a command.
pub(super) fn parse_output<T: DeserializeOwned>(arguments: &[&str], output: &Output) -> anyhow::Result<T> {
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("parsing the output of gpuaas {}", arguments.join(" ")))
}

/// Describes how a command ended, with all its output.
pub(super) fn describe_output(arguments: &[&str], output: &Output) -> String {
    let (stderr, stdout) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    format!("gpuaas {} ended with {}:\n{stderr}{stdout}", arguments.join(" "), output.status)
}

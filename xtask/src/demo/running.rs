//! The running demo: the process `gpuaas dev`, and the commands that the demo runs against it.

use std::{
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use camino::{Utf8Path, Utf8PathBuf};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{disk, report::Report};

/// The project that owns everything.
pub(super) const PROJECT: &str = "demo";
/// Name of the workload.
pub(super) const WORKLOAD: &str = "train";
/// Longest wait for anything that takes seconds.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(120);
/// Number of no-op tasks whose round trip is measured.
const PINGS: usize = 200;

/// A running demo.
pub(super) struct RunningDemo {
    dev: Child,
    program: Utf8PathBuf,
    kubectl: Utf8PathBuf,
    ready_after: Duration,
    pub(super) folder: Utf8PathBuf,
    pub(super) ready_file: Utf8PathBuf,
    _database: Option<Database>,
}

/// A PostgreSQL server for the demo; removed on drop.
pub(super) struct Database {
    _server: gpuaas_postgres_server::Server,
    url: String,
}

impl Database {
    pub(super) fn start() -> anyhow::Result<Self> {
        let server = gpuaas_postgres_server::Server::start(&[], &[]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let url = runtime.block_on(server.fresh_database());
        Ok(Self { _server: server, url })
    }
}

impl RunningDemo {
    pub(super) fn start(
        folder: &Utf8Path,
        programs: &Utf8Path,
        kubectl: Utf8PathBuf,
        database: Option<Database>,
        (nodes, replicas): (u8, u8),
        release_key: &str,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("creating {folder}"))?;
        let (program, ready_file) = (programs.join("gpuaas"), folder.join("ready.json"));
        let began = Instant::now();
        let dev = Command::new(&program)
            .args(["dev", "--nodes", &nodes.to_string(), "--data-dir", folder.as_str(), "--listen", "127.0.0.1:0"])
            .args(["--ready-file", ready_file.as_str()])
            .args(["--replicas", &replicas.to_string()])
            .env_remove("GPUAAS_READY_FILE")
            // Imports as in production: the release needs the signature of a trusted key.
            .env("GPUAAS_RELEASE_TRUSTED_KEYS", release_key)
            .env("GPUAAS_ALLOW_UNVERIFIED_RELEASES", "false")
            .envs(database.as_ref().map(|database| ("GPUAAS_STORE_URL", &database.url)))
            .stdin(Stdio::null())
            .spawn()
            .context("starting gpuaas dev")?;
        let ready_after = Duration::ZERO;
        let folder = folder.to_owned();
        let mut running = Self { dev, program, kubectl, ready_after, folder, ready_file, _database: database };
        while !running.ready_file.exists() {
            if let Some(status) = running.dev.try_wait()? {
                bail!("gpuaas dev ended: {status}");
            }
            anyhow::ensure!(began.elapsed() < WAIT_MAX, "gpuaas dev did not become ready in time");
            std::thread::sleep(Duration::from_millis(5));
        }
        running.ready_after = began.elapsed();
        Ok(running)
    }

    /// Runs a `gpuaas` command and parses its JSON output.
    pub(super) fn gpuaas(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        self.gpuaas_with(arguments, &[("GPUAAS_PROJECT", PROJECT)])
    }

    /// Runs a `gpuaas` command that chooses no project.
    pub(super) fn gpuaas_of_platform(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        self.gpuaas_with(arguments, &[])
    }

    /// Compares the workload's desired state with what is observed. The exit status is 1 if there are differences, and 7 if a node or the
    /// cluster could not be asked.
    pub(super) fn diff(&self) -> anyhow::Result<Value> {
        self.gpuaas_ending(&["workload", "diff", WORKLOAD], &[("GPUAAS_PROJECT", PROJECT)], &[0, 1, 7])
    }

    /// Issues a link that signs a browser in.
    pub(super) fn sign_in_link(&self) -> anyhow::Result<String> {
        let link = self.gpuaas_of_platform(&["login", "--browser"])?;
        link["url"].as_str().map(str::to_owned).context("no sign-in link was issued")
    }

    fn gpuaas_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> anyhow::Result<Value> {
        self.gpuaas_ending(arguments, environment, &[0])
    }

    /// Runs a `gpuaas` command that must end with one of these exit statuses, and parses its JSON output.
    fn gpuaas_ending(
        &self,
        arguments: &[&str],
        environment: &[(&str, &str)],
        statuses: &[i32],
    ) -> anyhow::Result<Value> {
        let output = Command::new(&self.program)
            .args(arguments)
            .args(["--output", "json"])
            .env("GPUAAS_READY_FILE", &self.ready_file)
            .env_remove("GPUAAS_PROJECT")
            .envs(environment.iter().copied())
            .env_remove("GPUAAS_TOKEN")
            .output()
            .with_context(|| format!("running gpuaas {}", arguments.join(" ")))?;
        if !output.status.code().is_some_and(|status| statuses.contains(&status)) {
            let (stderr, stdout) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
            bail!("gpuaas {} ended with {}:\n{stderr}{stdout}", arguments.join(" "), output.status);
        }
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("gpuaas {} printed no JSON", arguments.join(" ")))
    }

    /// Runs the genuine kubectl with the delivered kubeconfig.
    pub(super) fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = Command::new(&self.kubectl)
            .args(arguments)
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .env("HOME", &self.folder)
            .output()
            .context("running kubectl")?;
        anyhow::ensure!(output.status.success(), "kubectl: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub(super) fn kubeconfig(&self) -> Utf8PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Root folder of a node's files.
    pub(super) fn root(&self, node: &str) -> Utf8PathBuf {
        self.folder.join("nodes").join(node)
    }

    /// Runs the `systemctl` of a node's sandbox. Does not check its exit status, which for `is-active` and `is-enabled` is the answer.
    pub(super) fn systemctl(&self, node: &str, arguments: &[&str]) -> anyhow::Result<Output> {
        let root = self.root(node);
        Command::new(root.join(".sandbox/bin/systemctl"))
            .args(arguments)
            .env("GPUAAS_SANDBOX_ROOT", &root)
            .env("GPUAAS_SANDBOX_ADDRESS", "127.0.0.1")
            .env("GPUAAS_SANDBOX_HOSTNAME", node)
            .env("GPUAAS_SANDBOX_SOCKET", root.join("run/sandbox-init.sock"))
            .output()
            .with_context(|| format!("running systemctl {} on {node}", arguments.join(" ")))
    }

    /// Runs the `systemctl` of a node's sandbox, requires success, and returns what it printed.
    pub(super) fn systemctl_ok(&self, node: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.systemctl(node, arguments)?;
        anyhow::ensure!(
            output.status.success(),
            "systemctl {} on {node}: {} {}",
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub(super) fn nodes(&self) -> anyhow::Result<Vec<String>> {
        let nodes = self.gpuaas(&["node", "list"])?;
        Ok(strings(&nodes, "name"))
    }

    pub(super) fn await_allocations(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        while strings(&self.gpuaas(&["allocation", "list"])?, "state").iter().any(|state| state != "active") {
            anyhow::ensure!(began.elapsed() < WAIT_MAX, "the allocations did not become active in time");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    pub(super) fn fetch_kubeconfig(&self) -> anyhow::Result<()> {
        let granted = self.gpuaas(&["workload", "kubeconfig", WORKLOAD])?;
        let text = granted.get("kubeconfig").and_then(Value::as_str).context("no kubeconfig was delivered")?;
        let path = self.kubeconfig();
        // No other user may read the file even for a moment: it gets its mode while it is empty.
        std::fs::write(&path, "")
            .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)))?;
        std::fs::write(&path, text).with_context(|| format!("writing {path}"))
    }

    /// Adds to the report: round trips of no-op tasks, memory, the disk's sync time, and the time until `gpuaas dev` was ready.
    pub(super) fn measure(&self, report: &mut Report) -> anyhow::Result<()> {
        let pings = self.gpuaas(&["node", "ping", "demo-3", "--count", &PINGS.to_string()])?;
        let trips = pings.as_array().into_iter().flatten().filter_map(|ping| ping.get("round_trip_us")?.as_u64());
        report.take_dispatch(trips.collect());
        (report.agent_rss_bytes, report.server_rss_bytes) = self.memory()?;
        report.fdatasync_p50_ms = disk::fdatasync_p50_us(&self.folder)? as f64 / 1_000.0;
        report.dev_ready_ms = u64::try_from(self.ready_after.as_millis()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Resident bytes of the largest agent and of the control plane.
    pub(super) fn memory(&self) -> anyhow::Result<(u64, u64)> {
        let (mut agent, mut server) = (0, 0);
        for process in self.processes()? {
            if process.command.contains("gpuaas-agent") {
                agent = process.rss_bytes.max(agent);
            } else if process.command.contains("gpuaas server ") {
                server = process.rss_bytes;
            }
        }
        Ok((agent, server))
    }

    /// Processes whose command or environment names the demo's folder, except this one.
    pub(super) fn processes(&self) -> anyhow::Result<Vec<Process>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
            let (command, environment) = (read("cmdline"), read("environ"));
            let marked = [&command, &environment]
                .iter()
                .any(|text| String::from_utf8_lossy(text).contains(self.folder.as_str()));
            if pid != std::process::id() && marked && !command.is_empty() {
                let pages: u64 =
                    String::from_utf8_lossy(&read("statm")).split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
                let command = String::from_utf8_lossy(&command).replace('\0', " ");
                found.push(Process { pid, command, rss_bytes: pages * rustix::param::page_size() as u64 });
            }
        }
        Ok(found)
    }

    /// Ends `gpuaas dev` with SIGTERM and waits.
    pub(super) fn stop(&mut self) -> anyhow::Result<()> {
        let pid = Pid::from_child(&self.dev);
        kill_process(pid, Signal::TERM).context("ending gpuaas dev")?;
        self.dev.wait().context("waiting for gpuaas dev")?;
        Ok(())
    }

    /// Waits for the end of `gpuaas dev`.
    pub(super) fn wait(&mut self) -> anyhow::Result<()> {
        self.dev.wait().context("waiting for gpuaas dev")?;
        Ok(())
    }
}

impl Drop for RunningDemo {
    fn drop(&mut self) {
        if matches!(self.dev.try_wait(), Ok(None)) {
            // A demo that fails halfway must not leave processes running.
            let _ = self.stop();
        }
        // Pods outlive their nodes. Only programs from the nodes' folders are killed: a person's shell can name the demo's folder, too, if
        // its environment has the path of the kubeconfig.
        let of_nodes = self.folder.join("nodes");
        let processes = self.processes().unwrap_or_default();
        for process in processes.iter().filter(|process| process.command.starts_with(of_nodes.as_str())) {
            if let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// A process of the demo.
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) command: String,
    pub(super) rss_bytes: u64,
}

fn strings(list: &Value, field: &str) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|item| Some(item.get(field)?.as_str()?.to_owned())).collect()
}

//! A control plane to measure: `gpuaas dev` on SQLite or on a separate PostgreSQL server, in a folder that is removed at the end.

use std::{
    fs::{self, File},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_client::Client;
use gpuaas_postgres_server::Server;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use super::usage::{self, Counts, Sample, Usage};
use crate::{demo::Store, shell};

/// Longest wait until `gpuaas dev` is ready; its own timeout is shorter.
const READY_TIMEOUT: Duration = Duration::from_secs(300);
/// Requests per second: more than a client on the same machine can send.
const RATE: &str = "1000000";
/// Variables that raise the API's rate limits.
const RATES: [&str; 3] = ["GPUAAS_REQUESTS_PER_TOKEN", "GPUAAS_REQUESTS_PER_PROJECT", "GPUAAS_REQUESTS_PER_ADDRESS"];

/// Conditions that every benchmark prints.
pub(super) const SETTINGS: &str = "GPUAAS_REQUESTS_PER_TOKEN, _PROJECT and _ADDRESS are 1,000,000: rate limits are not measured. \
     Client, nodes and database share the machine.";

/// A folder and, for PostgreSQL, a database server; both are removed on drop.
pub(super) struct Place {
    folder: tempfile::TempDir,
    database: Option<Database>,
    settings: Vec<(&'static str, &'static str)>,
}

struct Database {
    _server: Server,
    url: String,
    /// PID of the process that starts all others of the server.
    postmaster: i32,
}

impl Place {
    /// Creates an empty place.
    pub(super) async fn fresh(store: Store) -> anyhow::Result<Self> {
        fs::create_dir_all(shell::target())?;
        let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(shell::target())?;
        let database = match store {
            Store::Sqlite => None,
            Store::Postgres => Some(Database::start().await?),
        };
        Ok(Self { folder, database, settings: Vec::new() })
    }

    /// Sets environment variables for the control planes that start here.
    pub(super) fn with_settings(self, settings: impl Into<Vec<(&'static str, &'static str)>>) -> Self {
        Self { settings: settings.into(), ..self }
    }

    /// URL of the database, whether or not a control plane is running.
    pub(super) fn url(&self) -> anyhow::Result<String> {
        let file = || anyhow::Ok(format!("sqlite://{}", self.folder_of_rows()?.join("gpuaas.db")));
        self.database.as_ref().map_or_else(file, |database| Ok(database.url.clone()))
    }

    /// Folder of the SQLite database.
    pub(super) fn folder_of_rows(&self) -> anyhow::Result<Utf8PathBuf> {
        Ok(self.data()?.join("server"))
    }

    /// Root folder of a sandbox node.
    pub(super) fn folder_of_node(&self, node: &str) -> anyhow::Result<Utf8PathBuf> {
        Ok(self.data()?.join("nodes").join(node))
    }

    /// Folder of the control plane's files.
    fn data(&self) -> anyhow::Result<Utf8PathBuf> {
        let folder = Utf8PathBuf::from_path_buf(self.folder.path().to_owned()).ok().context("the path is not UTF-8")?;
        Ok(folder.join("data"))
    }
}

impl Database {
    async fn start() -> anyhow::Result<Self> {
        let server = tokio::task::block_in_place(|| Server::start(&[], &[]));
        let url = server.fresh_database().await;
        let socket = url.split_once("host=").and_then(|(_, rest)| rest.split('&').next());
        let pid_file =
            Utf8Path::new(socket.context("the database URL names no socket folder")?).join("data/postmaster.pid");
        let text = fs::read_to_string(&pid_file).with_context(|| format!("reading {pid_file}"))?;
        let postmaster =
            text.lines().next().and_then(|pid| pid.parse().ok()).context("postmaster.pid contains no PID")?;
        Ok(Self { _server: server, url, postmaster })
    }
}

/// A running `gpuaas dev`; ends when dropped.
pub(super) struct ControlPlane {
    dev: Child,
    ready: Ready,
    postmaster: Option<i32>,
    /// Time from the start of `gpuaas dev` until every node is active and connected.
    pub(super) ready_after: Duration,
}

#[derive(Deserialize)]
struct Ready {
    url: String,
    ca_file: Utf8PathBuf,
    token: String,
    nodes: Vec<ReadyNode>,
    replicas: Vec<ReadyReplica>,
}

#[derive(Deserialize)]
struct ReadyNode {
    name: String,
}

#[derive(Deserialize)]
struct ReadyReplica {
    pid: i32,
}

impl ControlPlane {
    /// Starts a control plane with `nodes` sandbox nodes on the data that an earlier one left, and waits until all nodes are ready.
    pub(super) async fn start(programs: &Utf8Path, place: &Place, nodes: u8) -> anyhow::Result<Self> {
        let data = place.data()?;
        fs::create_dir_all(&data)?;
        let (ready_file, log) = (data.join("ready.json"), data.join("dev.log"));
        let _ = fs::remove_file(&ready_file);
        let began = Instant::now();
        let mut dev = Command::new(programs.join("gpuaas"))
            .args(["dev", "--nodes", &nodes.to_string(), "--listen", "127.0.0.1:0"])
            .args(["--data-dir", data.as_str(), "--ready-file", ready_file.as_str()])
            .env_remove("GPUAAS_READY_FILE")
            .envs(RATES.map(|setting| (setting, RATE)))
            .envs(place.settings.iter().copied())
            .envs(place.database.as_ref().map(|database| ("GPUAAS_STORE_URL", &database.url)))
            .stdin(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .context("starting gpuaas dev")?;
        if let Err(error) = wait_ready(&ready_file, &mut dev, began).await {
            end(&mut dev);
            let text = fs::read_to_string(&log).unwrap_or_default();
            let last: Vec<&str> = text.lines().rev().take(10).collect();
            bail!("{error}:\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
        let ready_after = began.elapsed();
        let ready = serde_json::from_slice(&fs::read(&ready_file)?).context("reading the ready file")?;
        let postmaster = place.database.as_ref().map(|database| database.postmaster);
        Ok(Self { dev, ready, postmaster, ready_after })
    }

    /// Returns a client with a platform admin's token.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        self.client_with(&self.ready.token)
    }

    /// Returns a client with another token.
    pub(super) fn client_with(&self, token: &str) -> anyhow::Result<Client> {
        Ok(Client::new(&self.ready.url, &fs::read(&self.ready.ca_file)?, token)?)
    }

    /// Names of the sandbox nodes.
    pub(super) fn nodes(&self) -> Vec<String> {
        self.ready.nodes.iter().map(|node| node.name.clone()).collect()
    }

    /// PID of the server.
    pub(super) fn pid(&self) -> anyhow::Result<i32> {
        Ok(self.ready.replicas.first().context("the ready file lists no process of the control plane")?.pid)
    }

    /// Resources that the control plane and its database have used before a measurement.
    pub(super) async fn begin(&self) -> anyhow::Result<Sample> {
        let counts = self.counts().await?;
        let (server, database) = self.usage()?;
        Ok(Sample { server, database, counts })
    }

    /// Resources used since `before`. Of the cost of sampling, only its SQL statements are included.
    pub(super) async fn used_since(&self, before: Sample) -> anyhow::Result<Sample> {
        let (server, database) = self.usage()?;
        Ok(Sample { server, database, counts: self.counts().await? } - before)
    }

    async fn counts(&self) -> anyhow::Result<Counts> {
        Counts::from_metrics(&self.client()?.read_text("/metrics").await?)
    }

    fn usage(&self) -> anyhow::Result<(Usage, Usage)> {
        let database = self.postmaster.map(usage::of_family).transpose()?;
        Ok((usage::of_process(self.pid()?)?, database.unwrap_or_default()))
    }

    /// Ends it with SIGTERM and waits.
    pub(super) fn stop(mut self) {
        end(&mut self.dev);
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        end(&mut self.dev);
    }
}

async fn wait_ready(ready_file: &Utf8Path, dev: &mut Child, began: Instant) -> anyhow::Result<()> {
    while !ready_file.exists() {
        if let Some(status) = dev.try_wait()? {
            bail!("gpuaas dev ended ({status})");
        }
        ensure!(began.elapsed() < READY_TIMEOUT, "gpuaas dev did not become ready in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

fn end(dev: &mut Child) {
    if matches!(dev.try_wait(), Ok(None)) {
        // Fails if the process has ended meanwhile, which is fine.
        let _ = kill_process(Pid::from_child(dev), Signal::TERM);
        let _ = dev.wait();
    }
}

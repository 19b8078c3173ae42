//! A `gpuaas dev` for tests of its API.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use camino::Utf8Path;
use gpuaas_client::Client;
use serde_json::Value;

/// Longest wait until it serves.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// Requests per second: more than one client on the same machine can send.
const RATE: &str = "1000000";

/// A running `gpuaas dev` with two nodes; ends when dropped.
pub(crate) struct Server {
    dev: Child,
    pub(crate) url: String,
    pub(crate) ca_file: String,
    pub(crate) token: String,
}

impl Server {
    /// Starts it in an empty folder. `environment` has further settings.
    pub(crate) fn start(program: &Utf8Path, folder: &Utf8Path, environment: &[(&str, &str)]) -> anyhow::Result<Self> {
        let ready_file = folder.join("ready.json");
        let log = fs::File::create(folder.join("dev.log")).context("creating the log")?;
        let mut dev = Command::new(program)
            .args(["dev", "--nodes", "2", "--listen", "127.0.0.1:0"])
            .args(["--data-dir", folder.join("data").as_str(), "--ready-file", ready_file.as_str()])
            .envs([("GPUAAS_REQUESTS_PER_TOKEN", RATE), ("GPUAAS_REQUESTS_PER_ADDRESS", RATE)])
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .context("starting gpuaas dev")?;
        let began = Instant::now();
        while !ready_file.exists() {
            if let Some(status) = dev.try_wait()? {
                bail!("gpuaas dev ended: {status}");
            }
            ensure!(began.elapsed() < READY_TIMEOUT, "gpuaas dev did not become ready in time");
            std::thread::sleep(Duration::from_millis(20));
        }
        let ready: Value = serde_json::from_slice(&fs::read(&ready_file)?)?;
        let text = |name: &str| {
            ready[name].as_str().map(str::to_owned).with_context(|| format!("the ready file has no {name}"))
        };
        Ok(Self { dev, url: text("url")?, ca_file: text("ca_file")?, token: text("token")? })
    }

    /// Reports whether the token is still valid.
    pub(crate) fn is_token_valid(&self) -> bool {
        let request = || -> anyhow::Result<()> {
            let client = self.client()?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(client.whoami())?;
            Ok(())
        };
        request().is_ok()
    }

    /// Returns a client with the administrator's token.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::new(&self.url, &fs::read(&self.ca_file)?, &self.token)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The other processes end with it, because their lifelines do.
        let _ = self.dev.kill();
        let _ = self.dev.wait();
    }
}

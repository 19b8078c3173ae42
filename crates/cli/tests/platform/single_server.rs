//! One process of `gpuaas server` on a data directory that a test has prepared: it becomes ready or refuses with a code.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use gpuaas_client::Client;
use serde_json::Value;

use crate::{
    first_admin::{exchange_token, one_time_admin},
    world::{GPUAAS, WAIT_MAX},
};

/// A running control plane; dropping it kills the process.
pub(crate) struct SingleServer {
    process: Child,
    data_dir: PathBuf,
    log: PathBuf,
    /// The content of its ready file.
    pub(crate) ready: Value,
}

/// The failed start of a control plane.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: Option<i32>,
    /// The stable error code.
    pub(crate) code: String,
    /// The standard error of the process.
    pub(crate) stderr: String,
}

/// The arguments and environment of a start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Start<'a> {
    pub(crate) arguments: &'a [&'a str],
    pub(crate) environment: Vec<(&'static str, String)>,
}

impl Start<'_> {
    /// Starts a control plane and returns when it is ready or has ended.
    pub(crate) fn on(&self, data_dir: &Path) -> Result<SingleServer, Refusal> {
        let (mut process, files) = self.spawn(data_dir);
        let began = Instant::now();
        while !files.ready.exists() {
            let log_text = || std::fs::read_to_string(&files.log).unwrap_or_default();
            if let Some(ended) = process.try_wait().expect("a child") {
                return Err(Refusal { status: ended.code(), code: code(&log_text()), stderr: log_text() });
            }
            if began.elapsed() > WAIT_MAX {
                let _ = process.kill();
                panic!("gpuaas server neither serves nor exits; its log:\n{}", log_text());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let ready = serde_json::from_slice(&std::fs::read(&files.ready).expect("ready")).expect("JSON");
        Ok(SingleServer { process, data_dir: data_dir.to_owned(), log: files.log, ready })
    }

    /// Starts a control plane and kills it when it reaches `point`.
    pub(crate) fn killed_at(&self, data_dir: &Path, point: &str) {
        let points = sibling_path(data_dir, "points");
        std::fs::create_dir_all(&points).expect("made");
        std::fs::write(points.join(point), "").expect("armed");
        let environment = [self.environment.clone(), vec![(gpuaas_crash_points::FOLDER, text(&points))]].concat();
        let (mut process, files) = Start { environment, ..self.clone() }.spawn(data_dir);
        let began = Instant::now();
        while !points.join(format!("{point}.reached")).exists() {
            let log_text = || std::fs::read_to_string(&files.log).unwrap_or_default();
            let ended = process.try_wait().expect("a child");
            assert!(ended.is_none() && began.elapsed() < WAIT_MAX, "{point}: {ended:?}\n{}", log_text());
            std::thread::sleep(Duration::from_millis(2));
        }
        process.kill().expect("killed");
        process.wait().expect("ended");
    }

    /// Runs a subcommand of `gpuaas server`.
    pub(crate) fn verb(&self, data_dir: &Path, verb: &[&str]) -> Output {
        let mut command = Command::new(GPUAAS);
        command.arg("server").args(["--data-dir".as_ref(), data_dir.as_os_str()]).args(verb);
        command.envs(self.environment.iter().map(|(name, value)| (name, value))).output().expect("gpuaas runs")
    }

    fn spawn(&self, data_dir: &Path) -> (Child, Files) {
        let files = Files { ready: sibling_path(data_dir, "ready.json"), log: sibling_path(data_dir, "log") };
        let _ = std::fs::remove_file(&files.ready);
        let log = std::fs::File::create(&files.log).expect("a log");
        let mut command = Command::new(GPUAAS);
        command.args(["server", "--lifeline", "--listen", "127.0.0.1:0", "--channel-listen", "127.0.0.1:0"]);
        command.args(["--replica-listen", "127.0.0.1:0"]);
        command.args(["--data-dir".as_ref(), data_dir.as_os_str(), "--ready-file".as_ref(), files.ready.as_os_str()]);
        command.args(self.arguments).env("GPUAAS_RELEASE_IMPORT_DIR", "/");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let process = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).spawn();
        (process.expect("gpuaas server starts"), files)
    }
}

struct Files {
    ready: PathBuf,
    log: PathBuf,
}

impl SingleServer {
    /// Exchanges the one-time token for the first administrator's token, and returns it.
    pub(crate) async fn first_admin(&self) -> String {
        exchange_token(&self.client(&one_time_admin(&self.data_dir))).await.expect("exchanged")
    }

    pub(crate) fn client(&self, token: &str) -> Client {
        let authority = std::fs::read(self.ready["ca_file"].as_str().expect("a path")).expect("the authority");
        Client::new(self.ready["url"].as_str().expect("a URL"), &authority, token).expect("a client")
    }

    /// Returns its log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Shuts it down in order, which writes the whole log of the database back to the database file.
    pub(crate) fn end(mut self) {
        drop(self.process.stdin.take());
        let began = Instant::now();
        while self.process.try_wait().expect("a child").is_none() {
            assert!(began.elapsed() < WAIT_MAX, "gpuaas server does not exit");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for SingleServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the stable code of the last error page that `stderr` names; empty if it names none.
pub(crate) fn code(stderr: &str) -> String {
    let page = stderr.rsplit_once("see gpuaas explain ").and_then(|(_, rest)| rest.split_once(' '));
    page.map(|(code, _)| code.to_owned()).unwrap_or_default()
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("a text").to_owned()
}

/// Returns a path next to the data directory, with this suffix.
fn sibling_path(data_dir: &Path, suffix: &str) -> PathBuf {
    data_dir.with_extension(suffix)
}

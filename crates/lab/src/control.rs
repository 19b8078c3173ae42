//! The control socket of a node's supervisor: requests and conditions as lines of JSON. Every node has its own socket.
//!
//! Guarantees: watchers receive every change at once and a line at least every [`BEAT`], so a client notices a dead supervisor.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, unix::OwnedWriteHalf},
    sync::{mpsc, watch},
};

use super::{name::NodeName, place};

/// Interval at which a supervisor repeats an unchanged condition.
const BEAT: Duration = Duration::from_secs(5);
/// Silence after which a client takes the supervisor for dead.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Power state of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Power {
    /// Off, with the reason.
    Off(String),
    /// Booting.
    Booting,
    /// Booted.
    On,
}

/// Condition of a node, as its supervisor reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Condition {
    /// Power state.
    pub(crate) power: Power,
    /// Number of boots begun.
    pub(crate) boots: u32,
    /// PID of the node's init on this machine, once known.
    pub(crate) leader: Option<i32>,
    /// Duration of the last boot in milliseconds, once it has finished.
    pub(crate) boot_ms: Option<u64>,
}

impl Condition {
    /// The power state as text for people.
    pub(crate) fn describe(&self) -> String {
        match &self.power {
            Power::Off(why) => format!("off ({why})"),
            Power::Booting => "booting".to_owned(),
            Power::On => "on".to_owned(),
        }
    }
}

/// Request to a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// Send the node's condition now and at every change.
    Watch,
    /// Boot the node if it is off.
    Start,
    /// Kill the node, as a power cut does.
    Cut,
}

/// Path of the socket on which a node's supervisor listens.
pub(super) fn socket_of(node: &NodeName) -> Utf8PathBuf {
    place::run_of(node).join("control")
}

/// Serves clients until the listener fails.
pub(super) async fn serve(
    listener: UnixListener,
    condition: watch::Receiver<Condition>,
    requests: mpsc::Sender<Request>,
) -> std::io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let (condition, requests) = (condition.clone(), requests.clone());
        tokio::spawn(async move {
            let (read, mut write) = stream.into_split();
            let mut read = tokio::io::BufReader::new(read).take(1 << 10);
            let mut line = String::new();
            let request = match read.read_line(&mut line).await {
                Ok(1..) => serde_json::from_str(&line).ok(),
                _ => None,
            };
            match request {
                Some(Request::Watch) => {
                    tokio::select! {
                        // Stop when the client closes its end.
                        biased;
                        _ = read.read_line(&mut line) => {}
                        _ = send_conditions(&mut write, condition) => {}
                    }
                }
                Some(request) => {
                    let accepted = requests.send(request).await;
                    // Sends no answer if the supervisor no longer takes requests.
                    let _ = if accepted.is_ok() { send_line(&mut write, &request).await } else { Ok(()) };
                }
                None => {}
            }
        });
    }
}

async fn send_conditions(write: &mut OwnedWriteHalf, mut condition: watch::Receiver<Condition>) -> std::io::Result<()> {
    loop {
        let now = condition.borrow_and_update().clone();
        send_line(write, &now).await?;
        // After a beat without a change, the loop sends the same condition again.
        if let Ok(Err(_)) = tokio::time::timeout(BEAT, condition.changed()).await {
            return Ok(());
        }
    }
}

async fn send_line(write: &mut OwnedWriteHalf, what: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_string(what)?;
    line.push('\n');
    write.write_all(line.as_bytes()).await
}

/// Client of a node's supervisor.
pub(super) struct Supervisor {
    node: String,
    socket: Utf8PathBuf,
}

impl Supervisor {
    /// Returns the client for a node; the supervisor need not run.
    pub(super) fn of(node: &NodeName) -> Self {
        Self { node: node.to_string(), socket: socket_of(node) }
    }

    /// Reads the node's condition.
    pub(super) fn condition(&self) -> anyhow::Result<Condition> {
        self.watch(SILENCE_MAX, |_| true)
    }

    /// Sends a request and returns once the supervisor has taken it.
    pub(super) fn request(&self, request: Request) -> anyhow::Result<()> {
        let mut line = String::new();
        self.send(request)?.read_line(&mut line).context("reading the supervisor's answer")?;
        ensure!(!line.is_empty(), "the supervisor of {} did not accept the request", self.node);
        Ok(())
    }

    /// Waits for the first condition that `is_done` accepts. Fails if a condition arrives later than `longest` and is not accepted.
    pub(super) fn watch(&self, longest: Duration, is_done: impl Fn(&Condition) -> bool) -> anyhow::Result<Condition> {
        let began = Instant::now();
        let mut lines = self.send(Request::Watch)?;
        loop {
            let mut line = String::new();
            let read = lines
                .read_line(&mut line)
                .with_context(|| format!("the supervisor of {} does not respond", self.node))?;
            ensure!(read > 0, "the supervisor of {} has ended", self.node);
            let condition: Condition = serde_json::from_str(&line).context("parsing the supervisor's message")?;
            if is_done(&condition) {
                return Ok(condition);
            }
            if began.elapsed() > longest {
                bail!("{} is still {} after {} s", self.node, condition.describe(), longest.as_secs());
            }
        }
    }

    fn send(&self, request: Request) -> anyhow::Result<BufReader<UnixStream>> {
        let stream = UnixStream::connect(&self.socket);
        let mut stream = stream.with_context(|| format!("{} has no supervisor", self.node))?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        stream.write_all(format!("{}\n", serde_json::to_string(&request)?).as_bytes())?;
        Ok(BufReader::new(stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchers_receive_every_change_and_requests_are_accepted_before_the_answer() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = Utf8PathBuf::from_path_buf(folder.path().join("control")).expect("the path is UTF-8");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let booting = Condition { power: Power::Booting, boots: 1, leader: None, boot_ms: None };
        let (condition, watched) = watch::channel(booting.clone());
        let (sender, mut requests) = mpsc::channel(1);
        let listener = runtime.block_on(async { UnixListener::bind(&socket) }).expect("a socket");
        runtime.spawn(serve(listener, watched, sender));
        let supervisor = Supervisor { node: "node-1".to_owned(), socket };
        assert_eq!(supervisor.condition().expect("the supervisor answers"), booting);
        supervisor.request(Request::Cut).expect("the request is accepted");
        assert_eq!(requests.try_recv(), Ok(Request::Cut));
        let changed =
            std::thread::spawn(move || supervisor.watch(Duration::from_secs(60), |now| now.power == Power::On));
        condition.send_modify(|now| (now.power, now.leader) = (Power::On, Some(7)));
        assert_eq!(changed.join().expect("the thread ends").expect("the change is received").leader, Some(7));
    }

    #[test]
    fn missing_supervisor_is_named() {
        let supervisor = Supervisor { node: "node-1".to_owned(), socket: "/run/gpuaas-lab-never".into() };
        assert!(
            supervisor.condition().expect_err("no supervisor runs").to_string().contains("node-1 has no supervisor")
        );
    }
}

//! What is said to a node's supervisor, and what it says of the node: lines of JSON over a socket of the node's own.
//!
//! Guarantees: who watches is told of every change at once, and hears something at least every [`BEAT`], so that a supervisor that is gone is not
//! waited for.

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

/// A supervisor repeats itself this often.
const BEAT: Duration = Duration::from_secs(5);
/// Silence after which it counts as gone.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Whether a node runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Power {
    /// It does not, and why.
    Off(String),
    /// It boots.
    Booting,
    /// It has booted.
    On,
}

/// What a supervisor says of its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Condition {
    /// Whether it runs.
    pub(crate) power: Power,
    /// Boots that were begun.
    pub(crate) boots: u32,
    /// Its first process, as this machine numbers it.
    pub(crate) leader: Option<i32>,
    /// Milliseconds from the beginning of the last boot until it had booted.
    pub(crate) boot_ms: Option<u64>,
}

impl Condition {
    /// For people.
    pub(crate) fn words(&self) -> String {
        match &self.power {
            Power::Off(why) => format!("off ({why})"),
            Power::Booting => "booting".to_owned(),
            Power::On => "on".to_owned(),
        }
    }
}

/// What may be asked of a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// The node's condition, now and at every change.
    Watch,
    /// Boot the node if it is off.
    Start,
    /// End it as a power cut does.
    Cut,
}

/// Where a supervisor listens.
pub(super) fn socket_of(node: &NodeName) -> Utf8PathBuf {
    place::run_of(node).join("control")
}

/// Answers everybody, until the listener fails.
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
                        // Whoever leaves is told no more.
                        biased;
                        _ = read.read_line(&mut line) => {}
                        _ = tell(&mut write, condition) => {}
                    }
                }
                Some(request) => {
                    let taken = requests.send(request).await;
                    // Nobody is answered for a supervisor that takes nothing any more.
                    let _ = if taken.is_ok() { say(&mut write, &request).await } else { Ok(()) };
                }
                None => {}
            }
        });
    }
}

async fn tell(write: &mut OwnedWriteHalf, mut condition: watch::Receiver<Condition>) -> std::io::Result<()> {
    loop {
        let now = condition.borrow_and_update().clone();
        say(write, &now).await?;
        // A beat without a change is a repetition.
        if let Ok(Err(_)) = tokio::time::timeout(BEAT, condition.changed()).await {
            return Ok(());
        }
    }
}

async fn say(write: &mut OwnedWriteHalf, what: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_string(what)?;
    line.push('\n');
    write.write_all(line.as_bytes()).await
}

/// A node's supervisor, for whoever asks it something.
pub(super) struct Supervisor {
    node: String,
    socket: Utf8PathBuf,
}

impl Supervisor {
    /// That of this node, whether it lives or not.
    pub(super) fn of(node: &NodeName) -> Self {
        Self { node: node.to_string(), socket: socket_of(node) }
    }

    /// The node's condition.
    pub(super) fn condition(&self) -> anyhow::Result<Condition> {
        self.watch(SILENCE_MAX, |_| true)
    }

    /// Asks for a change; it has been taken when this returns.
    pub(super) fn ask(&self, request: Request) -> anyhow::Result<()> {
        let mut line = String::new();
        self.send(request)?.read_line(&mut line).context("the supervisor's answer")?;
        ensure!(!line.is_empty(), "the supervisor of {} did not take it", self.node);
        Ok(())
    }

    /// The first condition that is looked for; an error where none comes within that time.
    pub(super) fn watch(&self, longest: Duration, is_it: impl Fn(&Condition) -> bool) -> anyhow::Result<Condition> {
        let began = Instant::now();
        let mut lines = self.send(Request::Watch)?;
        loop {
            let mut line = String::new();
            let read =
                lines.read_line(&mut line).with_context(|| format!("the supervisor of {} is silent", self.node))?;
            ensure!(read > 0, "the supervisor of {} has ended", self.node);
            let condition: Condition = serde_json::from_str(&line).context("what the supervisor says")?;
            if is_it(&condition) {
                return Ok(condition);
            }
            if began.elapsed() > longest {
                bail!("{} is {} after {} s", self.node, condition.words(), longest.as_secs());
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
    fn who_watches_is_told_of_every_change_and_a_request_is_taken_before_it_is_answered() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = Utf8PathBuf::from_path_buf(folder.path().join("control")).expect("a text");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let booting = Condition { power: Power::Booting, boots: 1, leader: None, boot_ms: None };
        let (condition, watched) = watch::channel(booting.clone());
        let (sender, mut requests) = mpsc::channel(1);
        let listener = runtime.block_on(async { UnixListener::bind(&socket) }).expect("a socket");
        runtime.spawn(serve(listener, watched, sender));
        let supervisor = Supervisor { node: "node-1".to_owned(), socket };
        assert_eq!(supervisor.condition().expect("it answers"), booting);
        supervisor.ask(Request::Cut).expect("it takes it");
        assert_eq!(requests.try_recv(), Ok(Request::Cut));
        let changed =
            std::thread::spawn(move || supervisor.watch(Duration::from_secs(60), |now| now.power == Power::On));
        condition.send_modify(|now| (now.power, now.leader) = (Power::On, Some(7)));
        assert_eq!(changed.join().expect("it ends").expect("it is told").leader, Some(7));
    }

    #[test]
    fn a_supervisor_that_is_gone_is_named() {
        let supervisor = Supervisor { node: "node-1".to_owned(), socket: "/run/gpuaas-lab-never".into() };
        assert!(supervisor.condition().expect_err("nobody is there").to_string().contains("node-1 has no supervisor"));
    }
}

//! Waiting for changes that a control plane reports by events.
//!
//! Guarantees: no event between a look and the following wait is missed, and every further look has an event as its reason. A timeout names
//! what was waited for.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use gpuaas_api_types::Event;

use super::control_plane::ControlPlane;

/// An event stream.
#[derive(Clone, Copy)]
pub(super) enum Stream {
    /// Platform events: nodes and allocations.
    Platform,
    /// Project events: workloads and operations.
    Project,
}

impl ControlPlane {
    /// Returns the first result of `look`, which runs now and after each event. `look` should fail if waiting longer is useless.
    pub(crate) fn until<T>(
        &self,
        what: &str,
        longest: Duration,
        mut look: impl FnMut() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let began = Instant::now();
        let (sender, events) = mpsc::channel();
        let _platform = self.follow(Stream::Platform, sender.clone())?;
        let _project = self.follow(Stream::Project, sender)?;
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            let left = longest.saturating_sub(began.elapsed());
            match events.recv_timeout(left) {
                // Several pending events cause one look.
                Ok(()) => while events.try_recv().is_ok() {},
                Err(RecvTimeoutError::Timeout) => bail!("{what}: not reached within {} s", longest.as_secs()),
                Err(RecvTimeoutError::Disconnected) => bail!("{what}: the event streams ended"),
            }
        }
    }

    /// Lists the events of a stream so far.
    pub(super) fn events(&self, stream: Stream) -> anyhow::Result<Vec<Event>> {
        let output = self.stream_command(stream, &["event", "list"]).output().context("gpuaas event list")?;
        ensure!(output.status.success(), "gpuaas event list: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).context("parsing the output of gpuaas event list")
    }

    fn stream_command(&self, stream: Stream, arguments: &[&str]) -> Command {
        let mut command = self.gpuaas_command(arguments);
        if let Stream::Platform = stream {
            command.env_remove("GPUAAS_PROJECT");
        }
        command
    }

    fn follow(&self, stream: Stream, sender: Sender<()>) -> anyhow::Result<Follower> {
        let after = self.events(stream)?.last().map_or(0, |event| event.sequence).to_string();
        let mut command = self.stream_command(stream, &["event", "watch", "--after", &after]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("gpuaas event watch")?;
        let output = BufReader::new(child.stdout.take().context("stdout is not piped")?);
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|_| sender.send(())));
        Ok(Follower(child))
    }
}

/// A command that follows events; killed on drop.
struct Follower(Child);

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

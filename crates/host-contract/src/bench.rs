//! Helpers of the cases: install programs and units, and wait for their effects.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use gpuaas_host::{Changed, Command, CommandEnd, FileSpec, Host, JournalFrom, JournalLine, Process, UnitStatus};

use crate::Backend;

/// Longest time for a case.
pub const WAIT_MAX: Duration = Duration::from_secs(60);

/// A host under test.
pub struct Bench {
    pub host: Arc<dyn Host>,
    notifier: String,
}

impl Bench {
    pub fn of(backend: &dyn Backend) -> Self {
        Self { host: backend.client(), notifier: backend.notifier() }
    }

    /// Installs a shell program. In its text, `$root` is the prefix of the host's paths, and `$ready` sends READY=1.
    pub async fn program(&self, name: &str, text: &str) {
        let head = format!("#!/bin/sh\nroot=$GPUAAS_SANDBOX_ROOT\nready='{}'\n", self.notifier);
        self.file(&format!("/usr/local/bin/{name}"), 0o755, &format!("{head}{text}\n")).await;
    }

    /// Installs the unit `name`, which runs `program` and has these lines in `[Unit]` and `[Service]`, and reloads the unit files.
    pub async fn unit(&self, name: &str, unit: &str, service: &str, program: &str) {
        self.program(name, program).await;
        let text = format!("[Unit]\n{unit}\n[Service]\nExecStart=/usr/local/bin/{name}\n{service}\n");
        self.file(&format!("/etc/systemd/system/{name}.service"), 0o644, &text).await;
        self.host.units().daemon_reload().await.unwrap();
    }

    /// Like [`Bench::unit`], with nothing in `[Unit]`.
    pub async fn service(&self, name: &str, service: &str, program: &str) {
        self.unit(name, "", service, program).await;
    }

    pub async fn file(&self, path: &str, mode: u32, text: &str) -> Changed {
        let file = FileSpec { path: path.into(), mode, content: text.as_bytes().to_vec() };
        self.host.files().write(&file).await.unwrap()
    }

    /// Returns the text of a file; empty if it does not exist.
    pub async fn text(&self, path: &str) -> String {
        let content = self.host.files().read(path.into(), 1 << 20).await.unwrap().unwrap_or_default();
        String::from_utf8(content).unwrap()
    }

    /// Runs shell text on the host until it exits.
    pub async fn run(&self, text: &str) -> CommandEnd {
        self.program("contract-run", text).await;
        self.host.run(&command("/usr/local/bin/contract-run")).await.unwrap()
    }

    pub async fn status(&self, unit: &str) -> UnitStatus {
        self.host.units().unit(unit).await.unwrap().unwrap()
    }

    /// Waits for the first status, from now on, for which `is` returns true.
    pub async fn until(&self, unit: &str, is: impl Fn(&UnitStatus) -> bool) -> UnitStatus {
        let mut events = self.host.units().unit_events(unit).await.unwrap();
        let mut seen = Vec::new();
        loop {
            let next = tokio::time::timeout(WAIT_MAX / 2, events.next()).await;
            match next {
                Ok(Some(status)) if is(&status) => return status,
                Ok(Some(status)) => seen.push(status),
                Ok(None) => panic!("the signals of {unit} ended after {seen:#?}"),
                Err(_) => panic!("{unit} did not reach the expected state; seen: {seen:#?}"),
            }
        }
    }

    pub async fn until_running(&self, unit: &str) -> UnitStatus {
        self.until(unit, UnitStatus::is_running).await
    }

    pub async fn until_active_is(&self, unit: &str, active: &str) -> UnitStatus {
        self.until(unit, |status| status.active == active).await
    }

    /// Waits for the first line of a unit's journal that contains `text`.
    pub async fn wait_for_line(&self, unit: &str, text: &str) -> JournalLine {
        let mut lines = self.host.units().journal(unit, JournalFrom::Start, true).await.unwrap();
        let mut seen = Vec::new();
        loop {
            match tokio::time::timeout(WAIT_MAX / 2, lines.next()).await {
                Ok(Some(line)) if line.text.contains(text) => return line,
                Ok(Some(line)) => seen.push(line.text),
                _ => panic!("{unit} did not log {text:?}; it logged {seen:#?}"),
            }
        }
    }

    /// Returns the present lines of a unit's journal that its programs wrote (`say: …`).
    pub async fn lines(&self, unit: &str, from: JournalFrom) -> Vec<JournalLine> {
        let lines = self.host.units().journal(unit, from, false).await.unwrap();
        lines.filter(|line| std::future::ready(line.text.contains("say:"))).collect().await
    }

    /// Waits for a line with `prefix` in a unit's journal, and returns the number at its end.
    pub async fn number(&self, unit: &str, prefix: &str) -> i32 {
        let line = self.wait_for_line(unit, prefix).await;
        line.text.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Waits until a process has executed its program: in the middle of `execve` its unit cannot be determined.
    pub async fn until_program_is(&self, pid: i32, program: &str) {
        let became = async {
            let is = |process: &Process| process.pid == pid && process.program.ends_with(program);
            while !self.host.inventory().processes(&[]).await.unwrap().iter().any(is) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let became = tokio::time::timeout(WAIT_MAX / 2, became).await;
        assert!(became.is_ok(), "process {pid} did not become {program}");
    }

    /// Returns true if the process runs on the host.
    pub async fn is_process_running(&self, pid: i32) -> bool {
        self.host.inventory().processes(&[]).await.unwrap().iter().any(|process| process.pid == pid)
    }
}

pub(crate) fn command(program: &str) -> Command {
    Command { program: program.into(), arguments: Vec::new(), environment: Vec::new(), timeout: WAIT_MAX / 2 }
}

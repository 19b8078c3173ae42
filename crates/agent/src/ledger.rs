//! The ledger: what this node was told and what came of it, durable before and after. A task that is in it never runs again.

use std::{collections::BTreeMap, sync::Arc};

use camino::Utf8PathBuf;
use gpuaas_host::{FileSpec, Host, HostError};
use gpuaas_model::{TaskId, Timestamp};
use gpuaas_wire::task::TaskOutcome;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::{error::AgentError, state};

/// Tasks kept at least, expired or not.
const TASKS_KEPT: usize = 256;
/// Longest ledger that is read: far above what compaction leaves.
const FILE_BYTES_MAX: u64 = 64 * 1_024 * 1_024;
/// Lines after which the file is written anew.
const LINES_MAX: usize = 4_096;

/// What the ledger knows of a task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Entry {
    /// It began here, in this run of the agent.
    Begun,
    /// It began in an earlier run and never ended.
    Interrupted,
    /// It ended.
    Ended(TaskOutcome),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
enum Line {
    /// About to run.
    Begin { task: TaskId, fence: u64, expires_at: Timestamp },
    /// How it ended.
    End { task: TaskId, outcome: TaskOutcome },
    /// The highest fence of tasks that are forgotten.
    Fence { fence: u64 },
}

/// The ledger.
pub(crate) struct Ledger {
    host: Arc<dyn Host>,
    path: Utf8PathBuf,
    file: Box<dyn AsyncWrite + Send + Unpin>,
    entries: BTreeMap<TaskId, (Timestamp, u64, Entry)>,
    fence: u64,
    lines: usize,
    /// A line may have been written in part: the file is written anew before anything is added.
    torn: bool,
}

impl Ledger {
    /// Reads what is there. What had begun and not ended is interrupted from now on.
    pub(crate) async fn open(host: Arc<dyn Host>, now: Timestamp) -> Result<Self, AgentError> {
        let path = state::path("ledger.jsonl");
        let text = host.read(&path, FILE_BYTES_MAX).await?.unwrap_or_default();
        let file = host.append(&path).await?;
        let mut ledger = Self { host, path, file, entries: BTreeMap::new(), fence: 0, lines: 0, torn: false };
        ledger.recall(&text)?;
        match ledger.compact(now).await {
            // Read whole, it answers of what it holds, and takes nothing more until there is room.
            Err(AgentError::Host(error)) if error.is_full() => {
                tracing::warn!(%error, "the ledger could not be written anew: the disk is full");
                ledger.torn = true;
            }
            compacted => compacted?,
        }
        Ok(ledger)
    }

    fn recall(&mut self, text: &[u8]) -> Result<(), AgentError> {
        let mut lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).zip(1..).peekable();
        while let Some((line, number)) = lines.next() {
            match serde_json::from_slice(line) {
                Ok(line) => self.take(line),
                // The last line was cut by a crash and never acted upon: what follows a line waits for its fsync.
                Err(_) if lines.peek().is_none() => tracing::warn!(number, "the ledger's last line was cut"),
                // Whoever forgets a task may run it twice, and whoever forgets a fence may obey an old leader.
                Err(error) => return Err(AgentError::State(format!("line {number} of {}: {error}", self.path))),
            }
        }
        for (_, _, entry) in self.entries.values_mut() {
            if *entry == Entry::Begun {
                *entry = Entry::Interrupted;
            }
        }
        Ok(())
    }

    /// What is known of a task.
    pub(crate) fn entry(&self, task: TaskId) -> Option<&Entry> {
        self.entries.get(&task).map(|(_, _, entry)| entry)
    }

    /// The highest fence ever accepted.
    pub(crate) fn fence(&self) -> u64 {
        self.fence
    }

    /// The tasks that have ended, in the order of their ids.
    #[cfg(test)]
    pub(crate) fn ended(&self) -> Vec<TaskId> {
        let ended = |(_, _, entry): &(Timestamp, u64, Entry)| matches!(entry, Entry::Ended(_));
        self.entries.iter().filter(|(_, known)| ended(known)).map(|(task, _)| *task).collect()
    }

    /// Writes that a task is about to run. Durable when this returns.
    pub(crate) async fn begin(
        &mut self,
        task: TaskId,
        fence: u64,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> Result<(), AgentError> {
        self.append(Line::Begin { task, fence, expires_at }, now).await
    }

    /// Writes how a task ended. Durable when this returns; what could not be written is known to this run, and written with the next line.
    pub(crate) async fn end(&mut self, task: TaskId, outcome: TaskOutcome, now: Timestamp) -> Result<(), AgentError> {
        let line = Line::End { task, outcome };
        if let Err(error) = self.append(line.clone(), now).await {
            self.take(line);
            return Err(error);
        }
        if self.lines > LINES_MAX {
            self.compact(now).await?;
        }
        Ok(())
    }

    async fn append(&mut self, line: Line, now: Timestamp) -> Result<(), AgentError> {
        if self.torn {
            self.compact(now).await?;
        }
        self.torn = true;
        let fail = |source| HostError::File { action: "write", path: self.path.clone(), source };
        let mut json = serde_json::to_vec(&line).map_err(|error| AgentError::State(error.to_string()))?;
        json.push(b'\n');
        self.file.write_all(&json).await.map_err(fail)?;
        self.file.flush().await.map_err(fail)?;
        self.host.sync(&self.path).await?;
        self.torn = false;
        self.take(line);
        Ok(())
    }

    fn take(&mut self, line: Line) {
        self.lines += 1;
        match line {
            Line::Begin { task, fence, expires_at } => {
                self.fence = self.fence.max(fence);
                self.entries.insert(task, (expires_at, fence, Entry::Begun));
            }
            Line::End { task, outcome } => {
                if let Some((_, _, entry)) = self.entries.get_mut(&task) {
                    *entry = Entry::Ended(outcome);
                }
            }
            Line::Fence { fence } => self.fence = self.fence.max(fence),
        }
    }

    /// Forgets the oldest tasks whose envelopes have expired: a replay of them is refused for its age.
    async fn compact(&mut self, now: Timestamp) -> Result<(), AgentError> {
        let mut excess = self.entries.len().saturating_sub(TASKS_KEPT);
        self.entries.retain(|_, (expires_at, _, entry)| {
            let forget = excess > 0 && *expires_at < now && *entry != Entry::Begun;
            excess -= usize::from(forget);
            !forget
        });
        let mut lines = vec![Line::Fence { fence: self.fence }];
        for (task, (expires_at, fence, entry)) in &self.entries {
            lines.push(Line::Begin { task: *task, fence: *fence, expires_at: *expires_at });
            if let Entry::Ended(outcome) = entry {
                lines.push(Line::End { task: *task, outcome: outcome.clone() });
            }
        }
        let mut content = Vec::new();
        for line in &lines {
            serde_json::to_writer(&mut content, line).map_err(|error| AgentError::State(error.to_string()))?;
            content.push(b'\n');
        }
        self.host.write(&FileSpec { path: self.path.clone(), mode: 0o600, content }).await?;
        self.file = self.host.append(&self.path).await?;
        self.lines = lines.len();
        self.torn = false;
        Ok(())
    }
}

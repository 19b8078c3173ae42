//! The ledger: what this node was told and what came of it, durable before and after. A task that is in it never runs again.
//!
//! It also holds which workload owns the host: written with the beginning of the first task that changes the host, cleared with the end of the one
//! that left it clean.

use std::{collections::BTreeMap, sync::Arc};

use camino::Utf8PathBuf;
use gpuaas_host::{FileSpec, Host, HostError};
use gpuaas_model::{AllocationId, StepId, TaskId, Timestamp, WorkloadId};
use gpuaas_trust::TaskStatement;
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

/// The workload that owns the host, and the allocation by which its project holds the node. Void in another enrollment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostOwner {
    /// The node's enrollment epoch when the workload came.
    pub(crate) epoch: u64,
    pub(crate) workload: WorkloadId,
    pub(crate) allocation: AllocationId,
}

impl HostOwner {
    /// Who a task is for; `None` for the platform's own.
    pub(crate) fn of(statement: &TaskStatement) -> Option<Self> {
        let &TaskStatement { epoch, workload, allocation, .. } = statement;
        Some(Self { epoch, workload: workload?, allocation: allocation? })
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
enum Line {
    /// About to run.
    Begin {
        task: TaskId,
        fence: u64,
        expires_at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<Attempt>,
        /// Owns the host from here on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<HostOwner>,
    },
    /// How it ended.
    End {
        task: TaskId,
        outcome: TaskOutcome,
        /// Whether the host is without an owner from here on.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        frees_host: bool,
    },
    /// What outlasts the tasks that are forgotten: the highest fence, and who owns the host.
    Fence {
        fence: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<HostOwner>,
    },
}

/// Which attempt of a step a task is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Attempt {
    step: StepId,
    number: u32,
}

/// A task that is kept.
struct Known {
    expires_at: Timestamp,
    fence: u64,
    attempt: Option<Attempt>,
    entry: Entry,
}

/// The ledger.
pub(crate) struct Ledger {
    host: Arc<dyn Host>,
    path: Utf8PathBuf,
    file: Box<dyn AsyncWrite + Send + Unpin>,
    entries: BTreeMap<TaskId, Known>,
    fence: u64,
    owner: Option<HostOwner>,
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
        let mut ledger =
            Self { host, path, file, entries: BTreeMap::new(), fence: 0, owner: None, lines: 0, torn: false };
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
        for known in self.entries.values_mut().filter(|known| known.entry == Entry::Begun) {
            known.entry = Entry::Interrupted;
        }
        Ok(())
    }

    /// What is known of a task.
    pub(crate) fn entry(&self, task: TaskId) -> Option<&Entry> {
        self.entries.get(&task).map(|known| &known.entry)
    }

    /// The highest fence ever accepted.
    pub(crate) fn fence(&self) -> u64 {
        self.fence
    }

    /// The workload that owns the host, as of the last task that changed it; of an earlier enrollment, perhaps.
    pub(crate) fn owner(&self) -> Option<HostOwner> {
        self.owner
    }

    /// The highest attempt of a step among the tasks that are kept, 0 if there is none. Older ones that are forgotten have expired.
    pub(crate) fn attempt(&self, step: StepId) -> u32 {
        let attempts = self.entries.values().filter_map(|known| known.attempt);
        attempts.filter(|attempt| attempt.step == step).map(|attempt| attempt.number).max().unwrap_or(0)
    }

    /// The tasks that have ended, in the order of their ids.
    #[cfg(test)]
    pub(crate) fn ended(&self) -> Vec<TaskId> {
        let ended = |known: &Known| matches!(known.entry, Entry::Ended(_));
        self.entries.iter().filter(|(_, known)| ended(known)).map(|(task, _)| *task).collect()
    }

    /// Writes that a task is about to run, and whose host it is from here on where the task takes it. Durable when this returns.
    pub(crate) async fn begin(
        &mut self,
        statement: &TaskStatement,
        owner: Option<HostOwner>,
        now: Timestamp,
    ) -> Result<(), AgentError> {
        let &TaskStatement { task, fence, expires_at, step, attempt: number, .. } = statement;
        let attempt = step.map(|step| Attempt { step, number });
        self.append(Line::Begin { task, fence, expires_at, attempt, owner }, now).await
    }

    /// Writes how a task ended, and whether the host is without an owner from here on. Durable when this returns; what could not be written is known to this
    /// run, and written with the next line.
    pub(crate) async fn end(
        &mut self,
        task: TaskId,
        outcome: TaskOutcome,
        frees_host: bool,
        now: Timestamp,
    ) -> Result<(), AgentError> {
        let line = Line::End { task, outcome, frees_host };
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
            Line::Begin { task, fence, expires_at, attempt, owner } => {
                self.fence = self.fence.max(fence);
                self.owner = owner.or(self.owner);
                self.entries.insert(task, Known { expires_at, fence, attempt, entry: Entry::Begun });
            }
            Line::End { task, outcome, frees_host } => {
                self.owner = self.owner.filter(|_| !frees_host);
                if let Some(known) = self.entries.get_mut(&task) {
                    known.entry = Entry::Ended(outcome);
                }
            }
            Line::Fence { fence, owner } => {
                self.fence = self.fence.max(fence);
                self.owner = owner;
            }
        }
    }

    /// Forgets the oldest tasks whose envelopes have expired: a replay of them is refused for its age.
    async fn compact(&mut self, now: Timestamp) -> Result<(), AgentError> {
        let mut excess = self.entries.len().saturating_sub(TASKS_KEPT);
        self.entries.retain(|_, known| {
            let forget = excess > 0 && known.expires_at < now && known.entry != Entry::Begun;
            excess -= usize::from(forget);
            !forget
        });
        let mut lines = vec![Line::Fence { fence: self.fence, owner: self.owner }];
        for (task, known) in &self.entries {
            let &Known { expires_at, fence, attempt, ref entry } = known;
            lines.push(Line::Begin { task: *task, fence, expires_at, attempt, owner: None });
            if let Entry::Ended(outcome) = entry {
                lines.push(Line::End { task: *task, outcome: outcome.clone(), frees_host: false });
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

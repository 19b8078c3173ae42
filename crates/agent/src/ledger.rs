//! The ledger: the durable record of every task that this node began and of its result. A task in the ledger never runs again.
//!
//! It also records which workload owns the host: set together with the beginning of its first task that claims the host, cleared together
//! with the end of a task that left the host clean.
//!
//! Guarantees: a ledger that is missing, damaged, of another node or an older copy is not opened ([`mod@file`]).

mod file;

use std::{collections::BTreeMap, sync::Arc};

use camino::Utf8PathBuf;
use gpuaas_host::{Durable, FileSpec, Host};
use gpuaas_model::{AllocationId, StepId, TaskId, Timestamp, WorkloadId};
use gpuaas_trust::TaskStatement;
use gpuaas_wire::{
    session::{AgentProblem, LedgerMark, Refusal},
    task::TaskOutcome,
};
use serde::{Deserialize, Serialize};

use crate::{
    error::AgentError,
    paths::{self, IDENTITY},
};
use file::{Contents, Head, Header, LineWriter};
pub(crate) use file::{ExpectedLedger, LedgerId};

/// Number of tasks below which nothing is removed, expired or not.
const TASKS_KEPT: usize = 256;
/// Most refused tasks kept; beyond that, the one that expires first is removed.
const REFUSED_MAX: usize = 1_024;
/// Number of lines above which the file is rewritten.
const LINES_MAX: usize = 4_096;

/// State of a recorded task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Entry {
    /// It began in this run of the agent and has not ended.
    Begun,
    /// It began in an earlier run and never ended.
    Interrupted,
    /// It ended with this outcome.
    Ended(TaskOutcome),
}

/// The workload that owns the host, and the allocation through which its project holds the node. Void in another enrollment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostOwner {
    /// The node's enrollment epoch when the workload took the host.
    pub(crate) epoch: u64,
    pub(crate) workload: WorkloadId,
    pub(crate) allocation: AllocationId,
}

impl HostOwner {
    /// Returns the owner for which a task runs; `None` for tasks of the platform.
    pub(crate) fn of(statement: &TaskStatement) -> Option<Self> {
        let &TaskStatement { epoch, workload, allocation, .. } = statement;
        Some(Self { epoch, workload: workload?, allocation: allocation? })
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
enum Line {
    /// A task is about to run.
    Begin {
        task: TaskId,
        fence: u64,
        expires_at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<Attempt>,
        /// The owner of the host from here on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<HostOwner>,
    },
    /// A task ended.
    End {
        task: TaskId,
        outcome: TaskOutcome,
        /// True if the host has no owner from here on.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        frees_host: bool,
    },
    /// A task was refused and never runs.
    Refuse { task: TaskId, expires_at: Timestamp, refusal: Refusal },
    /// The first line: identifies the ledger, and keeps the highest fence and the owner of the host after the tasks that set them are
    /// removed.
    Fence {
        fence: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<HostOwner>,
        /// Absent if an older agent wrote the line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ledger: Option<Header>,
    },
}

/// The step that a task executes, and the number of the attempt.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Attempt {
    step: StepId,
    number: u32,
}

/// A task that began.
struct TaskRecord {
    expires_at: Timestamp,
    fence: u64,
    attempt: Option<Attempt>,
    entry: Entry,
}

/// A task that was refused.
struct RefusalRecord {
    expires_at: Timestamp,
    refusal: Refusal,
}

/// The opened ledger, with its content in memory.
pub(crate) struct Ledger {
    host: Arc<dyn Host>,
    path: Utf8PathBuf,
    header: Header,
    entries: BTreeMap<TaskId, TaskRecord>,
    refused: BTreeMap<TaskId, RefusalRecord>,
    fence: u64,
    owner: Option<HostOwner>,
    /// Number of lines in the file.
    lines: usize,
    /// Digest of the last line.
    last: String,
    /// Number of lines that may not be durable in the file yet; the records of the head contain them.
    only_in_head: usize,
    /// The newest of the head's two records that is durable.
    durable_record: usize,
    /// True if the last line may be incomplete: the file is rewritten before anything is appended.
    torn: bool,
}

/// Why a ledger cannot be opened.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// It is missing, damaged, or an older copy.
    Ledger(AgentProblem),
    /// The ledger served a later enrollment of this node than the identity's.
    Identity {
        /// Epoch of the later enrollment.
        served: u64,
    },
}

impl From<OpenError> for AgentError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Ledger(problem) => Self::Ledger(problem),
            OpenError::Identity { served } => Self::Identity {
                file: paths::path(IDENTITY),
                what: format!(
                    "is of an earlier enrollment than this machine's ledger ({served}): an older copy was restored"
                ),
            },
        }
    }
}

impl Ledger {
    /// Reads the ledger. Tasks that began and did not end become interrupted.
    pub(crate) async fn open(
        host: Arc<dyn Host>,
        expected: &ExpectedLedger,
        now: Timestamp,
    ) -> Result<Self, OpenError> {
        let contents = file::read(&host, expected).await.map_err(OpenError::Ledger)?;
        if let Some(served) = later_enrollment(&contents, expected) {
            return Err(OpenError::Identity { served });
        }
        let mut ledger = Self::from_contents(host, contents, expected);
        ledger.header.epoch = expected.epoch;
        if let Err(error) = ledger.compact(now).await {
            // The ledger was read completely: it answers for the tasks in it, and accepts no new ones until it can be written.
            tracing::warn!(%error, "could not rewrite the ledger");
        }
        Ok(ledger)
    }

    /// Checks whether the ledger can be opened; changes nothing.
    pub(crate) async fn check(host: &Arc<dyn Host>, expected: &ExpectedLedger) -> Result<(), OpenError> {
        let contents = file::read(host, expected).await.map_err(OpenError::Ledger)?;
        later_enrollment(&contents, expected).map_or(Ok(()), |served| Err(OpenError::Identity { served }))
    }

    /// Prepares the ledger for a new enrollment and returns its id: keeps the present ledger if it is intact and belongs to this node,
    /// otherwise creates a new one. Durable on return. `expected` names the ledger of the previous enrollment, if there was one; a ledger
    /// without an id is kept only if `was_enrolled`.
    pub(crate) async fn prepare(
        host: &Arc<dyn Host>,
        expected: &ExpectedLedger,
        was_enrolled: bool,
        now: Timestamp,
    ) -> Result<LedgerId, AgentError> {
        let contents = match file::read(host, expected).await {
            Ok(contents) if contents.header.is_some() || was_enrolled => contents,
            Ok(_) => Contents { header: None, lines: Vec::new() },
            Err(problem) => {
                if was_enrolled {
                    tracing::warn!(problem = problem.detail, "this enrollment begins with a new ledger");
                }
                Contents { header: None, lines: Vec::new() }
            }
        };
        let mut ledger = Self::from_contents(host.clone(), contents, expected);
        ledger.compact(now).await?;
        Ok(ledger.header.id)
    }

    fn from_contents(host: Arc<dyn Host>, contents: Contents, expected: &ExpectedLedger) -> Self {
        let &ExpectedLedger { node, epoch, .. } = expected;
        let new_header = || Header { id: LedgerId::generate(), node, epoch, rewritten: 0, written: 0 };
        let mut ledger = Self {
            host,
            path: file::path(),
            header: contents.header.unwrap_or_else(new_header),
            entries: BTreeMap::new(),
            refused: BTreeMap::new(),
            fence: 0,
            owner: None,
            lines: 0,
            last: String::new(),
            only_in_head: 0,
            durable_record: 0,
            torn: true,
        };
        for line in contents.lines {
            ledger.apply(line);
        }
        for known in ledger.entries.values_mut().filter(|known| known.entry == Entry::Begun) {
            known.entry = Entry::Interrupted;
        }
        ledger
    }

    /// Returns the id; `None` until it is on the disk.
    pub(crate) fn id(&self) -> Option<&LedgerId> {
        (!self.torn).then_some(&self.header.id)
    }

    /// Returns the id of the ledger and its number of written lines, for the hello message.
    pub(crate) fn mark(&self) -> LedgerMark {
        LedgerMark { id: self.header.id.0.clone(), written: self.header.written }
    }

    /// Returns the state of a task.
    pub(crate) fn entry(&self, task: TaskId) -> Option<&Entry> {
        self.entries.get(&task).map(|known| &known.entry)
    }

    /// Returns the refusal of a task that was refused earlier.
    pub(crate) fn refusal(&self, task: TaskId) -> Option<&Refusal> {
        self.refused.get(&task).map(|refused| &refused.refusal)
    }

    /// Returns the highest fence ever accepted.
    pub(crate) fn fence(&self) -> u64 {
        self.fence
    }

    /// Returns the workload that owns the host, according to the last task that claimed it; possibly one of an earlier enrollment.
    pub(crate) fn owner(&self) -> Option<HostOwner> {
        self.owner
    }

    /// Returns the highest attempt of a step among the recorded tasks, 0 without one. Removed tasks have expired.
    pub(crate) fn attempt(&self, step: StepId) -> u32 {
        let attempts = self.entries.values().filter_map(|known| known.attempt);
        attempts.filter(|attempt| attempt.step == step).map(|attempt| attempt.number).max().unwrap_or(0)
    }

    /// Returns the tasks that have ended, in the order of their ids.
    #[cfg(test)]
    pub(crate) fn ended(&self) -> Vec<TaskId> {
        let ended = |known: &TaskRecord| matches!(known.entry, Entry::Ended(_));
        self.entries.iter().filter(|(_, known)| ended(known)).map(|(task, _)| *task).collect()
    }

    /// Records that a task is about to run, and the owner of the host if the task takes the host. Durable on return.
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

    /// Records how a task ended, and whether the host has no owner from here on. Durable on return. If the write fails, this run keeps the
    /// result in memory and writes it together with the next line.
    pub(crate) async fn end(
        &mut self,
        task: TaskId,
        outcome: TaskOutcome,
        frees_host: bool,
        now: Timestamp,
    ) -> Result<(), AgentError> {
        let line = Line::End { task, outcome, frees_host };
        if let Err(error) = self.append(line.clone(), now).await {
            self.apply(line);
            return Err(error);
        }
        if self.lines > LINES_MAX {
            self.compact(now).await?;
        }
        Ok(())
    }

    /// Keeps a refusal until the task expires: the control plane counts the task as ended, and its envelope may arrive again. The refusal
    /// stays in memory, because the disk may be full, and reaches the file when the file is next rewritten; after a failed write this
    /// happens before the next task begins. An agent that restarts earlier has lost its connections, and with them the copies of the
    /// envelope in transit.
    pub(crate) fn refuse(
        &mut self,
        &TaskStatement { task, expires_at, .. }: &TaskStatement,
        refusal: Refusal,
        now: Timestamp,
    ) {
        self.refused.retain(|_, refused| refused.expires_at > now);
        while self.refused.len() >= REFUSED_MAX {
            let first = self.refused.iter().min_by_key(|(_, refused)| refused.expires_at).map(|(task, _)| *task);
            first.and_then(|task| self.refused.remove(&task));
        }
        self.apply(Line::Refuse { task, expires_at, refusal });
    }

    async fn append(&mut self, line: Line, now: Timestamp) -> Result<(), AgentError> {
        if self.torn {
            self.compact(now).await?;
        }
        self.torn = true;
        let mut writing = LineWriter { lines: self.lines, last: self.last.clone(), content: Vec::new() };
        writing.add(&line).map_err(|error| AgentError::State(error.to_string()))?;
        let content = std::mem::take(&mut writing.content);
        let is_begin = matches!(line, Line::Begin { .. });
        // The head has two records: a third line would replace the first.
        let in_head = file::in_head(&content).filter(|_| is_begin && self.only_in_head < 2);
        let (in_ledger, in_record) = match in_head {
            Some(_) => (Durable::Later, Durable::OnReturn),
            // The record that a task began is on the disk before the task runs.
            None if is_begin => (Durable::OnReturn, Durable::OnReturn),
            None => (Durable::OnReturn, Durable::Later),
        };
        self.host.files().append_bytes(&self.path, content, in_ledger).await?;
        self.only_in_head = if in_head.is_some() { self.only_in_head + 1 } else { 0 };
        let head = Head { line: in_head, ..self.head(writing, self.header.written + 1) };
        let record = 1 - self.durable_record;
        file::advance_head(&self.host, &head, record, in_record).await?;
        if in_record == Durable::OnReturn {
            self.durable_record = record;
        }
        self.set_acknowledged(head);
        self.apply(line);
        Ok(())
    }

    /// Returns the head that acknowledges the lines written so far.
    fn head(&self, LineWriter { lines, last, .. }: LineWriter, written: u64) -> Head {
        let Header { id, rewritten, .. } = self.header.clone();
        Head { ledger: id, rewritten, lines, last, written, line: None }
    }

    /// Applies a head. Call it only after the lines are durable in the ledger or in the head: callers may rely on them afterwards.
    fn set_acknowledged(&mut self, Head { lines, last, written, .. }: Head) {
        (self.lines, self.last, self.header.written, self.torn) = (lines, last, written, false);
    }

    fn apply(&mut self, line: Line) {
        match line {
            Line::Begin { task, fence, expires_at, attempt, owner } => {
                self.fence = self.fence.max(fence);
                self.owner = owner.or(self.owner);
                self.entries.insert(task, TaskRecord { expires_at, fence, attempt, entry: Entry::Begun });
            }
            Line::End { task, outcome, frees_host } => {
                self.owner = self.owner.filter(|_| !frees_host);
                if let Some(known) = self.entries.get_mut(&task) {
                    known.entry = Entry::Ended(outcome);
                }
            }
            Line::Refuse { task, expires_at, refusal } => {
                self.refused.insert(task, RefusalRecord { expires_at, refusal });
            }
            Line::Fence { fence, owner, ledger: _ } => {
                self.fence = self.fence.max(fence);
                self.owner = owner;
            }
        }
    }

    /// Rewrites the file without the oldest tasks whose envelopes have expired: a replay of them is refused as expired.
    async fn compact(&mut self, now: Timestamp) -> Result<(), AgentError> {
        let mut excess = self.entries.len().saturating_sub(TASKS_KEPT);
        self.entries.retain(|_, known| {
            let is_dropped = excess > 0 && known.expires_at < now && known.entry != Entry::Begun;
            excess -= usize::from(is_dropped);
            !is_dropped
        });
        self.refused.retain(|_, refused| refused.expires_at > now);
        self.torn = true;
        let header = Header { rewritten: self.header.rewritten + 1, ..self.header.clone() };
        let mut lines = vec![file::first_line(header.clone(), self.fence, self.owner)];
        for (task, known) in &self.entries {
            let &TaskRecord { expires_at, fence, attempt, ref entry } = known;
            lines.push(Line::Begin { task: *task, fence, expires_at, attempt, owner: None });
            if let Entry::Ended(outcome) = entry {
                lines.push(Line::End { task: *task, outcome: outcome.clone(), frees_host: false });
            }
        }
        for (task, RefusalRecord { expires_at, refusal }) in &self.refused {
            lines.push(Line::Refuse { task: *task, expires_at: *expires_at, refusal: refusal.clone() });
        }
        let mut writing = LineWriter::default();
        for line in &lines {
            writing.add(line).map_err(|error| AgentError::State(error.to_string()))?;
        }
        let content = std::mem::take(&mut writing.content);
        self.host.files().write(&FileSpec { path: self.path.clone(), mode: 0o600, content }).await?;
        self.header = header;
        let head = self.head(writing, self.header.written);
        file::write_head(&self.host, &head).await?;
        (self.only_in_head, self.durable_record) = (0, 0);
        self.set_acknowledged(head);
        Ok(())
    }
}

/// Returns the epoch of a later enrollment that the ledger has served; `None` if the identity is current.
fn later_enrollment(contents: &Contents, expected: &ExpectedLedger) -> Option<u64> {
    let header = contents.header.as_ref()?;
    (header.node == expected.node && header.epoch > expected.epoch).then_some(header.epoch)
}

//! The ledger: what this node was told and what came of it, durable before and after. A task that is in it never runs again.
//!
//! It also holds which workload owns the host: written with the beginning of the first task that changes the host, cleared with the end of the one
//! that left it clean.
//!
//! Guarantees: a ledger that is missing, damaged, another node's or an older copy is not opened ([`file`]).

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

use crate::{error::AgentError, state};
use file::{Contents, Head, Header, LineWriter};
pub(crate) use file::{ExpectedLedger, LedgerId};

/// Tasks kept at least, expired or not.
const TASKS_KEPT: usize = 256;
/// Refused tasks kept at most; beyond it the one that expires first is forgotten.
const REFUSED_MAX: usize = 1_024;
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
    /// It was refused, and never runs.
    Refuse { task: TaskId, expires_at: Timestamp, refusal: Refusal },
    /// What outlasts the tasks that are forgotten: the highest fence, and who owns the host. The first line, which says which ledger it is.
    Fence {
        fence: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<HostOwner>,
        /// Absent where an older agent wrote it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ledger: Option<Header>,
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

/// A task that was refused.
struct Refused {
    expires_at: Timestamp,
    refusal: Refusal,
}

/// The ledger.
pub(crate) struct Ledger {
    host: Arc<dyn Host>,
    path: Utf8PathBuf,
    header: Header,
    entries: BTreeMap<TaskId, Known>,
    refused: BTreeMap<TaskId, Refused>,
    fence: u64,
    owner: Option<HostOwner>,
    /// Lines of the file.
    lines: usize,
    /// The digest of the last of them.
    last: String,
    /// How many of these may not be durable in the file: the head's records contain them.
    only_in_head: usize,
    /// The newest of the head's two records that is durable.
    durable_record: usize,
    /// A line may have been written in part: the file is written anew before anything is added.
    torn: bool,
}

/// Why a ledger cannot be opened.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// It is missing, damaged, or an older copy.
    Ledger(AgentProblem),
    /// The ledger has served a later enrollment of this node than the one that the identity is of.
    Identity {
        /// That enrollment's epoch.
        served: u64,
    },
}

impl From<OpenError> for AgentError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Ledger(problem) => Self::Ledger(problem),
            OpenError::Identity { served } => Self::Identity {
                file: state::path(state::IDENTITY),
                what: format!(
                    "is of an earlier enrollment than this machine's ledger ({served}): an older copy was put back"
                ),
            },
        }
    }
}

impl Ledger {
    /// Reads what is there. What had begun and not ended is interrupted from now on.
    pub(crate) async fn open(
        host: Arc<dyn Host>,
        expected: &ExpectedLedger,
        now: Timestamp,
    ) -> Result<Self, OpenError> {
        let contents = file::read(&host, expected).await.map_err(OpenError::Ledger)?;
        if let Some(served) = later_enrollment(&contents, expected) {
            return Err(OpenError::Identity { served });
        }
        let mut ledger = Self::of(host, contents, expected);
        ledger.header.epoch = expected.epoch;
        if let Err(error) = ledger.compact(now).await {
            // Read whole, it answers of what it holds, and takes nothing more until it can be written.
            tracing::warn!(%error, "the ledger could not be written anew");
        }
        Ok(ledger)
    }

    /// Checks whether the ledger can be opened; changes nothing.
    pub(crate) async fn look(host: &Arc<dyn Host>, expected: &ExpectedLedger) -> Result<(), OpenError> {
        let contents = file::read(host, expected).await.map_err(OpenError::Ledger)?;
        later_enrollment(&contents, expected).map_or(Ok(()), |served| Err(OpenError::Identity { served }))
    }

    /// The ledger for a new enrollment: the present one if it is this node's and whole, a fresh one otherwise. Durable when this returns.
    /// `expected` names the ledger of the previous enrollment, if there was one; a ledger without an id is this node's only then.
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
        let mut ledger = Self::of(host.clone(), contents, expected);
        ledger.compact(now).await?;
        Ok(ledger.header.id)
    }

    fn of(host: Arc<dyn Host>, contents: Contents, expected: &ExpectedLedger) -> Self {
        let &ExpectedLedger { node, epoch, .. } = expected;
        let anew = || Header { id: LedgerId::generate(), node, epoch, rewritten: 0, written: 0 };
        let mut ledger = Self {
            host,
            path: file::path(),
            header: contents.header.unwrap_or_else(anew),
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
            ledger.take(line);
        }
        for known in ledger.entries.values_mut().filter(|known| known.entry == Entry::Begun) {
            known.entry = Entry::Interrupted;
        }
        ledger
    }

    /// Its id, once that is on the disk.
    pub(crate) fn id(&self) -> Option<&LedgerId> {
        (!self.torn).then_some(&self.header.id)
    }

    /// Which ledger it is and how far it goes, for the hello.
    pub(crate) fn mark(&self) -> LedgerMark {
        LedgerMark { id: self.header.id.0.clone(), written: self.header.written }
    }

    /// What is known of a task.
    pub(crate) fn entry(&self, task: TaskId) -> Option<&Entry> {
        self.entries.get(&task).map(|known| &known.entry)
    }

    /// Why a task was refused before.
    pub(crate) fn refusal(&self, task: TaskId) -> Option<&Refusal> {
        self.refused.get(&task).map(|refused| &refused.refusal)
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

    /// Keeps until its expiry that a task was refused: the control plane counts it as ended, and its envelope may come once more. Known to this run, because
    /// the disk may have no room, and written when the file is next written anew: after a write that failed that is before the next task begins. An
    /// agent that restarts before then has lost its connections, and with them the copies of the envelope that were under way.
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
        self.take(Line::Refuse { task, expires_at, refusal });
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
        // A third line would take the place of the first in the head.
        let in_head = file::in_head(&content).filter(|_| is_begin && self.only_in_head < 2);
        let (in_ledger, in_record) = match in_head {
            Some(_) => (Durable::Later, Durable::OnReturn),
            None => (Durable::OnReturn, Durable::Later),
        };
        self.host.append_bytes(&self.path, content, in_ledger).await?;
        self.only_in_head = if in_head.is_some() { self.only_in_head + 1 } else { 0 };
        let head = Head { line: in_head, ..self.head(writing, self.header.written + 1) };
        let record = 1 - self.durable_record;
        file::advance_head(&self.host, &head, record, in_record).await?;
        if in_record == Durable::OnReturn {
            self.durable_record = record;
        }
        self.acknowledged(head);
        self.take(line);
        Ok(())
    }

    /// What the head says when the file is good up to there.
    fn head(&self, LineWriter { lines, last, .. }: LineWriter, written: u64) -> Head {
        let Header { id, rewritten, .. } = self.header.clone();
        Head { ledger: id, rewritten, lines, last, written, line: None }
    }

    /// The ledger or the head durably says so: only now may anybody act on it.
    fn acknowledged(&mut self, Head { lines, last, written, .. }: Head) {
        (self.lines, self.last, self.header.written, self.torn) = (lines, last, written, false);
    }

    fn take(&mut self, line: Line) {
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
            Line::Refuse { task, expires_at, refusal } => {
                self.refused.insert(task, Refused { expires_at, refusal });
            }
            Line::Fence { fence, owner, ledger: _ } => {
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
        self.refused.retain(|_, refused| refused.expires_at > now);
        self.torn = true;
        let header = Header { rewritten: self.header.rewritten + 1, ..self.header.clone() };
        let mut lines = vec![file::first_line(header.clone(), self.fence, self.owner)];
        for (task, known) in &self.entries {
            let &Known { expires_at, fence, attempt, ref entry } = known;
            lines.push(Line::Begin { task: *task, fence, expires_at, attempt, owner: None });
            if let Entry::Ended(outcome) = entry {
                lines.push(Line::End { task: *task, outcome: outcome.clone(), frees_host: false });
            }
        }
        for (task, Refused { expires_at, refusal }) in &self.refused {
            lines.push(Line::Refuse { task: *task, expires_at: *expires_at, refusal: refusal.clone() });
        }
        let mut writing = LineWriter::default();
        for line in &lines {
            writing.add(line).map_err(|error| AgentError::State(error.to_string()))?;
        }
        let content = std::mem::take(&mut writing.content);
        self.host.write(&FileSpec { path: self.path.clone(), mode: 0o600, content }).await?;
        self.header = header;
        let head = self.head(writing, self.header.written);
        file::write_head(&self.host, &head).await?;
        (self.only_in_head, self.durable_record) = (0, 0);
        self.acknowledged(head);
        Ok(())
    }
}

/// The epoch of the later enrollment that the ledger has served, if the identity is an older one.
fn later_enrollment(contents: &Contents, expected: &ExpectedLedger) -> Option<u64> {
    let header = contents.header.as_ref()?;
    (header.node == expected.node && header.epoch > expected.epoch).then_some(header.epoch)
}

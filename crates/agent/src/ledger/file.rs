//! The ledger's files, and the checks that they are as the agent left them.
//!
//! `ledger.jsonl` has a line for each beginning and each end, behind a first line that says which ledger it is. Each line carries a digest over itself and the
//! digest of the line before: a line that was changed, taken out or put elsewhere is seen. Lines at the end leave no gap, so `ledger.head` says how many
//! lines were acknowledged, and the digest of the last. It is written after the line, and before anybody acts upon the line: the ledger may be one
//! line ahead of it, and is never behind.
//!
//! The head has two records, written over in turn: it never changes its length, which costs the disk least, and a crash while one is written leaves
//! the other, which is of the line before. A record that is damaged costs as much: the ledger's last line alone is then not missed if it is cut too.

use std::sync::Arc;

use camino::Utf8PathBuf;
use gpuaas_host::{FileSpec, Host, HostError};
use gpuaas_model::NodeId;
use gpuaas_wire::session::{AgentProblem, AgentProblemKind};
use serde::{Deserialize, Serialize};

use super::{HostOwner, Line};
use crate::{
    digested::{verified, with_digest},
    state,
};

/// Longest ledger that is read: far above what compaction leaves.
const FILE_BYTES_MAX: u64 = 64 * 1_024 * 1_024;
const HEAD_BYTES_MAX: u64 = 4 * 1_024;
/// Length of each of the head's two records: a disk's smallest block.
const RECORD_BYTES: usize = 512;

/// A ledger's id, for as long as it exists. The identity names it too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct LedgerId(pub(super) String);

impl LedgerId {
    pub(super) fn generate() -> Self {
        let mut bytes = [0_u8; 16];
        getrandom::fill(&mut bytes).expect("Linux has given random bytes to every process since its boot ended");
        Self(hex::encode(bytes))
    }
}

/// Which ledger it is: on its first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(super) id: LedgerId,
    /// The node that it is of.
    pub(super) node: NodeId,
    /// The node's enrollment epoch when the file was written anew.
    pub(super) epoch: u64,
    /// How often the file was written anew.
    pub(super) rewritten: u64,
    /// Tasks' beginnings and ends that were ever added, as of then.
    pub(super) written: u64,
}

/// Which ledger is expected.
#[derive(Clone, Debug)]
pub(crate) struct ExpectedLedger {
    /// The one that the identity names; `None` where an older agent wrote the identity.
    pub(crate) id: Option<LedgerId>,
    pub(crate) node: NodeId,
    pub(crate) epoch: u64,
}

/// How much of the ledger was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) ledger: LedgerId,
    pub(super) rewritten: u64,
    /// Lines of the file, the first one included.
    pub(super) lines: usize,
    /// The digest of the last of them.
    pub(super) last: String,
    /// Tasks' beginnings and ends that were ever added.
    pub(super) written: u64,
}

/// What was read.
pub(super) struct Contents {
    /// Which ledger it is, as of its last line; `None` where an older agent wrote it.
    pub(super) header: Option<Header>,
    pub(super) lines: Vec<Line>,
}

pub(super) fn path() -> Utf8PathBuf {
    state::path("ledger.jsonl")
}

pub(super) fn head_path() -> Utf8PathBuf {
    state::path("ledger.head")
}

/// The problem with the ledger, by its file.
pub(super) fn problem(kind: AgentProblemKind, file: &Utf8PathBuf, what: impl std::fmt::Display) -> AgentProblem {
    AgentProblem { kind, detail: format!("{file} {what}") }
}

fn damaged(what: impl std::fmt::Display) -> AgentProblem {
    problem(AgentProblemKind::LedgerDamaged, &path(), what)
}

fn older(what: impl std::fmt::Display) -> AgentProblem {
    problem(AgentProblemKind::LedgerOlder, &path(), what)
}

/// Reads the ledger that is expected, and changes nothing.
pub(super) async fn read(host: &Arc<dyn Host>, expected: &ExpectedLedger) -> Result<Contents, AgentProblem> {
    // Before the ledger: one that is written meanwhile is ahead of it.
    let head = read_head(host).await?;
    let text = host.read(&path(), FILE_BYTES_MAX).await.map_err(|error| damaged(format!("cannot be read: {error}")))?;
    let Some(text) = text else {
        return Err(problem(AgentProblemKind::LedgerMissing, &path(), "is missing, and this node is enrolled"));
    };
    let lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).collect();
    let first = lines.first().ok_or_else(|| damaged("is empty"))?;
    match header(first)? {
        Some(header) => {
            check_header(&header, expected)?;
            let head = acknowledged(&header, head, expected)?;
            let (known, acknowledged) =
                head.as_ref().map_or((header.written, None), |head| (head.written, Some(head.lines)));
            let lines = chained(&lines, head)?;
            let ahead = acknowledged.map_or(0, |acknowledged| lines.len() - acknowledged);
            let header = Header { written: known + ahead as u64, ..header };
            Ok(Contents { header: Some(header), lines })
        }
        None if expected.id.is_some() => Err(damaged("does not say which ledger it is, and identity.json names one")),
        None if head.is_some() => {
            Err(older(format!("does not say which ledger it is, and {} names one: an older copy", head_path())))
        }
        None => Ok(Contents { header: None, lines: without_digests(&lines)? }),
    }
}

async fn read_head(host: &Arc<dyn Host>) -> Result<Option<Head>, AgentProblem> {
    let wrong = |what: String| problem(AgentProblemKind::LedgerDamaged, &head_path(), what);
    let read =
        host.read(&head_path(), HEAD_BYTES_MAX).await.map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let Some(text) = read else { return Ok(None) };
    let whole = text.chunks(RECORD_BYTES).filter_map(|record| {
        verified("", record)?;
        serde_json::from_slice::<Head>(record).ok()
    });
    let newest = whole.max_by_key(|head| (head.rewritten, head.lines));
    newest.map(Some).ok_or_else(|| wrong("is damaged: no digest in it is that of its content".to_owned()))
}

/// Which ledger the first line says that it is.
fn header(line: &[u8]) -> Result<Option<Header>, AgentProblem> {
    match serde_json::from_slice(line) {
        Ok(Line::Fence { ledger, .. }) => Ok(ledger),
        Ok(Line::Begin { .. } | Line::End { .. } | Line::Refuse { .. }) => Ok(None),
        Err(error) => Err(damaged(format!("is damaged: line 1: {error}"))),
    }
}

fn check_header(header: &Header, expected: &ExpectedLedger) -> Result<(), AgentProblem> {
    if header.node != expected.node {
        return Err(older(format!(
            "is of node {}, and this is node {}: another copy was put there",
            header.node, expected.node
        )));
    }
    match &expected.id {
        Some(id) if *id != header.id => Err(older(format!(
            "is another ledger ({}) than the one that identity.json names ({}): another copy was put there",
            header.id.0, id.0
        ))),
        Some(_) | None => Ok(()),
    }
}

/// The head of the present file; `None` where the file was written anew and its head was not: the agent died, or the disk was full.
fn acknowledged(header: &Header, head: Option<Head>, expected: &ExpectedLedger) -> Result<Option<Head>, AgentProblem> {
    let wrong = |what: &str| Err(problem(AgentProblemKind::LedgerDamaged, &head_path(), what));
    let Some(head) = head else {
        return match &expected.id {
            // Perhaps no head was ever written: the ledger is only now given its id.
            None => Ok(None),
            Some(_) => wrong("is missing: without it nobody can tell whether the ledger is whole"),
        };
    };
    if head.ledger != header.id {
        return wrong("is of another ledger: another copy was put there");
    }
    if header.rewritten < head.rewritten {
        let (there, known) = (header.rewritten, head.rewritten);
        return Err(older(format!("is an older copy: it was written anew {there} times, and {known} are known")));
    }
    Ok(Some(head).filter(|head| head.rewritten == header.rewritten))
}

/// The lines, each of which must follow the one before.
fn chained(lines: &[&[u8]], head: Option<Head>) -> Result<Vec<Line>, AgentProblem> {
    let (needed, last) = head.map_or((1, None), |head| (head.lines, Some(head.last)));
    let (mut read, mut before) = (Vec::new(), String::new());
    for (&text, number) in lines.iter().zip(1..) {
        let line = verified(&before, text).and_then(|digest| Some((serde_json::from_slice(text).ok()?, digest)));
        let Some((line, digest)) = line else {
            if number > needed && number == lines.len() {
                // Cut by a crash and never acted upon: what follows a line waits for the head.
                tracing::warn!(number, "the ledger's last line was cut");
                break;
            }
            return Err(damaged(format!("is damaged: line {number} of {} is not as it was written", lines.len())));
        };
        if number == needed && last.as_ref().is_some_and(|last| *last != digest) {
            return Err(older(format!("has another line {number} than was acknowledged: another copy was put there")));
        }
        read.push(line);
        before = digest;
    }
    if read.len() < needed {
        let there = read.len();
        return Err(older(format!("holds {there} of {needed} acknowledged lines: it was cut, or is an older copy")));
    }
    Ok(read)
}

/// The lines that an older agent wrote, without digests.
fn without_digests(lines: &[&[u8]]) -> Result<Vec<Line>, AgentProblem> {
    let mut read = Vec::new();
    for (line, number) in lines.iter().zip(1..) {
        match serde_json::from_slice(line) {
            Ok(line) => read.push(line),
            Err(_) if number == lines.len() => tracing::warn!(number, "the ledger's last line was cut"),
            // A forgotten task could run twice, and a forgotten fence could let an old leader's task run.
            Err(error) => return Err(damaged(format!("is damaged: line {number}: {error}"))),
        }
    }
    Ok(read)
}

/// Lines as they are written, one after the other.
#[derive(Default)]
pub(super) struct LineWriter {
    pub(super) content: Vec<u8>,
    pub(super) lines: usize,
    pub(super) last: String,
}

impl LineWriter {
    /// Adds a line behind those before.
    pub(super) fn add(&mut self, line: &Line) -> Result<(), serde_json::Error> {
        let (text, digest) = with_digest(&self.last, &serde_json::to_string(line)?);
        self.content.extend_from_slice(text.as_bytes());
        self.content.push(b'\n');
        (self.lines, self.last) = (self.lines + 1, digest);
        Ok(())
    }
}

/// Writes how much of a file that was written anew is acknowledged. Durable when this returns.
pub(super) async fn write_head(host: &Arc<dyn Host>, head: &Head) -> Result<(), HostError> {
    let content = record(head).repeat(2);
    host.write(&FileSpec { path: head_path(), mode: 0o600, content }).await.map(drop)
}

/// Writes that one line more is acknowledged, over the record before the last. Durable when this returns.
pub(super) async fn advance_head(host: &Arc<dyn Host>, head: &Head) -> Result<(), HostError> {
    let at = head.lines % 2 * RECORD_BYTES;
    host.overwrite(&head_path(), at as u64, record(head)).await
}

fn record(head: &Head) -> Vec<u8> {
    let text = serde_json::to_string(head).expect("names and numbers are JSON");
    let mut record = with_digest("", &text).0.into_bytes();
    debug_assert!(record.len() < RECORD_BYTES, "two names of 32 digits and three numbers take half of it");
    record.resize(RECORD_BYTES - 1, b' ');
    record.push(b'\n');
    record
}

/// The first line of a file that is written anew.
pub(super) fn first_line(header: Header, fence: u64, owner: Option<HostOwner>) -> Line {
    Line::Fence { fence, owner, ledger: Some(header) }
}

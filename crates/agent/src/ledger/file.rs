//! The ledger's files, and the checks that they are as the agent left them.
//!
//! `ledger.jsonl` has a line for each beginning and each end, behind a first line that says which ledger it is. Each line carries a digest over itself and the
//! digest of the line before: a line that was changed, taken out or put elsewhere is seen. Lines at the end leave no gap, so `ledger.head` says how many
//! lines were acknowledged, and the digest of the last.
//!
//! Each beginning and each end costs one sync of the disk. The head's record of a beginning contains its line: once that record is durable, the
//! line is read from there if a crash has taken it from the ledger. The line of an end is durable in the ledger, with all lines before
//! it, and the head's record of it only tells that the ledger was cut: a crash may take that record, never the line.
//!
//! The head has two records and never changes its length, which costs the disk least. A record is written over the one that is older than the
//! newest durable one, so that a crash in the middle leaves that one.

use std::sync::Arc;

use camino::Utf8PathBuf;
use gpuaas_host::{Durable, FileSpec, Host, HostError};
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
/// Length of each of the head's two records.
const RECORD_BYTES: usize = 1_024;
/// Bytes of a record that its line leaves to everything else: names and numbers, and the escapes of the line's quotes.
const RECORD_BYTES_BESIDE_LINE: usize = 400;

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
    /// The last line, where it may not be durable in the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<String>,
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
    let heads = read_heads(host).await?;
    let text = host.read(&path(), FILE_BYTES_MAX).await.map_err(|error| damaged(format!("cannot be read: {error}")))?;
    let Some(text) = text else {
        return Err(problem(AgentProblemKind::LedgerMissing, &path(), "is missing, and this node is enrolled"));
    };
    let lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).collect();
    let first = lines.first().ok_or_else(|| damaged("is empty"))?;
    match header(first)? {
        Some(header) => {
            check_header(&header, expected)?;
            let heads = acknowledged(&header, heads, expected)?;
            let (known, acknowledged) =
                heads.last().map_or((header.written, None), |head| (head.written, Some(head.lines)));
            let lines = chained(&lines, &heads)?;
            let ahead = acknowledged.map_or(0, |acknowledged| lines.len() - acknowledged);
            let header = Header { written: known + ahead as u64, ..header };
            Ok(Contents { header: Some(header), lines })
        }
        None if expected.id.is_some() => Err(damaged("does not say which ledger it is, and identity.json names one")),
        None if !heads.is_empty() => {
            Err(older(format!("does not say which ledger it is, and {} names one: an older copy", head_path())))
        }
        None => Ok(Contents { header: None, lines: without_digests(&lines)? }),
    }
}

/// The whole records of the head, the newest last; none where there is no head.
async fn read_heads(host: &Arc<dyn Host>) -> Result<Vec<Head>, AgentProblem> {
    let wrong = |what: String| problem(AgentProblemKind::LedgerDamaged, &head_path(), what);
    let read =
        host.read(&head_path(), HEAD_BYTES_MAX).await.map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let Some(text) = read else { return Ok(Vec::new()) };
    let whole = text.chunks(RECORD_BYTES).filter_map(|record| {
        verified("", record)?;
        serde_json::from_slice::<Head>(record).ok()
    });
    let mut whole: Vec<Head> = whole.collect();
    whole.sort_by_key(|head| (head.rewritten, head.lines));
    if whole.is_empty() {
        return Err(wrong("is damaged: no digest in it is that of its content".to_owned()));
    }
    Ok(whole)
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

/// The head's records of the present file, the newest last; none where the file was written anew and its head was not: the agent died, or the
/// disk was full.
fn acknowledged(header: &Header, heads: Vec<Head>, expected: &ExpectedLedger) -> Result<Vec<Head>, AgentProblem> {
    let wrong = |what: &str| Err(problem(AgentProblemKind::LedgerDamaged, &head_path(), what));
    let Some(head) = heads.last() else {
        return match &expected.id {
            // Perhaps no head was ever written: the ledger is only now given its id.
            None => Ok(Vec::new()),
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
    Ok(heads.into_iter().filter(|head| head.ledger == header.id && head.rewritten == header.rewritten).collect())
}

/// The lines, each of which must follow the one before, up to the last one that was acknowledged or a whole one behind it.
fn chained(lines: &[&[u8]], heads: &[Head]) -> Result<Vec<Line>, AgentProblem> {
    let mut chain = Chain::default();
    let cut = lines.iter().position(|line| chain.add(line).is_none()).map(|at| at + 1);
    if let Some(number) = cut.filter(|number| *number < lines.len()) {
        return Err(not_as_written(number, lines.len()));
    }
    // A crash took what was not durable in the ledger: the head has it.
    for head in heads {
        if head.lines > chain.digests.len() {
            head.line.as_ref().and_then(|line| chain.add(line.as_bytes()));
        }
    }
    let (needed, read) = (heads.last().map_or(1, |head| head.lines), chain.digests.len());
    match cut {
        Some(number) if read < needed => return Err(not_as_written(number, lines.len())),
        // Never acted upon: what follows a line waits until it is durable.
        Some(number) if read < number => tracing::warn!(number, "the ledger's last line was cut"),
        Some(_) | None => {}
    }
    if read < needed {
        return Err(older(format!("holds {read} of {needed} acknowledged lines: it was cut, or is an older copy")));
    }
    if heads.last().is_some_and(|head| chain.digests.get(head.lines.wrapping_sub(1)) != Some(&head.last)) {
        return Err(older(format!("has another line {needed} than was acknowledged: another copy was put there")));
    }
    Ok(chain.lines)
}

fn not_as_written(number: usize, of: usize) -> AgentProblem {
    damaged(format!("is damaged: line {number} of {of} is not as it was written"))
}

/// Lines that follow one another, with the digest of each.
#[derive(Default)]
struct Chain {
    lines: Vec<Line>,
    digests: Vec<String>,
}

impl Chain {
    /// Adds a line; `None` where it does not follow.
    fn add(&mut self, text: &[u8]) -> Option<()> {
        let digest = verified(self.digests.last().map_or("", String::as_str), text)?;
        self.lines.push(serde_json::from_slice(text).ok()?);
        self.digests.push(digest);
        Some(())
    }
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

/// Writes that more lines are acknowledged, over the record of that number, 0 or 1.
pub(super) async fn advance_head(
    host: &Arc<dyn Host>,
    head: &Head,
    number: usize,
    durable: Durable,
) -> Result<(), HostError> {
    host.overwrite(&head_path(), (number * RECORD_BYTES) as u64, record(head), durable).await
}

/// The line as a record of the head contains it; `None` where it is too long for one.
pub(super) fn in_head(content: &[u8]) -> Option<String> {
    let line = std::str::from_utf8(content).ok()?.trim_end();
    (line.len() + RECORD_BYTES_BESIDE_LINE <= RECORD_BYTES).then(|| line.to_owned())
}

fn record(head: &Head) -> Vec<u8> {
    let text = serde_json::to_string(head).expect("names and numbers are JSON");
    let mut record = with_digest("", &text).0.into_bytes();
    debug_assert!(record.len() < RECORD_BYTES, "a line that is in a record leaves room for names and numbers");
    record.resize(RECORD_BYTES - 1, b' ');
    record.push(b'\n');
    record
}

/// The first line of a file that is written anew.
pub(super) fn first_line(header: Header, fence: u64, owner: Option<HostOwner>) -> Line {
    Line::Fence { fence, owner, ledger: Some(header) }
}

//! The files of the ledger, and the checks that they are as the agent left them.
//!
//! `ledger.jsonl` starts with a line that identifies the ledger, followed by one line for each beginning and each end. Each line carries a
//! digest over itself and the digest of the line before, which reveals a changed, removed or moved line. Lines cut from the end would not
//! show, so `ledger.head` holds the number of acknowledged lines and the digest of the last one.
//!
//! Each beginning and each end costs one sync of the disk. The head's record of a beginning contains the line itself and is durable before
//! the task runs: if a crash loses the line from the ledger, it is read from the head. The line of an end is made durable in the ledger,
//! together with every line before it; its record in the head is not synced, and only reveals a ledger that was cut later.
//!
//! The head has two records and a constant length, which is the cheapest write. A write replaces the record that is not the newest durable
//! one, so a crash during a write leaves that one.

use std::sync::Arc;

use camino::Utf8PathBuf;
use gpuaas_host::{Durable, FileSpec, Host, HostError};
use gpuaas_model::NodeId;
use gpuaas_wire::session::{AgentProblem, AgentProblemKind};
use serde::{Deserialize, Serialize};

use super::{HostOwner, Line};
use crate::{
    digested::{verified, with_digest},
    paths,
};

/// Largest ledger that is read, in bytes: far above the size after compaction.
const FILE_BYTES_MAX: u64 = 64 * 1_024 * 1_024;
const HEAD_BYTES_MAX: u64 = 4 * 1_024;
/// Length of each of the head's two records.
const RECORD_BYTES: usize = 1_024;
/// Bytes of a record that are not its line: names, numbers, and the escapes of the quotes in the line.
const RECORD_OVERHEAD_BYTES: usize = 400;

/// Id of a ledger, constant while the ledger exists. The identity names it too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct LedgerId(pub(super) String);

impl LedgerId {
    pub(super) fn generate() -> Self {
        let mut bytes = [0_u8; 16];
        getrandom::fill(&mut bytes).expect("Linux provides random bytes once it has booted");
        Self(hex::encode(bytes))
    }
}

/// Identifies the ledger; part of its first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(super) id: LedgerId,
    /// The node to which the ledger belongs.
    pub(super) node: NodeId,
    /// The node's enrollment epoch when the file was last rewritten.
    pub(super) epoch: u64,
    /// How often the file was rewritten.
    pub(super) rewritten: u64,
    /// Number of lines (beginnings and ends of tasks) that were ever appended before the file was last rewritten.
    pub(super) written: u64,
}

/// The ledger that the identity expects.
#[derive(Clone, Debug)]
pub(crate) struct ExpectedLedger {
    /// Id that the identity names; `None` if an older agent wrote the identity.
    pub(crate) id: Option<LedgerId>,
    pub(crate) node: NodeId,
    pub(crate) epoch: u64,
}

/// The acknowledged part of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) ledger: LedgerId,
    pub(super) rewritten: u64,
    /// Lines of the file, the first one included.
    pub(super) lines: usize,
    /// Digest of the last of these lines.
    pub(super) last: String,
    /// Number of lines (beginnings and ends of tasks) that were ever appended.
    pub(super) written: u64,
    /// The last line, if it may not be durable in the ledger yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<String>,
}

/// Content of the ledger.
pub(super) struct Contents {
    /// Identifies the ledger, with its counters as of the last line; `None` if an older agent wrote the file.
    pub(super) header: Option<Header>,
    pub(super) lines: Vec<Line>,
}

pub(super) fn path() -> Utf8PathBuf {
    paths::path("ledger.jsonl")
}

pub(super) fn head_path() -> Utf8PathBuf {
    paths::path("ledger.head")
}

/// Describes a problem with one of the files.
pub(super) fn problem(kind: AgentProblemKind, file: &Utf8PathBuf, what: impl std::fmt::Display) -> AgentProblem {
    AgentProblem { kind, detail: format!("{file} {what}") }
}

fn damaged(what: impl std::fmt::Display) -> AgentProblem {
    problem(AgentProblemKind::LedgerDamaged, &path(), what)
}

fn older(what: impl std::fmt::Display) -> AgentProblem {
    problem(AgentProblemKind::LedgerOlder, &path(), what)
}

/// Reads the expected ledger; changes nothing.
pub(super) async fn read(host: &Arc<dyn Host>, expected: &ExpectedLedger) -> Result<Contents, AgentProblem> {
    // The head is read before the ledger: a line appended in between puts the ledger ahead of the head, which is allowed.
    let heads = read_heads(host).await?;
    let text = host
        .files()
        .read(&path(), FILE_BYTES_MAX)
        .await
        .map_err(|error| damaged(format!("cannot be read: {error}")))?;
    let Some(text) = text else {
        return Err(problem(AgentProblemKind::LedgerMissing, &path(), "is missing, although this node is enrolled"));
    };
    let lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).collect();
    let first = lines.first().ok_or_else(|| damaged("is empty"))?;
    match parse_header(first)? {
        Some(header) => {
            check_header(&header, expected)?;
            let heads = check_heads(&header, heads, expected)?;
            let (known, acknowledged) =
                heads.last().map_or((header.written, None), |head| (head.written, Some(head.lines)));
            let lines = verify_chain(&lines, &heads)?;
            let ahead = acknowledged.map_or(0, |acknowledged| lines.len() - acknowledged);
            let header = Header { written: known + ahead as u64, ..header };
            Ok(Contents { header: Some(header), lines })
        }
        None if expected.id.is_some() => Err(damaged("has no ledger id, although identity.json names one")),
        None if !heads.is_empty() => {
            Err(older(format!("has no ledger id, although {} names one: it is an older copy", head_path())))
        }
        None => Ok(Contents { header: None, lines: read_without_digests(&lines)? }),
    }
}

/// Returns the undamaged records of the head, the newest last; none if there is no head.
async fn read_heads(host: &Arc<dyn Host>) -> Result<Vec<Head>, AgentProblem> {
    let wrong = |what: String| problem(AgentProblemKind::LedgerDamaged, &head_path(), what);
    let read = host
        .files()
        .read(&head_path(), HEAD_BYTES_MAX)
        .await
        .map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let Some(text) = read else { return Ok(Vec::new()) };
    // Each record ends with a newline and contains no other: older agents wrote shorter ones.
    let whole = text.split(|&byte| byte == b'\n').filter_map(|record| {
        verified("", record)?;
        serde_json::from_slice::<Head>(record).ok()
    });
    let mut intact: Vec<Head> = whole.collect();
    intact.sort_by_key(|head| (head.rewritten, head.lines));
    if intact.is_empty() {
        return Err(wrong("is damaged: no record in it has a valid digest".to_owned()));
    }
    Ok(intact)
}

/// Returns the header in the first line; `None` if an older agent wrote it.
fn parse_header(line: &[u8]) -> Result<Option<Header>, AgentProblem> {
    match serde_json::from_slice(line) {
        Ok(Line::Fence { ledger, .. }) => Ok(ledger),
        Ok(Line::Begin { .. } | Line::End { .. } | Line::Refuse { .. }) => Ok(None),
        Err(error) => Err(damaged(format!("is damaged: line 1: {error}"))),
    }
}

fn check_header(header: &Header, expected: &ExpectedLedger) -> Result<(), AgentProblem> {
    if header.node != expected.node {
        return Err(older(format!(
            "is of node {}, but this is node {}: it is a copy of another ledger",
            header.node, expected.node
        )));
    }
    match &expected.id {
        Some(id) if *id != header.id => Err(older(format!(
            "has the id {}, but identity.json names {}: it is a copy of another ledger",
            header.id.0, id.0
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Returns the records that are about the present file, the newest last; none if the file was rewritten and its head was not, because the
/// agent died or the disk was full.
fn check_heads(header: &Header, heads: Vec<Head>, expected: &ExpectedLedger) -> Result<Vec<Head>, AgentProblem> {
    let wrong = |what: &str| Err(problem(AgentProblemKind::LedgerDamaged, &head_path(), what));
    let Some(head) = heads.last() else {
        return match &expected.id {
            // Perhaps no head was ever written: the ledger receives its id only now.
            None => Ok(Vec::new()),
            Some(_) => wrong("is missing: without it the agent cannot verify the ledger"),
        };
    };
    if head.ledger != header.id {
        return wrong("is of another ledger");
    }
    if header.rewritten < head.rewritten {
        let (there, known) = (header.rewritten, head.rewritten);
        return Err(older(format!("is an older copy: it was rewritten {there} times, but its head counts {known}")));
    }
    Ok(heads.into_iter().filter(|head| head.ledger == header.id && head.rewritten == header.rewritten).collect())
}

/// Parses the lines and checks that each one follows the one before it. Lines that only the head has are inserted.
fn verify_chain(lines: &[&[u8]], heads: &[Head]) -> Result<Vec<Line>, AgentProblem> {
    let mut chain = Chain::default();
    let (needed, volatile) = (heads.last().map_or(1, |head| head.lines), not_durable(heads));
    let mut bad = None;
    for (line, number) in lines.iter().zip(1..) {
        if chain.add(line).is_some() {
            continue;
        }
        // A crash can lose any bytes of lines that were not durable in the ledger, and keep later ones.
        chain.add_from(volatile);
        if chain.add(line).is_none() {
            if number > needed && number < lines.len() {
                return Err(line_damaged(number, lines.len()));
            }
            bad.get_or_insert(number);
        }
    }
    chain.add_from(volatile);
    let read = chain.digests.len();
    match bad {
        Some(number) if read < needed => return Err(line_damaged(number, lines.len())),
        // Nothing acted on this line, or the head has it: the agent acts on a line only after it is durable in one of them.
        Some(number) => tracing::warn!(number, "a crash damaged a line of the ledger that was not durable yet"),
        None => {}
    }
    if read < needed {
        return Err(older(format!("has {read} of {needed} acknowledged lines: it was truncated, or is an older copy")));
    }
    if heads.last().is_some_and(|head| chain.digests.get(head.lines.wrapping_sub(1)) != Some(&head.last)) {
        return Err(older(format!(
            "differs from the acknowledged ledger in line {needed}: it is a copy of another ledger"
        )));
    }
    Ok(chain.lines)
}

/// Returns the newest records whose lines may not be durable in the ledger, the oldest first: a record without a line acknowledges lines that are
/// durable there.
fn not_durable(heads: &[Head]) -> &[Head] {
    match heads {
        [.., first, second] if first.line.is_some() && second.line.is_some() && first.lines + 1 == second.lines => {
            heads
        }
        [.., newest] if newest.line.is_some() => &heads[heads.len() - 1..],
        _ => &[],
    }
}

fn line_damaged(number: usize, of: usize) -> AgentProblem {
    damaged(format!("is damaged: line {number} of {of} does not match its digest"))
}

/// A sequence of lines, with the digest of each.
#[derive(Default)]
struct Chain {
    lines: Vec<Line>,
    digests: Vec<String>,
}

impl Chain {
    /// Adds a line; returns `None` if it does not follow the last one.
    fn add(&mut self, text: &[u8]) -> Option<()> {
        let digest = verified(self.digests.last().map_or("", String::as_str), text)?;
        self.lines.push(serde_json::from_slice(text).ok()?);
        self.digests.push(digest);
        Some(())
    }

    /// Adds the lines in the head's records that follow the last one. The records are sorted, the oldest first.
    fn add_from(&mut self, heads: &[Head]) {
        for head in heads {
            if head.lines == self.digests.len() + 1 {
                head.line.as_ref().and_then(|line| self.add(line.as_bytes()));
            }
        }
    }
}

/// Parses the lines of a ledger that an older agent wrote without digests.
fn read_without_digests(lines: &[&[u8]]) -> Result<Vec<Line>, AgentProblem> {
    let mut read = Vec::new();
    for (line, number) in lines.iter().zip(1..) {
        match serde_json::from_slice(line) {
            Ok(line) => read.push(line),
            Err(_) if number == lines.len() => tracing::warn!(number, "the ledger's last line is incomplete"),
            // Without this line, a task could run twice, or a task of an old leader could pass the fence.
            Err(error) => return Err(damaged(format!("is damaged: line {number}: {error}"))),
        }
    }
    Ok(read)
}

/// Collects lines in the form in which they are written.
#[derive(Default)]
pub(super) struct LineWriter {
    pub(super) content: Vec<u8>,
    pub(super) lines: usize,
    pub(super) last: String,
}

impl LineWriter {
    /// Appends a line with its digest.
    pub(super) fn add(&mut self, line: &Line) -> Result<(), serde_json::Error> {
        let (text, digest) = with_digest(&self.last, &serde_json::to_string(line)?);
        self.content.extend_from_slice(text.as_bytes());
        self.content.push(b'\n');
        (self.lines, self.last) = (self.lines + 1, digest);
        Ok(())
    }
}

/// Writes the head of a rewritten file, in both records. Durable on return.
pub(super) async fn write_head(host: &Arc<dyn Host>, head: &Head) -> Result<(), HostError> {
    let content = record(head).repeat(2);
    host.files().write(&FileSpec { path: head_path(), mode: 0o600, content }).await.map(drop)
}

/// Overwrites record 0 or 1 of the head.
pub(super) async fn advance_head(
    host: &Arc<dyn Host>,
    head: &Head,
    number: usize,
    durable: Durable,
) -> Result<(), HostError> {
    host.files().overwrite(&head_path(), (number * RECORD_BYTES) as u64, record(head), durable).await
}

/// Returns the line as a record of the head contains it; `None` if it is too long.
pub(super) fn in_head(content: &[u8]) -> Option<String> {
    let line = std::str::from_utf8(content).ok()?.trim_end();
    (line.len() + RECORD_OVERHEAD_BYTES <= RECORD_BYTES).then(|| line.to_owned())
}

fn record(head: &Head) -> Vec<u8> {
    let text = serde_json::to_string(head).expect("a head serializes to JSON");
    let mut record = with_digest("", &text).0.into_bytes();
    debug_assert!(record.len() < RECORD_BYTES, "the record must fit into RECORD_BYTES");
    record.resize(RECORD_BYTES - 1, b' ');
    record.push(b'\n');
    record
}

/// Returns the first line of a rewritten file.
pub(super) fn first_line(header: Header, fence: u64, owner: Option<HostOwner>) -> Line {
    Line::Fence { fence, owner, ledger: Some(header) }
}

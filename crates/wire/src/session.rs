//! What travels on a node's connections besides tasks themselves: hello, units, journals, enrollment; with the paths and limits of each.
//!
//! On a connection of ALPN `gpuaas-node/1` the control plane is the HTTP/2 client and asks; on one of `gpuaas-fetch/1` the agent asks.

use std::time::Duration;

use gpuaas_model::{Code, NodeId, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    bounds::{LIST_MAX, OutOfBounds, Said, addresses, at_most, cut, name},
    task::{TaskOutcome, TaskProgress, TaskSupport, UnitReport},
};

/// The version of this protocol; an agent and a control plane that share one can talk.
pub const PROTOCOL: u32 = 1;
/// Longest line of a streamed answer, in bytes: an outcome with its evidence fits.
pub const LINE_BYTES_MAX: usize = 512 * 1_024;
/// Longest single body, in bytes.
pub const BODY_BYTES_MAX: usize = 1_024 * 1_024;
/// Longest secret, in bytes: a kubeconfig with its certificates is about 6 KiB.
pub const SECRET_BYTES_MAX: usize = 64 * 1_024;
/// Longest text of a journal's line, in bytes; the rest of a longer one is cut.
pub const JOURNAL_TEXT_BYTES_MAX: usize = 16 * 1_024;
/// Most of a journal that one request gets, in bytes: 64 MiB are half a million lines.
pub const JOURNAL_BYTES_MAX: usize = 64 * 1_024 * 1_024;
/// Most lines that one request for a journal gets.
pub const JOURNAL_LINES_MAX: usize = 1_000_000;
/// Most endpoints that an agent keeps.
pub const CHANNEL_ENDPOINTS_MAX: usize = 16;
/// How far a node's clock and the control plane's may be apart; certificates are backdated by as much.
pub const CLOCK_SKEW_MAX: Duration = Duration::from_secs(300);
/// Ports of a node that a tunnel may reach: the Kubernetes API.
pub const TUNNEL_PORTS: &[u16] = &[6_443];
/// Units whose journal may be read.
pub const JOURNAL_UNITS: &[&str] = &["rke2-server.service", "rke2-agent.service", "gpuaas-agent.service"];

/// Paths that the control plane asks an agent for.
pub mod path {
    /// GET: [`super::Hello`].
    pub const HELLO: &str = "/v1/hello";
    /// POST a signed key set.
    pub const KEYS: &str = "/v1/keys";
    /// POST [`super::ChannelEndpoints`]: where to connect.
    pub const ENDPOINTS: &str = "/v1/endpoints";
    /// POST an envelope; streams [`super::TaskLine`]s.
    pub const TASKS: &str = "/v1/tasks";
    /// POST a [`super::TaskRef`]: end it early.
    pub const CANCEL: &str = "/v1/tasks/cancel";
    /// POST [`super::Observe`]; streams unit reports.
    pub const OBSERVE: &str = "/v1/observe";
    /// POST a [`super::BulkRequest`]: dial another connection.
    pub const CONNECTIONS: &str = "/v1/connections";
    /// POST; the bodies of request and response are the two directions of a stream to a port.
    pub const TUNNEL: &str = "/v1/tunnel";
    /// POST [`super::JournalRequest`]; streams [`super::JournalLine`]s.
    pub const JOURNAL: &str = "/v1/journal";
    /// GET `/v1/artifacts/SHA256` from the control plane, with `Range`.
    pub const ARTIFACTS: &str = "/v1/artifacts/";
    /// GET and PUT `/v1/secrets/ID` at the control plane.
    pub const SECRETS: &str = "/v1/secrets/";
    /// POST a certificate request to the control plane: a fresh certificate for a fresh key.
    pub const RENEW: &str = "/v1/renew";
    /// POST to the control plane, with a certificate that the node has kept: from now on it counts as the node's.
    pub const KEPT: &str = "/v1/kept";
}

/// What an agent says of itself on every connection, when asked first thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The agent's version.
    pub agent_version: String,
    /// Protocol versions it speaks.
    pub protocols: Vec<u32>,
    /// What this connection is for.
    pub connection: ConnectionKind,
    /// Random per start of the agent: two of them under one identity are a clone.
    pub instance: String,
    /// The machine's id.
    pub machine_id: String,
    /// The boot's id.
    pub boot_id: String,
    /// The node's own addresses, the one its services listen on first.
    pub addresses: Vec<String>,
    /// Task types it can execute.
    pub support: Vec<TaskSupport>,
    /// The highest fence it has seen; 0 where it has no ledger to tell it from.
    pub fence: u64,
    /// The version of the signing-key set in use.
    pub key_set_version: u64,
    /// What its clock says at this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Timestamp>,
    /// Why it takes no tasks; absent where it takes them, and from older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<AgentProblem>,
    /// Its ledger; absent where it cannot use its ledger, and from older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerMark>,
}

/// Why an agent takes no tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentProblem {
    /// Of which kind.
    pub kind: AgentProblemKind,
    /// What is wrong, with the file that it is about.
    pub detail: String,
}

/// Kinds of [`AgentProblem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentProblemKind {
    /// The ledger is not there.
    LedgerMissing,
    /// The ledger is not as it was written.
    LedgerDamaged,
    /// The ledger is an older copy, or another one: it lacks what this node acknowledged.
    LedgerOlder,
    /// One that only a newer agent knows.
    #[serde(other)]
    Other,
}

/// Which ledger an agent goes on from, and how far it goes: of one ledger `written` never decreases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerMark {
    /// The ledger's id.
    pub id: String,
    /// Tasks' beginnings and ends that were ever written to it.
    pub written: u64,
}

/// What a connection is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ConnectionKind {
    /// Tasks and beats.
    Control,
    /// Bulk that the control plane asked for under this id.
    Bulk {
        /// The id.
        request: String,
    },
}

/// One line of the answer to a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum TaskLine {
    /// Verified and in the ledger.
    Accepted,
    /// How far.
    Progress(TaskProgress),
    /// How it ended; the last line.
    Ended(TaskOutcome),
    /// The ledger holds it without an end; the last line.
    Interrupted,
}

/// Where a node may connect: any of them will do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelEndpoints {
    /// Each `host:port`, at most [`CHANNEL_ENDPOINTS_MAX`].
    pub channels: Vec<String>,
}

/// Names a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRef {
    /// Which.
    pub task: TaskId,
}

/// Which units to report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observe {
    /// Their names, all from [`JOURNAL_UNITS`].
    pub units: Vec<String>,
}

/// One line of the answer to [`Observe`].
pub type UnitLine = UnitReport;

/// Asks for a bulk connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkRequest {
    /// Comes back in the connection's hello.
    pub request: String,
}

/// Asks for a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelRequest {
    /// One of [`TUNNEL_PORTS`], at the node's own address.
    pub port: u16,
}

/// The header that carries a tunnel's port: the body is the stream itself.
pub const TUNNEL_PORT_HEADER: &str = "gpuaas-port";

/// Asks for a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalRequest {
    /// One of [`JOURNAL_UNITS`].
    pub unit: String,
    /// Only lines since then.
    pub since: Option<Timestamp>,
    /// At most so many of the last lines before following.
    pub tail: Option<u32>,
    /// Whether to go on with new lines.
    pub follow: bool,
}

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalLine {
    /// When it was written.
    pub at: Timestamp,
    /// The line.
    pub text: String,
}

/// Why an agent refused what it was asked; status 4xx.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Stable code.
    pub code: Code,
    /// One sentence.
    pub message: String,
}

/// What an agent sends to redeem its enrollment token.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrollRequest {
    /// The node that the string was for.
    pub node: NodeId,
    /// The token.
    pub token: String,
    /// A certificate request in PEM for the agent's fresh key.
    pub csr: String,
    /// The machine's id.
    pub machine_id: String,
    /// The agent's version.
    pub agent_version: String,
    /// What the node's clock says.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "since_1970")]
    pub clock: Option<Timestamp>,
    /// What shows that the machine was reimaged since a tenant has left it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reimage: Option<ReimageEvidence>,
}

/// What shows that a machine was reimaged. Other kinds, a TPM's quote say, are further variants.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ReimageEvidence {
    /// The value that the control plane gave to its reimage hook alone.
    OneTimeValue {
        /// The value.
        value: String,
    },
}

impl std::fmt::Debug for ReimageEvidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OneTimeValue { .. } => f.write_str("OneTimeValue(…)"),
        }
    }
}

/// What it gets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EnrollResponse {
    /// Its certificate, PEM.
    pub certificate: String,
    /// The authority's certificate, PEM.
    pub authority: String,
    /// Where the node channel listens, each `host:port`, the one that answered first.
    pub channels: Vec<String>,
    /// The control plane's id.
    pub control_plane: String,
    /// Its enrollment epoch.
    pub epoch: u64,
    /// The signing keys: JSON of a signed key set.
    pub key_set: serde_json::Value,
}

/// What an agent sends to renew its certificate.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// A certificate request in PEM for a fresh key. The connection shows the present one.
    pub csr: String,
    /// What the node's clock says.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "since_1970")]
    pub clock: Option<Timestamp>,
}

/// A moment that a clock can say: none before 1970.
fn since_1970<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<Timestamp>, D::Error> {
    let millis: Option<u64> = Option::deserialize(value)?;
    let within = |millis| i64::try_from(millis).map(Timestamp::from_millis).map_err(serde::de::Error::custom);
    millis.map(within).transpose()
}

/// What it gets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenewResponse {
    /// Its new certificate, PEM.
    pub certificate: String,
}

impl Said for Hello {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        for (what, text) in [
            ("the agent's version", &self.agent_version),
            ("the agent's instance", &self.instance),
            ("the machine's id", &self.machine_id),
            ("the boot's id", &self.boot_id),
        ] {
            name(what, text)?;
        }
        if let ConnectionKind::Bulk { request } = &self.connection {
            name("the connection's request", request)?;
        }
        at_most("protocol versions", self.protocols.len(), LIST_MAX)?;
        addresses("the node's addresses", &self.addresses)?;
        at_most("task types", self.support.len(), LIST_MAX)?;
        for support in &self.support {
            name("a task type", &support.task)?;
            at_most("schema versions", support.schemas.len(), LIST_MAX)?;
        }
        if let Some(ledger) = &self.ledger {
            name("the ledger's id", &ledger.id)?;
        }
        let problem = self
            .problem
            .map(|problem| AgentProblem { detail: cut(problem.detail, crate::bounds::SENTENCE_BYTES_MAX), ..problem });
        Ok(Self { problem, ..self })
    }
}

impl Said for TaskLine {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(match self {
            Self::Progress(progress) => Self::Progress(progress.within_bounds()?),
            Self::Ended(outcome) => Self::Ended(outcome.within_bounds()?),
            Self::Accepted | Self::Interrupted => self,
        })
    }
}

impl Said for JournalLine {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { text: cut(self.text, JOURNAL_TEXT_BYTES_MAX), ..self })
    }
}

impl Said for Refusal {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { message: cut(self.message, crate::bounds::SENTENCE_BYTES_MAX), ..self })
    }
}

#[cfg(test)]
mod hostile_tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            agent_version: "0.1.0".into(),
            protocols: vec![PROTOCOL],
            connection: ConnectionKind::Control,
            instance: "ab".repeat(16),
            machine_id: "cd".repeat(16),
            boot_id: "0198c0de-7a3b-7c11-9b54-0242ac120002".into(),
            addresses: vec!["10.0.0.7".into(), "fd00::7".into()],
            support: vec![TaskSupport { task: "host.noop".into(), schemas: vec![1] }],
            fence: 1,
            key_set_version: 1,
            clock: Some(Timestamp::from_millis(1)),
            problem: None,
            ledger: Some(LedgerMark { id: "ef".repeat(16), written: 7 }),
        }
    }

    #[test]
    fn hello_of_an_older_agent_has_no_problem_and_that_of_a_newer_one_may_have_an_unknown_one() {
        let mut older = serde_json::to_value(hello()).unwrap();
        older.as_object_mut().unwrap().remove("ledger");
        let read: Hello = serde_json::from_value(older.clone()).unwrap();
        assert_eq!(read, Hello { ledger: None, ..hello() });
        let mut newer = older;
        newer["problem"] = serde_json::json!({ "kind": "of_tomorrow", "detail": "\u{1b}x".repeat(100_000), "more": 1 });
        let read: Hello = serde_json::from_value(newer).unwrap();
        let problem = read.within_bounds().unwrap().problem.expect("a problem");
        assert_eq!(problem.kind, AgentProblemKind::Other);
        assert!(problem.detail.len() <= crate::bounds::SENTENCE_BYTES_MAX && !problem.detail.contains('\u{1b}'));
    }

    #[test]
    fn a_hello_is_taken_whole_or_not_at_all() {
        assert_eq!(hello().within_bounds(), Ok(hello()));
        let support = |task: String, schemas| TaskSupport { task, schemas };
        let huge = [
            Hello { addresses: vec!["10.0.0.7".into(); LIST_MAX + 1], ..hello() },
            Hello { addresses: vec!["10.0.0.7\nserver: https://10.0.0.8".into()], ..hello() },
            Hello { machine_id: "a".repeat(257), ..hello() },
            Hello { agent_version: "1\u{1b}[2J".into(), ..hello() },
            Hello { boot_id: "a".repeat(257), ..hello() },
            Hello { instance: "a".repeat(257), ..hello() },
            Hello { protocols: vec![1; LIST_MAX + 1], ..hello() },
            Hello { support: vec![support("a".into(), vec![1]); LIST_MAX + 1], ..hello() },
            Hello { support: vec![support("a".repeat(257), vec![1])], ..hello() },
            Hello { support: vec![support("a".into(), vec![1; LIST_MAX + 1])], ..hello() },
            Hello { connection: ConnectionKind::Bulk { request: "a".repeat(257) }, ..hello() },
            Hello { ledger: Some(LedgerMark { id: "a".repeat(257), written: 1 }), ..hello() },
        ];
        for huge in huge {
            assert!(huge.clone().within_bounds().is_err(), "{huge:?}");
        }
    }

    #[test]
    fn a_line_of_a_journal_is_cut_and_says_so() {
        let line = JournalLine { at: Timestamp::from_millis(1), text: "x".repeat(JOURNAL_TEXT_BYTES_MAX * 2) };
        let taken = line.within_bounds().unwrap();
        assert!(taken.text.len() == JOURNAL_TEXT_BYTES_MAX && taken.text.ends_with(gpuaas_model::CUT_MARK));
    }

    #[test]
    fn refusal_is_cut() {
        let said = Refusal { code: Code::Internal, message: "\u{1b}x".repeat(1_000_000) };
        let message = said.within_bounds().unwrap().message;
        assert!(message.len() <= crate::bounds::SENTENCE_BYTES_MAX && !message.contains('\u{1b}'), "{}", message.len());
    }
}

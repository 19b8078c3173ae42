//! Messages on a node's connections other than tasks: hello, units, journals and enrollment, with paths and limits.
//!
//! On a connection with ALPN `gpuaas-node/1` the control plane is the HTTP/2 client; with `gpuaas-fetch/1` the agent is.

use std::time::Duration;

use gpuaas_model::{Code, NodeId, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    bounds::{Bounded, LIST_MAX, OutOfBounds, check_addresses, check_count, check_name, one_line},
    task::{TaskOutcome, TaskProgress, TaskSupport, UnitReport},
};

/// Protocol version. An agent and a control plane need one version in common.
pub const PROTOCOL: u32 = 1;
/// Maximum length of a line in a streamed response, in bytes; large enough for an outcome with evidence.
pub const LINE_BYTES_MAX: usize = 512 * 1_024;
/// Maximum length of a single body, in bytes.
pub const BODY_BYTES_MAX: usize = 1_024 * 1_024;
/// Maximum length of a secret, in bytes; a kubeconfig with its certificates has about 6 KiB.
pub const SECRET_BYTES_MAX: usize = 64 * 1_024;
/// Maximum length of a journal line's text, in bytes; longer text is truncated.
pub const JOURNAL_TEXT_BYTES_MAX: usize = 16 * 1_024;
/// Maximum size of a journal response, in bytes; 64 MiB are about half a million lines.
pub const JOURNAL_BYTES_MAX: usize = 64 * 1_024 * 1_024;
/// Maximum number of lines in a journal response.
pub const JOURNAL_LINES_MAX: usize = 1_000_000;
/// Maximum number of channel endpoints that an agent stores.
pub const CHANNEL_ENDPOINTS_MAX: usize = 16;
/// Maximum difference between a node's clock and the control plane's. Certificates are backdated by the same amount.
pub const CLOCK_SKEW_MAX: Duration = Duration::from_secs(300);
/// Node ports that a tunnel may reach: only the Kubernetes API.
pub const TUNNEL_PORTS: &[u16] = &[6_443];

/// Paths of requests between the control plane and an agent.
pub mod path {
    /// GET from an agent; returns [`super::Hello`].
    pub const HELLO: &str = "/v1/hello";
    /// POST a signed key set to an agent.
    pub const KEYS: &str = "/v1/keys";
    /// POST [`super::ChannelEndpoints`] to an agent: where to connect.
    pub const ENDPOINTS: &str = "/v1/endpoints";
    /// POST an envelope to an agent; streams [`super::TaskLine`]s.
    pub const TASKS: &str = "/v1/tasks";
    /// POST a [`super::TaskRef`] to an agent: cancels the task.
    pub const CANCEL: &str = "/v1/tasks/cancel";
    /// POST [`super::Observe`] to an agent; streams unit reports.
    pub const OBSERVE: &str = "/v1/observe";
    /// POST a [`super::BulkRequest`] to an agent: the agent opens another connection.
    pub const CONNECTIONS: &str = "/v1/connections";
    /// POST to an agent; the request and response bodies are the two directions of a stream to a port.
    pub const TUNNEL: &str = "/v1/tunnel";
    /// POST [`super::JournalRequest`] to an agent; streams [`super::JournalLine`]s.
    pub const JOURNAL: &str = "/v1/journal";
    /// GET `/v1/artifacts/SHA256` from the control plane, with `Range`.
    pub const ARTIFACTS: &str = "/v1/artifacts/";
    /// GET and PUT `/v1/secrets/ID` at the control plane.
    pub const SECRETS: &str = "/v1/secrets/";
    /// POST a certificate request for a new key to the control plane; returns a new certificate.
    pub const RENEW: &str = "/v1/renew";
    /// POST to the control plane, authenticated with a renewed certificate that the agent has stored: it becomes the node's current
    /// certificate.
    pub const CONFIRM_RENEWAL: &str = "/v1/kept";
}

/// An agent's description of itself: the first response on every connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the agent.
    pub agent_version: String,
    /// Protocol versions that the agent supports.
    pub protocols: Vec<u32>,
    /// Purpose of this connection.
    pub connection: ConnectionKind,
    /// Random per start of the agent. Two instances with one identity mean that the identity was cloned.
    pub instance: String,
    /// The machine id.
    pub machine_id: String,
    /// The boot id.
    pub boot_id: String,
    /// Addresses of the node; its services listen on the first.
    pub addresses: Vec<String>,
    /// Task types that the agent can run.
    pub support: Vec<TaskSupport>,
    /// Highest fence that the agent has seen; 0 if it cannot read its ledger.
    pub fence: u64,
    /// Version of the signing-key set in use.
    pub key_set_version: u64,
    /// Current time of the node's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Timestamp>,
    /// Why the agent accepts no tasks; absent if it accepts them, and from older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<AgentProblem>,
    /// Mark of the agent's ledger; absent if the ledger is unusable, and from older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerMark>,
}

/// Why an agent accepts no tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentProblem {
    /// Kind of the problem.
    pub kind: AgentProblemKind,
    /// Description of the problem with the affected file.
    pub detail: String,
}

/// Kinds of [`AgentProblem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentProblemKind {
    /// The ledger is missing.
    LedgerMissing,
    /// The ledger's contents differ from what the agent wrote.
    LedgerDamaged,
    /// The ledger is an older copy or another ledger: it lacks entries that this node acknowledged.
    LedgerOlder,
    /// A kind that only a newer agent knows.
    #[serde(other)]
    Other,
}

/// Identifies an agent's ledger and its progress. In one ledger, `written` never decreases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerMark {
    /// The ledger's id.
    pub id: String,
    /// Total number of task starts and ends ever written to the ledger.
    pub written: u64,
}

/// Purpose of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ConnectionKind {
    /// Tasks and heartbeats.
    Control,
    /// Bulk data, on a connection that the control plane requested.
    Bulk {
        /// The id from the [`BulkRequest`].
        request: String,
    },
}

/// One line of the response to a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum TaskLine {
    /// The envelope is verified and recorded in the ledger.
    Accepted,
    /// Progress of the task.
    Progress(TaskProgress),
    /// Outcome of the task; the last line.
    Ended(TaskOutcome),
    /// The ledger holds the task without an end; the last line.
    Interrupted,
}

/// Addresses to which a node can connect; any of them works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelEndpoints {
    /// Each is `host:port`; at most [`CHANNEL_ENDPOINTS_MAX`].
    pub channels: Vec<String>,
}

/// Refers to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRef {
    /// The task's id.
    pub task: TaskId,
}

/// Selects the units to report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observe {
    /// Unit names. The agent reports only its own unit and those of its apps.
    pub units: Vec<String>,
    /// True if the agent also reports that files or the enablement of an app's unit may have changed; older agents ignore it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drift: bool,
}

/// One line of the response to [`Observe`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum UnitLine {
    /// The state of a unit.
    Report(UnitReport),
    /// Only if [`Observe::drift`] is set.
    Drift(DriftHint),
}

/// The unit, its files or its enablement may have changed since the last look. Says nothing about what changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftHint {
    /// Name of the unit.
    pub drifted: String,
}

impl UnitLine {
    /// Returns the name of the unit.
    pub fn unit(&self) -> &str {
        match self {
            Self::Report(report) => &report.unit,
            Self::Drift(hint) => &hint.drifted,
        }
    }
}

impl Bounded for UnitLine {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        match self {
            Self::Report(report) => report.within_bounds().map(Self::Report),
            Self::Drift(hint) => check_name("a unit name", &hint.drifted).map(|()| Self::Drift(hint)),
        }
    }
}

/// Requests a bulk connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkRequest {
    /// Request id; the hello of the new connection repeats it.
    pub request: String,
}

/// Header with a tunnel's port, one of [`TUNNEL_PORTS`]; the body is the stream itself.
pub const TUNNEL_PORT_HEADER: &str = "gpuaas-port";

/// Requests a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalRequest {
    /// Name of the agent's own unit or of one of its apps.
    pub unit: String,
    /// Only lines since this time.
    pub since: Option<Timestamp>,
    /// Only the last lines, at most this many, before new lines follow.
    pub tail: Option<u32>,
    /// If true, new lines follow until the request ends.
    pub follow: bool,
}

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalLine {
    /// Time at which the line was written.
    pub at: Timestamp,
    /// Text of the line.
    pub text: String,
}

/// An agent's refusal of a request, with a 4xx status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Stable code.
    pub code: Code,
    /// Reason in one sentence.
    pub message: String,
}

/// Request with which an agent redeems its enrollment token.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrollRequest {
    /// The node that the enrollment string is for.
    pub node: NodeId,
    /// The enrollment token.
    pub token: String,
    /// A certificate request in PEM for the agent's new key.
    pub csr: String,
    /// The machine id.
    pub machine_id: String,
    /// Version of the agent.
    pub agent_version: String,
    /// Current time of the node's clock.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "since_1970")]
    pub clock: Option<Timestamp>,
    /// Evidence that the machine was reimaged since the last tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reimage: Option<ReimageEvidence>,
}

/// Evidence of a reimage. Other kinds, for example a TPM quote, would be further variants.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ReimageEvidence {
    /// A one-time value that the control plane gave only to its reimage hook.
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

/// Response to an [`EnrollRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EnrollResponse {
    /// The agent's certificate in PEM.
    pub certificate: String,
    /// The authority's certificate in PEM.
    pub authority: String,
    /// Addresses of the node channel, each `host:port`; the one that answered first comes first.
    pub channels: Vec<String>,
    /// The control plane's id.
    pub control_plane: String,
    /// Enrollment epoch of the node.
    pub epoch: u64,
    /// Signing keys: the JSON of a signed key set.
    pub key_set: serde_json::Value,
}

/// Request with which an agent renews its certificate. The connection uses the current one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// A certificate request in PEM for a new key.
    pub csr: String,
    /// Current time of the node's clock.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "since_1970")]
    pub clock: Option<Timestamp>,
}

/// Reads an optional time in milliseconds and refuses times before 1970.
fn since_1970<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<Timestamp>, D::Error> {
    let millis: Option<u64> = Option::deserialize(value)?;
    let within = |millis| i64::try_from(millis).map(Timestamp::from_millis).map_err(serde::de::Error::custom);
    millis.map(within).transpose()
}

/// Response to a [`RenewRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenewResponse {
    /// The new certificate in PEM.
    pub certificate: String,
}

impl Bounded for Hello {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        for (what, text) in [
            ("the agent's version", &self.agent_version),
            ("the agent's instance", &self.instance),
            ("the machine id", &self.machine_id),
            ("the boot id", &self.boot_id),
        ] {
            check_name(what, text)?;
        }
        if let ConnectionKind::Bulk { request } = &self.connection {
            check_name("the connection's request id", request)?;
        }
        check_count("protocol versions", self.protocols.len(), LIST_MAX)?;
        check_addresses("the node's addresses", &self.addresses)?;
        check_count("task types", self.support.len(), LIST_MAX)?;
        for support in &self.support {
            check_name("a task type", &support.task)?;
            check_count("schema versions", support.schemas.len(), LIST_MAX)?;
        }
        if let Some(ledger) = &self.ledger {
            check_name("the ledger id", &ledger.id)?;
        }
        let problem = self.problem.map(|problem| AgentProblem {
            detail: one_line(problem.detail, crate::bounds::SENTENCE_BYTES_MAX),
            ..problem
        });
        Ok(Self { problem, ..self })
    }
}

impl Bounded for TaskLine {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(match self {
            Self::Progress(progress) => Self::Progress(progress.within_bounds()?),
            Self::Ended(outcome) => Self::Ended(outcome.within_bounds()?),
            Self::Accepted | Self::Interrupted => self,
        })
    }
}

impl Bounded for JournalLine {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { text: one_line(self.text, JOURNAL_TEXT_BYTES_MAX), ..self })
    }
}

impl Bounded for Refusal {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self { message: one_line(self.message, crate::bounds::SENTENCE_BYTES_MAX), ..self })
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
    fn hello_of_an_older_or_newer_agent_is_accepted() {
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
    fn hello_out_of_bounds_is_refused() {
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
    fn long_journal_line_is_truncated_with_a_mark() {
        let line = JournalLine { at: Timestamp::from_millis(1), text: "x".repeat(JOURNAL_TEXT_BYTES_MAX * 2) };
        let taken = line.within_bounds().unwrap();
        assert!(taken.text.len() == JOURNAL_TEXT_BYTES_MAX && taken.text.ends_with(gpuaas_model::CUT_MARK));
    }

    #[test]
    fn refusal_message_is_truncated() {
        let refusal = Refusal { code: Code::Internal, message: "\u{1b}x".repeat(1_000_000) };
        let message = refusal.within_bounds().unwrap().message;
        assert!(message.len() <= crate::bounds::SENTENCE_BYTES_MAX && !message.contains('\u{1b}'), "{}", message.len());
    }
}

//! What travels on a node's connections besides tasks themselves: hello, units, journals, enrollment; with the paths and limits of each.
//!
//! On a connection of ALPN `gpuaas-node/1` the control plane is the HTTP/2 client and asks; on one of `gpuaas-fetch/1` the agent asks.

use gpuaas_model::{Code, NodeId, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::task::{TaskOutcome, TaskProgress, TaskSupport, UnitReport};

/// The version of this protocol; an agent and a control plane that share one can talk.
pub const PROTOCOL: u32 = 1;
/// Longest line of a streamed answer, in bytes: an outcome with its evidence fits.
pub const LINE_BYTES_MAX: usize = 512 * 1_024;
/// Longest single body, in bytes.
pub const BODY_BYTES_MAX: usize = 1_024 * 1_024;
/// Longest secret, in bytes: a kubeconfig with its certificates is about 6 KiB.
pub const SECRET_BYTES_MAX: usize = 64 * 1_024;
/// Most endpoints that an agent keeps.
pub const CHANNEL_ENDPOINTS_MAX: usize = 16;
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
    /// POST a [`super::TaskRef`]: its outcome is recorded.
    pub const ACKNOWLEDGE: &str = "/v1/tasks/acknowledge";
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
    /// POST a certificate request to the control plane: a fresh certificate for the same key.
    pub const RENEW: &str = "/v1/renew";
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
    /// The highest fence it has seen.
    pub fence: u64,
    /// The version of the signing-key set in use.
    pub key_set_version: u64,
    /// Tasks that ended and were not acknowledged.
    pub unacknowledged: Vec<TaskId>,
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
    /// A certificate request for the same key.
    pub csr: String,
}

/// What it gets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenewResponse {
    /// Its new certificate, PEM.
    pub certificate: String,
}

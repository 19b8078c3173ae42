//! The error of a request to a node.

use gpuaas_wire::session::Refusal;

/// Why a request to a node failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// The node has no connection now.
    #[error("the node is not connected")]
    NotConnected,
    /// The connection ended before the request was complete.
    #[error("the channel ended: {0}")]
    Lost(String),
    /// The replica that holds the node's channel cannot be reached.
    #[error("the replica that holds the node's channel cannot be reached: {0}")]
    Peer(String),
    /// The agent refused the request.
    #[error("the agent refused: {}", .0.message)]
    Refused(Refusal),
    /// The agent violated the protocol.
    #[error("the agent violated the protocol: {0}")]
    Protocol(String),
}

//! Access to the journals of nodes, on whichever replica their channels end.

use async_trait::async_trait;
use futures::stream::BoxStream;
use gpuaas_engine::{CommandError, ownership::NodeAccess};
use gpuaas_wire::session::{JournalLine, JournalRequest};

/// Reads journals of nodes.
#[async_trait]
pub trait Journals: Send + Sync {
    /// Streams lines of the journal of the node and enrollment in `access`. Without `follow` the stream ends after the last line, with it
    /// when the node disconnects. Dropping the stream stops the reading.
    async fn journal(
        &self,
        access: &NodeAccess,
        request: &JournalRequest,
    ) -> Result<BoxStream<'static, Result<JournalLine, String>>, CommandError>;
}

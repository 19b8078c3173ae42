//! The way to a node's journal, wherever its channel ends.

use async_trait::async_trait;
use futures::stream::BoxStream;
use gpuaas_engine::{CommandError, ownership::NodeAccess};
use gpuaas_wire::session::{JournalLine, JournalRequest};

/// Reads journals of nodes.
#[async_trait]
pub trait Journals: Send + Sync {
    /// Lines of the node in the enrollment of the access, as they come; without `follow` the stream ends, with it when the node's connection does. Dropping it ends the reading.
    async fn journal(
        &self,
        access: &NodeAccess,
        ask: &JournalRequest,
    ) -> Result<BoxStream<'static, Result<JournalLine, String>>, CommandError>;
}

//! Reads journals of nodes for the API over the node channel.

use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};
use gpuaas_api::Journals;
use gpuaas_channel::{Channel, ChannelError};
use gpuaas_engine::{CommandError, ownership::NodeAccess};
use gpuaas_model::Code;
use gpuaas_wire::session::{JournalLine, JournalRequest};

pub(crate) struct ChannelJournals(pub(crate) Channel);

#[async_trait]
impl Journals for ChannelJournals {
    async fn journal(
        &self,
        access: &NodeAccess,
        request: &JournalRequest,
    ) -> Result<BoxStream<'static, Result<JournalLine, String>>, CommandError> {
        let lines = self.0.journal(access.node(), request).await.map_err(|error| refused(access, error))?;
        Ok(lines.map(|line| line.map_err(|error| error.to_string())).boxed())
    }
}

fn refused(access: &NodeAccess, error: ChannelError) -> CommandError {
    let node = access.name();
    match error {
        ChannelError::Refused(refusal) => CommandError::new(refusal.code, refusal.message),
        error => CommandError::new(Code::NodeUnreachable, format!("the journal of {node} cannot be read: {error}"))
            .then(format!("see its connectivity: gpuaas node show {node}")),
    }
}

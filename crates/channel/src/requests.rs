//! What the control plane asks of a connected node.

use std::time::Duration;

use futures::{StreamExt, stream};
use gpuaas_model::{NodeId, TaskId};
use gpuaas_wire::{
    session::{BulkRequest, JournalLine, JournalRequest, LINE_BYTES_MAX, Observe, TaskLine, TaskRef, UnitLine, path},
    task::{TaskFailure, TaskOutcome},
};
use http::Method;

use crate::{
    channel::{Channel, ChannelError, JournalStream, TaskStream},
    lines::lines,
    session::{Session, full},
    tunnel::TunnelIo,
};

/// Longest wait for a bulk connection that was asked for.
const BULK_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for a short request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

impl Channel {
    /// Pushes a signed envelope and follows its task. A refusal is the task's end, with the refusal's code.
    pub async fn dispatch(&self, node: NodeId, envelope: &str) -> Result<TaskStream, ChannelError> {
        let session = self.shared.session(node)?;
        match session.request(Method::POST, path::TASKS, full(envelope.to_owned())).await {
            Ok(response) => Ok(Box::pin(lines::<TaskLine>(response.into_body(), LINE_BYTES_MAX))),
            Err(ChannelError::Refused(refusal)) => {
                let failure = TaskFailure::new(refusal.code, refusal.message);
                let end = TaskLine::Ended(TaskOutcome::Failed { failure });
                Ok(Box::pin(stream::once(async move { Ok(end) })))
            }
            Err(error) => Err(error),
        }
    }

    /// Tells the agent that a task's outcome is recorded.
    pub async fn acknowledge(&self, node: NodeId, task: TaskId) -> Result<(), ChannelError> {
        self.tell(node, path::ACKNOWLEDGE, &TaskRef { task }).await
    }

    /// Asks the agent to end a task early.
    pub async fn cancel(&self, node: NodeId, task: TaskId) -> Result<(), ChannelError> {
        self.tell(node, path::CANCEL, &TaskRef { task }).await
    }

    /// Hands the agent a signed key set.
    pub async fn set_keys(&self, node: NodeId, signed_set: &str) -> Result<(), ChannelError> {
        let session = self.shared.session(node)?;
        give_keys(&session, signed_set).await
    }

    /// Sets which units the node reports changes of.
    pub async fn observe(&self, node: NodeId, units: Vec<String>) -> Result<(), ChannelError> {
        let session = self.shared.session(node)?;
        observe(self, session, units).await
    }

    /// Ends the node's connection; its agent comes back if it may.
    pub fn disconnect(&self, node: NodeId) {
        if let Ok(session) = self.shared.session(node) {
            session.ended.cancel();
        }
    }

    /// Whether the node has a control connection now.
    pub fn is_connected(&self, node: NodeId) -> bool {
        self.shared.session(node).is_ok()
    }

    /// A stream to one of the allowlisted ports of the node, on a connection of its own.
    pub async fn open_tunnel(&self, node: NodeId, port: u16) -> Result<TunnelIo, ChannelError> {
        TunnelIo::open(self.bulk(node).await?, port).await
    }

    /// The journal of one of the node's units, on a connection of its own.
    pub async fn journal(&self, node: NodeId, request: &JournalRequest) -> Result<JournalStream, ChannelError> {
        let session = self.bulk(node).await?;
        let response = session.post(path::JOURNAL, request).await?;
        let end = session.ended.clone().drop_guard();
        let stream = lines::<JournalLine>(response.into_body(), LINE_BYTES_MAX);
        // The connection lives as long as somebody reads.
        Ok(Box::pin(stream.map(move |line| {
            let _alive = &end;
            line
        })))
    }

    async fn bulk(&self, node: NodeId) -> Result<Session, ChannelError> {
        let control = self.shared.session(node)?;
        let request = uuid::Uuid::new_v4().to_string();
        let arrival = self.shared.await_bulk(&request, node);
        let asked = control.post(path::CONNECTIONS, &BulkRequest { request: request.clone() }).await;
        let session = match asked {
            Ok(_) => tokio::time::timeout(BULK_TIMEOUT, arrival).await,
            Err(error) => {
                self.shared.forget_bulk(&request);
                return Err(error);
            }
        };
        self.shared.forget_bulk(&request);
        match session {
            Ok(Ok(session)) => Ok(session),
            Ok(Err(_)) | Err(_) => Err(ChannelError::Lost("the node opened no further connection".to_owned())),
        }
    }

    async fn tell<T: serde::Serialize>(&self, node: NodeId, path: &str, value: &T) -> Result<(), ChannelError> {
        let session = self.shared.session(node)?;
        let told = tokio::time::timeout(REQUEST_TIMEOUT, session.post(path, value)).await;
        told.map_err(|_| ChannelError::Lost("it did not answer in time".to_owned()))?.map(|_| ())
    }
}

pub(crate) async fn give_keys(session: &Session, signed_set: &str) -> Result<(), ChannelError> {
    session.request(Method::POST, path::KEYS, full(signed_set.to_owned())).await.map(|_| ())
}

/// Asks for unit reports and hands each on, for as long as the connection lasts or until the agent is asked again.
pub(crate) async fn observe(channel: &Channel, session: Session, units: Vec<String>) -> Result<(), ChannelError> {
    let response = session.post(path::OBSERVE, &Observe { units }).await?;
    let backend = channel.shared.backend.clone();
    tokio::spawn(async move {
        let mut reports = Box::pin(lines::<UnitLine>(response.into_body(), LINE_BYTES_MAX));
        while let Some(report) = reports.next().await {
            match report {
                Ok(report) => backend.unit_changed(session.node, report).await,
                Err(error) => {
                    tracing::debug!(node = %session.node, %error, "unit reports ended");
                    break;
                }
            }
        }
    });
    Ok(())
}

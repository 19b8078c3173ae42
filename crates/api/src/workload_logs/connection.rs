//! The path to a member's node, which is decided again for every request.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::StreamExt;
use gpuaas_engine::{
    CommandError, Engine,
    commands::logs::{self, MemberJournal},
    ownership::NodeAccess,
};
use gpuaas_model::{MemberId, NodeId, Timestamp, WorkloadId};
use gpuaas_store::Change;
use gpuaas_wire::session::JournalRequest;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::journal::{Connection, Lines};
use crate::{journals::Journals, state::ApiState, streams::StreamPermit};

/// Shortest time between two requests to a node.
const REQUEST_PAUSE: Duration = Duration::from_secs(2);
/// Interval of attempts without a notification that the node has changed, which may be lost.
const ATTEMPT_EVERY: Duration = Duration::from_secs(30);

/// The path to the node of a member.
pub(super) struct NodeConnection {
    engine: Arc<Engine>,
    journals: Arc<dyn Journals>,
    workload: WorkloadId,
    member: MemberId,
    /// The access that was decided with the request for the logs; it counts for the first request only.
    first: Option<Result<NodeAccess, CommandError>>,
    node: Option<NodeId>,
    changes: Receiver<Change>,
    requested_at: Timestamp,
    /// Counts the journal as a stream of the caller's token.
    _permit: StreamPermit,
}

impl NodeConnection {
    pub(super) fn new(state: &ApiState, workload: WorkloadId, journal: &MemberJournal, permit: StreamPermit) -> Self {
        Self {
            engine: state.engine.clone(),
            journals: state.journals.clone(),
            workload,
            member: journal.member,
            node: journal.access.as_ref().ok().map(|access| access.node().node),
            first: Some(journal.access.clone()),
            // Subscribes before the first request, so that no change after it is missed.
            changes: state.engine.store().changes(),
            requested_at: Timestamp::from_millis(0),
            _permit: permit,
        }
    }
}

#[async_trait]
impl Connection for NodeConnection {
    async fn request(&mut self, request: JournalRequest, at_once: bool) -> Result<Lines, CommandError> {
        if !at_once {
            self.engine.ports().runtime.sleep_until(self.requested_at.plus(REQUEST_PAUSE)).await;
        }
        self.requested_at = self.now();
        let access = match self.first.take() {
            Some(first) => first?,
            None => logs::reopen(&self.engine, self.workload, self.member).await?,
        };
        self.node = Some(access.node().node);
        // Registers first, so that a release of the node while the journal is opened ends the stream.
        let held = self.engine.guard_access(&access).await.map_err(CommandError::from)?;
        Ok(held.guard(self.journals.journal(&access, &request).await?).boxed())
    }

    async fn changed(&mut self) {
        let timer = self.engine.ports().runtime.sleep_until(self.now().plus(ATTEMPT_EVERY));
        tokio::select! {
            biased;
            () = changed(&mut self.changes, self.node) => {}
            () = timer => {}
        }
    }

    fn now(&self) -> Timestamp {
        self.engine.ports().clock.now()
    }
}

/// Waits for a change of the node. Missed notifications count as one.
async fn changed(changes: &mut Receiver<Change>, node: Option<NodeId>) {
    loop {
        match changes.recv().await {
            Ok(Change::Node(changed)) if node.is_none_or(|node| node == changed) => return,
            Ok(
                Change::Node(_)
                | Change::Event { .. }
                | Change::Operation(_)
                | Change::Token(_)
                | Change::Keys
                | Change::Sealing,
            ) => {}
            Ok(Change::Missed) | Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

//! Whether this replica follows the cluster of a workload, and through which node.

use std::{collections::BTreeMap, sync::Arc};

use gpuaas_model::{NodeId, WorkloadId};
use gpuaas_planner::{App, SecretView, WorkloadView, difference::ClusterExpected};
use gpuaas_store::{SessionRecord, StoreError};
use serde_json::Value;
use uuid::Uuid;

use crate::{effects::AppEffects, engine::Engine, rows::WorkloadRows};

/// What a follower depends on: if any of it changes, another one begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    /// The node through which the cluster is followed.
    pub(super) node: NodeId,
    connection: Uuid,
    address: String,
    config: Value,
    secrets: BTreeMap<String, SecretView>,
}

/// A cluster to follow.
pub(super) struct Followable {
    pub(super) target: Target,
    pub(super) app: Arc<dyn App>,
    pub(super) effects: Arc<dyn AppEffects>,
    pub(super) view: WorkloadView,
}

/// Returns the cluster of the workload if it is expected to answer and this replica holds the channel of its node.
pub(super) async fn of(engine: &Engine, workload: WorkloadId) -> Result<Option<Followable>, StoreError> {
    let mut reader = engine.store().read().await?;
    let record = match reader.workload(workload).await {
        Ok(record) => record,
        Err(StoreError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(entry) = engine.catalog().app(&record.app) else { return Ok(None) };
    if ClusterExpected::of(record.lifecycle) != ClusterExpected::Yes {
        return Ok(None);
    }
    let view = WorkloadRows::load(&mut reader, workload).await?.view();
    let member = entry.app.followed_through(&view).and_then(|member| view.member(member));
    let Some((member, node)) = member.and_then(|member| Some((member, member.place.node()?))) else { return Ok(None) };
    let Some(session) = reader.session(node).await?.filter(|session| is_here(engine, session)) else { return Ok(None) };
    let target = Target {
        node,
        connection: session.connection,
        address: member.machine.address.clone(),
        config: view.config.clone(),
        secrets: view.secrets.clone(),
    };
    Ok(Some(Followable { target, app: entry.app.clone(), effects: entry.effects.clone(), view }))
}

/// Returns true if this replica holds the channel.
pub(super) fn is_here(engine: &Engine, session: &SessionRecord) -> bool {
    session.replica == engine.replica()
}

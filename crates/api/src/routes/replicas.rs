//! Replicas of the control plane.

use axum::{Json, extract::State};
use gpuaas_api_types::{List, Replica};
use gpuaas_store::{ReplicaLiveness, StoreError};

use crate::{
    auth::Authenticated,
    declaration::declare,
    page::{PageParams, Params},
    problem::ApiProblem,
    state::ApiState,
};

declare! { list_replicas: reads(PlatformRead, "replica list"), [] }

/// Lists the replicas of the control plane, oldest first, with the number of their nodes and operations.
#[utoipa::path(get, path = "/api/v1/replicas", tag = "replicas", security(("token" = [])), params(PageParams),
    responses((status = 200, body = List<Replica>)))]
pub(crate) async fn list_replicas(
    State(state): State<ApiState>,
    Authenticated(_caller): Authenticated,
    Params(page): Params<PageParams>,
) -> Result<Json<List<Replica>>, ApiProblem> {
    let lives = state.engine.store().read_once().await?.replicas().await?;
    let (lives, next_cursor) = page.page_of(lives, |life| life.replica.id.to_string());
    let mut items = Vec::new();
    for life in lives {
        items.push(shown(&state, life).await?);
    }
    Ok(Json(List::new(items, next_cursor)))
}

async fn shown(
    state: &ApiState,
    ReplicaLiveness { replica, time_left: left }: ReplicaLiveness,
) -> Result<Replica, StoreError> {
    let mut reader = state.engine.store().read().await?;
    Ok(Replica {
        nodes: reader.sessions_of(replica.id).await?.len() as u64,
        operations: reader.operations_driven_by(replica.id).await?.len() as u64,
        answers: replica.id == state.engine.replica(),
        state: if left.is_zero() { "lost" } else { "alive" }.to_owned(),
        id: replica.id.to_string(),
        api_url: replica.api_url,
        channel: replica.channel,
        address: replica.address,
        version: replica.version,
        started_at: replica.started_at.to_string(),
    })
}

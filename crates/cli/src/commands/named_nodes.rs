//! Finds the allocations of the nodes that a command names.

use gpuaas_api_types::Allocation;
use gpuaas_client::{Client, ClientError};
use gpuaas_model::Code;

use crate::{output::NotFound, target::Target};

/// Returns the ids of the open allocations of these nodes, or of the allocations that begin with these keys: first the server's, then the
/// agents'. The refusal names all that do not exist.
pub(super) async fn allocations(
    client: &Client,
    target: &Target,
    server: Option<&String>,
    agents: &[String],
) -> anyhow::Result<Vec<String>> {
    let known = client.list_allocations(target.project.clone(), None).await?.items;
    let (mut ids, mut missing) = (Vec::new(), Vec::new());
    let given = server.map(|key| ("--server", key)).into_iter().chain(agents.iter().map(|key| ("--agent", key)));
    for (flag, key) in given {
        match allocation(client, &known, key).await {
            Ok(id) => ids.push(id),
            Err(error) if error.code() == Code::NotFound => missing.push(format!("{flag} {key}")),
            Err(error) => return Err(error.into()),
        }
    }
    if missing.is_empty() { Ok(ids) } else { Err(not_held(&missing.join(", "), target).into()) }
}

/// Returns the id of the allocation that the value of `flag` names.
pub(super) async fn allocation_of(client: &Client, target: &Target, flag: &str, key: &str) -> anyhow::Result<String> {
    let known = client.list_allocations(target.project.clone(), None).await?.items;
    match allocation(client, &known, key).await {
        Ok(id) => Ok(id),
        Err(error) if error.code() == Code::NotFound => Err(not_held(&format!("{flag} {key}"), target).into()),
        Err(error) => Err(error.into()),
    }
}

fn not_held(given: &str, target: &Target) -> NotFound {
    let what = format!("{given}: the project holds no node with this name, and no allocation has this id");
    NotFound { what, next: format!("see its nodes: gpuaas allocation list{}", target.project_flag()) }
}

/// Returns the id of the node's open allocation, or of the allocation that begins with the key.
async fn allocation(client: &Client, known: &[Allocation], key: &str) -> Result<String, ClientError> {
    let is_open = |state: &str| !matches!(state, "released" | "failed");
    let found = known.iter().find(|of| of.id == key || (of.node_name == key && is_open(&of.state)));
    match found {
        Some(allocation) => Ok(allocation.id.clone()),
        None => Ok(client.get_allocation(key).await?.id),
    }
}

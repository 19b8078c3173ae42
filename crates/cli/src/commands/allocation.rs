//! `gpuaas allocation`.

use gpuaas_api_types::{Allocation, CreateAllocation};
use gpuaas_client::{Client, ClientError};

use crate::{
    cli::{Allocation as Verb, Target},
    output,
};

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Create { node } => {
            let project = target.project.clone();
            let project =
                project.ok_or_else(|| ClientError::Setting("which project? set GPUAAS_PROJECT or --project".into()))?;
            let allocation = client.create_allocation(&CreateAllocation { project, node }).await?;
            output::one(target.output, &allocation, described, &allocation.id)
        }
        Verb::List => {
            let allocations = client.list_allocations(target.project.clone(), None).await?.items;
            let row = |allocation: &Allocation| {
                let detail = allocation.detail.clone().unwrap_or_default();
                vec![allocation.id.clone(), allocation.node_name.clone(), allocation.state.clone(), detail]
            };
            output::list(target.output, &allocations, &["ID", "NODE", "STATE", "DETAIL"], row, |item| item.id.clone())
        }
        Verb::Release { id } => {
            let allocation = client.release_allocation(&id).await?;
            output::one(target.output, &allocation, described, &allocation.id)
        }
    }
}

fn described(allocation: &Allocation) -> String {
    format!("Allocation {} of {} is {}.", allocation.id, allocation.node_name, allocation.state)
}

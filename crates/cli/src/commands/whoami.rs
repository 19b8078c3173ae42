//! Implements `gpuaas whoami` and `gpuaas version`.

use gpuaas_api_types::WhoAmI;
use gpuaas_client::Client;
use serde_json::json;

use crate::{cli::Target, output};

pub(crate) async fn run(client: &Client, target: &Target) -> anyhow::Result<()> {
    let who = client.whoami().await?;
    let projects = match &who.project {
        Some(_) if target.output.is_for_people() => client.list_projects().await?.items,
        Some(_) | None => Vec::new(),
    };
    let words = |who: &WhoAmI| {
        let name = |id: &String| projects.iter().find(|of| of.id == *id).map_or(id, |of| &of.name).clone();
        let project = who.project.as_ref().map(|id| format!(" of project {}", name(id))).unwrap_or_default();
        format!("{} ({}{project})", who.name, who.role)
    };
    output::one(target.output, &who, words, &who.name)
}

pub(crate) fn version(target: &Target) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    output::one(target.output, &json!({ "version": version }), |_| format!("gpuaas {version}"), version)
}

//! Implements `gpuaas whoami` and `gpuaas version`.

use gpuaas_api_types::WhoAmI;
use gpuaas_client::Client;
use serde_json::{Value, json};

use crate::{connection, output, target::Target};

pub(crate) async fn run(client: &Client, target: &Target) -> anyhow::Result<()> {
    let who = client.whoami().await?;
    let projects = match &who.project {
        // A controller sees its workload alone.
        Some(_) if target.output.is_for_people() && who.workload.is_none() => client.list_projects().await?.items,
        Some(_) | None => Vec::new(),
    };
    let words = |who: &WhoAmI| {
        let name = |id: &String| projects.iter().find(|of| of.id == *id).map_or(id, |of| &of.name).clone();
        let project = who.project.as_ref().map(|id| format!(" of project {}", name(id))).unwrap_or_default();
        let workload = who.workload.as_ref().map(|id| format!(", workload {id}")).unwrap_or_default();
        format!("{} ({}{project}{workload})", who.name, who.role)
    };
    output::one(target.output, &who, words, &who.name)
}

/// Prints the version of this program, and that of the control plane if one is configured.
pub(crate) async fn version(target: &Target) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let asked: anyhow::Result<Option<String>> = async {
        let Some(client) = connection::configured_client(target)? else { return Ok(None) };
        Ok(Some(client.whoami().await?.control_plane_version).filter(|of| !of.is_empty()))
    }
    .await;
    let control_plane = asked.as_ref().ok().and_then(Option::as_ref);
    let words = |_: &Value| match control_plane {
        Some(of) => format!("gpuaas {version}\ncontrol plane {of}"),
        None => format!("gpuaas {version}"),
    };
    output::one(target.output, &json!({ "version": version, "control_plane": control_plane }), words, version)?;
    asked.map(drop)
}

//! Implements `gpuaas whoami` and `gpuaas version`.

use gpuaas_api_types::WhoAmI;
use gpuaas_client::Client;
use serde_json::json;

use crate::{cli::Target, output};

pub(crate) async fn run(client: &Client, target: &Target) -> anyhow::Result<()> {
    let who = client.whoami().await?;
    let words = |who: &WhoAmI| {
        let project = who.project.as_ref().map(|project| format!(" of project {project}")).unwrap_or_default();
        format!("{} ({}{project})", who.name, who.role)
    };
    output::one(target.output, &who, words, &who.name)
}

pub(crate) fn version(target: &Target) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    output::one(target.output, &json!({ "version": version }), |_| format!("gpuaas {version}"), version)
}

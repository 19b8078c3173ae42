//! `gpuaas app` and `gpuaas artifact`.

use anyhow::Context;
use gpuaas_api_types::{App, Artifact, ImportRelease};
use gpuaas_client::Client;

use crate::{
    cli::{App as AppVerb, Artifact as ArtifactVerb, Target},
    output,
};

pub(crate) async fn apps(client: &Client, target: &Target, verb: AppVerb) -> anyhow::Result<()> {
    let AppVerb::List = verb;
    let apps = client.list_apps().await?.items;
    let row = |app: &App| vec![app.slug.clone(), app.name.clone(), app.versions.join(", "), app.summary.clone()];
    output::list(target.output, &apps, &["SLUG", "NAME", "VERSIONS", ""], row, |app| app.slug.clone())
}

pub(crate) async fn artifacts(client: &Client, target: &Target, verb: ArtifactVerb) -> anyhow::Result<()> {
    let files = match verb {
        ArtifactVerb::List => client.list_artifacts().await?.items,
        ArtifactVerb::Import { app, path, version } => {
            let path = std::path::absolute(path)?;
            let named = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
            let version = version.or(named).context("which version? say --version")?;
            let path = path.to_str().context("the folder's path is no text")?.to_owned();
            client.import_artifacts(&ImportRelease { app, version, path }).await?.items
        }
    };
    let row = |file: &Artifact| {
        let badge = if file.stand_in { "stand-in" } else { "" };
        vec![
            file.app.clone(),
            file.version.clone(),
            file.name.clone(),
            file.size_bytes.to_string(),
            file.sha256[..file.sha256.len().min(12)].to_owned(),
            badge.to_owned(),
        ]
    };
    let header = ["APP", "VERSION", "FILE", "BYTES", "SHA256", ""];
    output::list(target.output, &files, &header, row, |file| format!("{}/{}/{}", file.app, file.version, file.name))
}

//! `gpuaas artifact`.

use anyhow::Context;
use clap::Subcommand;
use gpuaas_api_types::{Artifact, ImportRelease};
use gpuaas_client::Client;

use crate::{cli::Target, output};

/// Digits of a digest that a table shows.
const DIGEST_DIGITS: usize = 12;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Import a release from a folder of the control plane's machine, or from its URL
    Import {
        /// The app's slug
        app: String,
        /// The folder, or an https URL; laid out like a release
        source: String,
        /// The release's version; what it says itself when absent
        #[arg(long)]
        version: Option<String>,
    },
    /// List imported files
    List,
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    let files = match verb {
        Verb::List => client.list_artifacts().await?.items,
        Verb::Import { app, source, version } => {
            let source = if source.contains("://") {
                source
            } else {
                let path = std::path::absolute(source)?;
                path.to_str().context("the folder's path is no text")?.to_owned()
            };
            client.import_artifacts(&ImportRelease { app, version, source }).await?.items
        }
    };
    let header = ["APP", "VERSION", "FILE", "BYTES", "SHA256", ""];
    output::list(target.output, &files, &header, row, |file| format!("{}/{}/{}", file.app, file.version, file.name))
}

fn row(file: &Artifact) -> Vec<String> {
    vec![
        file.app.clone(),
        file.version.clone(),
        file.name.clone(),
        file.size_bytes.to_string(),
        file.sha256.chars().take(DIGEST_DIGITS).collect(),
        if file.stand_in { "stand-in".to_owned() } else { String::new() },
    ]
}

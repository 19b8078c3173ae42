//! Implements `gpuaas artifact`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use gpuaas_api_types::{Artifact, ImportRelease};
use gpuaas_client::Client;

use crate::{
    completion, connection, output,
    table::{Column, column, wide},
    target::Target,
};

/// Digits of a digest in a table.
const DIGEST_DIGITS: usize = 12;
/// Digits of a verifying key or digest in a table: a whole key id.
const KEY_DIGITS: usize = 16;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Import a release from a directory on the control plane's machine or from a URL
    Import {
        /// Slug of the app, for example rke2
        #[arg(add = ArgValueCandidates::new(completion::apps))]
        app: String,
        /// Directory (below the control plane's release-import-dir) or https URL that holds the files of the release
        source: String,
        /// SHA-256 of the release's checksum file in hex, as its publisher states it
        #[arg(long, value_name = "HEX")]
        sums_sha256: Option<String>,
        /// File with a minisign signature over the release's checksum file; default: the signature next to that file
        #[arg(long, value_name = "FILE", conflicts_with = "sums_sha256")]
        signature: Option<PathBuf>,
        /// Version of the release, which must equal the one that it states; default: that one, or the last part of SOURCE
        #[arg(long)]
        version: Option<String>,
    },
    /// List the files of imported releases
    List,
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    let files = match verb {
        Verb::List => client.list_artifacts().await?.items,
        Verb::Import { app, source, sums_sha256, signature, version } => {
            let source = if source.contains("://") { source } else { folder(&source)? };
            let read = |path: PathBuf| {
                std::fs::read_to_string(&path).map_err(|error| connection::unreadable("signature file", &path, &error))
            };
            let signature = signature.map(read).transpose()?;
            client.import_artifacts(&ImportRelease { app, version, source, sums_sha256, signature }).await?.items
        }
    };
    output::list(target.output, &files, FILES, |file| format!("{}/{}/{}", file.app, file.version, file.name))
}

/// Returns the folder's absolute path. Resolves symbolic links if it exists on this machine, because the control plane follows none.
fn folder(source: &str) -> anyhow::Result<String> {
    let path = match std::fs::canonicalize(source) {
        Ok(path) => path,
        Err(_) => std::path::absolute(source)?,
    };
    Ok(path.to_str().context("the folder's path is not valid UTF-8")?.to_owned())
}

const FILES: &[Column<Artifact>] = &[
    column("APP", |file| file.app.clone()),
    column("VERSION", |file| format!("{}{}", file.version, if file.stand_in { " (stand-in)" } else { "" })),
    column("FILE", |file| file.name.clone()),
    column("BYTES", |file| file.size_bytes.to_string()),
    column("SHA256", |file| file.sha256.chars().take(DIGEST_DIGITS).collect()),
    column("VERIFIED BY", |file| file.verified_by.as_deref().map(short).unwrap_or_default()),
    wide("COMPLETE SHA256", |file| file.sha256.clone()),
    wide("SOURCE", |file| file.source.clone().unwrap_or_default()),
];

/// Shortens `sums-sha256:0a1b…` to [`KEY_DIGITS`] digits.
fn short(verified_by: &str) -> String {
    match verified_by.split_once(':') {
        Some((kind, value)) => format!("{kind}:{}", value.chars().take(KEY_DIGITS).collect::<String>()),
        None if verified_by == "nothing" => "unverified".to_owned(),
        None => verified_by.to_owned(),
    }
}

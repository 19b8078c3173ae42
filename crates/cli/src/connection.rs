//! Which control plane a command talks to: flags, then environment, then the ready file of `gpuaas dev`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use gpuaas_client::{Client, ClientError};
use serde::{Deserialize, Serialize};

use crate::cli::Target;

/// What `gpuaas dev` and `gpuaas server` write when they serve.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReadyFile {
    /// The API.
    pub(crate) url: String,
    /// The authority's certificate.
    pub(crate) ca_file: PathBuf,
    /// A platform admin's token.
    pub(crate) token: String,
    /// Sandbox nodes.
    #[serde(default)]
    pub(crate) nodes: Vec<ReadyNode>,
}

/// A sandbox node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReadyNode {
    /// Its name.
    pub(crate) name: String,
    /// Its address.
    pub(crate) address: String,
}

impl ReadyFile {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is no ready file", path.display()))
    }
}

/// A client of the chosen control plane.
pub(crate) fn client(target: &Target) -> anyhow::Result<Client> {
    let ready = target.ready_file.as_deref().map(ReadyFile::read).transpose()?;
    let setting = |what: &str| ClientError::Setting(what.to_owned());
    let url = target.server.clone().or_else(|| ready.as_ref().map(|ready| ready.url.clone()));
    let url = url.ok_or_else(|| setting("no control plane is chosen: set GPUAAS_SERVER or --server"))?;
    let ca_file = target.ca_file.clone().or_else(|| ready.as_ref().map(|ready| ready.ca_file.clone()));
    let ca_file = ca_file.ok_or_else(|| setting("no authority is known: set GPUAAS_CA_FILE or --ca-file"))?;
    // By environment or file, never by flag: arguments are everybody's to read.
    let token = std::env::var("GPUAAS_TOKEN").ok().or_else(|| ready.map(|ready| ready.token));
    let token = token.ok_or_else(|| setting("no token is known: set GPUAAS_TOKEN"))?;
    let authority = std::fs::read(&ca_file).map_err(|error| setting(&format!("{}: {error}", ca_file.display())))?;
    Ok(Client::new(&url, &authority, token.trim())?)
}

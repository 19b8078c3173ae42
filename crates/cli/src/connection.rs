//! Which control plane a command talks to.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gpuaas_client::{Client, ClientError};
use serde::{Deserialize, Serialize};

use crate::{
    cli::Target,
    contexts::{Context, Contexts},
};

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
    /// The processes of the control plane.
    #[serde(default)]
    pub(crate) replicas: Vec<ReadyReplica>,
}

/// A process of the control plane. Any of them takes the token.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReadyReplica {
    /// Its API.
    pub(crate) url: String,
    /// The process.
    pub(crate) pid: u32,
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

/// A client of the chosen control plane: each part by flag, then environment, then ready file, then context.
pub(crate) fn client(target: &Target) -> anyhow::Result<Client> {
    let ready = target.ready_file.as_deref().map(ReadyFile::read).transpose()?;
    let contexts = Contexts::load()?;
    // A ready file is whole: what it lacks is not filled from elsewhere.
    let context = if ready.is_some() { None } else { contexts.chosen(target.context.as_deref())? };
    let setting = |what: &str| ClientError::Setting(what.to_owned());
    let from_files = |of_ready: fn(&ReadyFile) -> String, of_context: fn(&Context) -> Option<String>| {
        ready.as_ref().map(of_ready).or_else(|| context.and_then(of_context))
    };
    let url = target.url.clone().or_else(|| from_files(|ready| ready.url.clone(), |context| context.url.clone()));
    let url = url.ok_or_else(|| {
        setting("no control plane is chosen: set GPUAAS_SERVER or --url, or choose one by gpuaas context use")
    })?;
    let ca_file = target.ca_file.clone().or_else(|| ready.as_ref().map(|ready| ready.ca_file.clone()));
    let ca_file = ca_file.or_else(|| context.and_then(|context| context.ca_file.clone()));
    let ca_file = ca_file.ok_or_else(|| setting("no authority is known: set GPUAAS_CA_FILE or --ca-file"))?;
    // By environment or file, never by flag: arguments are everybody's to read.
    let token = std::env::var("GPUAAS_TOKEN").ok();
    let token = token.or_else(|| from_files(|ready| ready.token.clone(), |context| context.token.clone()));
    let token = token.ok_or_else(|| setting("no token is known: set GPUAAS_TOKEN, or put it into a context"))?;
    let authority = std::fs::read(&ca_file).map_err(|error| setting(&format!("{}: {error}", ca_file.display())))?;
    let client = Client::new(&url, &authority, token.trim())?;
    Ok(match &target.idempotency_key {
        Some(key) => client.with_idempotency_key(key),
        None => client,
    })
}

/// The project of the chosen context, where neither flag nor environment name one.
pub(crate) fn context_project(target: &Target) -> anyhow::Result<Option<String>> {
    if target.ready_file.is_some() {
        return Ok(None);
    }
    Ok(Contexts::load()?.chosen(target.context.as_deref())?.and_then(|context| context.project.clone()))
}

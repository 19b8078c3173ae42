//! Chooses the control plane and the token for a command.

use std::path::{Path, PathBuf};

use gpuaas_client::{Client, ClientError};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, Serialize};

use crate::{
    contexts::{Context, Contexts},
    environment,
    target::Target,
};

/// Variable with the token. No flag has it: other users can read a process's arguments.
pub(crate) const TOKEN: &str = "GPUAAS_TOKEN";

/// JSON file that `gpuaas dev` and `gpuaas server` write when they are ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReadyFile {
    /// URL of the API.
    pub(crate) url: String,
    /// PEM file with the authority's certificate.
    pub(crate) ca_file: PathBuf,
    /// A platform admin's API token. Only `gpuaas dev` writes one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) token: Option<String>,
    /// Sandbox nodes of `gpuaas dev`.
    #[serde(default)]
    pub(crate) nodes: Vec<ReadyNode>,
    /// Replicas of the control plane.
    #[serde(default)]
    pub(crate) replicas: Vec<ReadyReplica>,
}

/// A replica of the control plane. All replicas accept the same token.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReadyReplica {
    /// URL of the replica's API.
    pub(crate) url: String,
    /// Process id.
    pub(crate) pid: u32,
}

/// A sandbox node of `gpuaas dev`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReadyNode {
    /// Name in the API.
    pub(crate) name: String,
    /// Loopback address.
    pub(crate) address: String,
}

impl ReadyFile {
    pub(crate) fn read(path: &Path) -> Result<Self, ClientError> {
        let text = std::fs::read(path).map_err(|error| unreadable("ready file", path, &error))?;
        serde_json::from_slice(&text).map_err(|_| {
            // The parser's message can quote the token.
            ClientError::InvalidSetting(format!("{} is not a valid ready file", path.display()))
        })
    }
}

/// Builds a client like [`client`]; `None` if no control plane is configured.
pub(crate) fn configured_client(target: &Target) -> anyhow::Result<Option<Client>> {
    let is_named = target.url.is_some() || target.ready_file.is_some();
    match is_named || Contexts::load()?.chosen(target.context.as_deref())?.is_some() {
        true => client(target).map(Some),
        false => Ok(None),
    }
}

/// Builds a client. Each setting comes from its flag or environment variable, otherwise from the ready file if one is given, otherwise from
/// the context.
pub(crate) fn client(target: &Target) -> anyhow::Result<Client> {
    let chosen = Endpoint::resolve(target)?;
    let token = match environment::variable(TOKEN) {
        Some(token) => checked_token(&token, TOKEN)?,
        None => {
            let none = "no token is configured: set GPUAAS_TOKEN, or run gpuaas context set NAME --token-file FILE";
            let (token, from) = chosen.token.as_ref().ok_or_else(|| invalid_setting(none))?;
            checked_token(token, from)?
        }
    };
    let client = chosen.client(&token)?;
    Ok(match &target.idempotency_key {
        Some(key) => client.with_idempotency_key(key),
        None => client,
    })
}

/// Returns the token without blanks around it. Refuses one that no request can carry, such as a file of several lines; `from` names its
/// source, because the token itself is secret.
pub(crate) fn checked_token(token: &str, from: &str) -> Result<String, ClientError> {
    let token = token.trim();
    let wrong = match token.chars().find(|character| !character.is_ascii_graphic()) {
        Some('\n' | '\r') => "contains a line break",
        Some(_) => "contains a blank or a character that no token has",
        None if token.is_empty() => "is empty",
        None => return Ok(token.to_owned()),
    };
    Err(invalid_setting(&format!("{from} {wrong}: it must contain the token and nothing else")))
}

/// Builds a client with the given token instead of a configured one.
pub(crate) fn client_with_token(target: &Target, token: &str) -> anyhow::Result<Client> {
    Ok(Endpoint::resolve(target)?.client(token)?)
}

/// Returns the same flags with the URL and the CA file of the chosen control plane, wherever they come from.
pub(crate) fn with_endpoint(target: &Target) -> anyhow::Result<Target> {
    let Endpoint { url, ca_file, .. } = Endpoint::resolve(target)?;
    Ok(Target { url: Some(url), ca_file: Some(ca_file), ..target.clone() })
}

/// The chosen control plane, with the token of the ready file or context if it has one.
struct Endpoint {
    url: String,
    ca_file: PathBuf,
    /// The token and where it comes from.
    token: Option<(String, &'static str)>,
}

impl Endpoint {
    fn resolve(target: &Target) -> anyhow::Result<Self> {
        let ready = target.ready_file.as_deref().map(ReadyFile::read).transpose()?;
        let source = if ready.is_some() { "the token in the ready file" } else { "the token of the context" };
        let contexts = Contexts::load()?;
        // A ready file replaces the context completely: fields that it lacks are not filled from a context.
        let context = match ready {
            Some(ready) => {
                Context { url: Some(ready.url), ca_file: Some(ready.ca_file), token: ready.token, project: None }
            }
            None => contexts.chosen(target.context.as_deref())?.cloned().unwrap_or_default(),
        };
        let url = target.url.clone().or(context.url).ok_or_else(|| {
            invalid_setting(
                "no control plane is configured: set --url (GPUAAS_SERVER), or save a context: \
                 gpuaas context set NAME --url URL --ca-file FILE",
            )
        })?;
        let ca_file = target.ca_file.clone().or(context.ca_file);
        let ca_file =
            ca_file.ok_or_else(|| invalid_setting("no CA file is configured: set GPUAAS_CA_FILE or --ca-file"))?;
        Ok(Self { url, ca_file, token: context.token.map(|token| (token, source)) })
    }

    fn client(&self, token: &str) -> Result<Client, ClientError> {
        let authority = std::fs::read(&self.ca_file).map_err(|error| unreadable("CA file", &self.ca_file, &error))?;
        if CertificateDer::pem_slice_iter(&authority).next().is_none() {
            return Err(invalid_setting(&format!("{} contains no certificate", self.ca_file.display())));
        }
        Client::new(&self.url, &authority, token)
    }
}

/// Returns the error of a setting that names a file which cannot be read; `what` names the kind of file, such as `CA file`.
pub(crate) fn unreadable(what: &str, path: &Path, error: &std::io::Error) -> ClientError {
    let why = match error.kind() {
        std::io::ErrorKind::NotFound => "does not exist".to_owned(),
        _ => format!("cannot be read: {error}"),
    };
    ClientError::InvalidSetting(format!("the {what} {} {why}", path.display()))
}

fn invalid_setting(what: &str) -> ClientError {
    ClientError::InvalidSetting(what.to_owned())
}

/// Returns the project of the chosen context. A ready file has none.
pub(crate) fn context_project(target: &Target) -> anyhow::Result<Option<String>> {
    if target.ready_file.is_some() {
        return Ok(None);
    }
    Ok(Contexts::load()?.chosen(target.context.as_deref())?.and_then(|context| context.project.clone()))
}

//! Implements `gpuaas context`.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use gpuaas_client::{ClientError, check_url};
use serde::Serialize;

use super::confirm::{Confirm, Loss};
use crate::{
    completion,
    connection::{ReadyFile, TOKEN, checked_token, unreadable},
    contexts::{Context, Contexts, check_name},
    environment, output,
    table::column,
    target::Target,
};

/// Largest size of a token file, in bytes; the rest is ignored.
const TOKEN_BYTES_MAX: u64 = 4_096;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List contexts
    List,
    /// Select the current context
    Use {
        /// Name of the context
        #[arg(add = ArgValueCandidates::new(completion::contexts))]
        name: String,
    },
    /// Delete a context and its token from the context file
    Delete {
        /// Name of the context
        #[arg(add = ArgValueCandidates::new(completion::contexts))]
        name: String,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Create or change a context from --url, --ca-file, --project or --ready-file; the token comes from GPUAAS_TOKEN or a file
    Set {
        /// Name of the context
        #[arg(add = ArgValueCandidates::new(completion::contexts))]
        name: String,
        /// File with the token; - reads standard input; default: GPUAAS_TOKEN
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },
}

/// A context without its token.
#[derive(Serialize)]
struct ContextSummary {
    name: String,
    current: bool,
    url: Option<String>,
    ca_file: Option<PathBuf>,
    project: Option<String>,
    has_token: bool,
}

pub(crate) async fn run(target: &Target, verb: Verb) -> anyhow::Result<()> {
    let mut contexts = Contexts::load()?;
    match verb {
        Verb::List => list(target, &contexts),
        Verb::Use { name } => {
            contexts.chosen(Some(&name))?;
            contexts.current = Some(name.clone());
            contexts.save()?;
            print(target, &contexts, &name, |of| format!("{} is the current context.", of.name))
        }
        Verb::Delete { name, confirm } => {
            contexts.chosen(Some(&name))?;
            let context = contexts.contexts.get(&name).cloned().unwrap_or_default();
            let deleted = summary(&contexts, &name, &context);
            let loss = |of: &&ContextSummary| {
                let current = if of.current { " It is the current context; afterwards, none is." } else { "" };
                let lost =
                    "Its settings and its token are removed from the context file; the token itself stays valid.";
                Loss::new(format!("delete context {name}"), format!("{lost}{current}"))
            };
            if !confirm.allows(target, std::future::ready(Ok::<_, anyhow::Error>(&deleted)), loss, &name).await? {
                return Ok(());
            }
            contexts.contexts.remove(&name);
            contexts.current = contexts.current.filter(|current| *current != name);
            contexts.save()?;
            if target.output.is_for_people() && deleted.has_token {
                output::message(
                    "Its token stays valid until it expires, or until it is revoked: gpuaas token revoke ID",
                );
            }
            output::one(target.output, &deleted, |of| format!("Context {} is deleted.", of.name), &name)
        }
        Verb::Set { name, token_file } => {
            let token = match token_file {
                Some(file) => Some(read_token(&file)?),
                None => environment::variable(TOKEN).map(|token| checked_token(&token, TOKEN)).transpose()?,
            };
            set(contexts, target, name, token)
        }
    }
}

/// Fails if the global flags make no context with this name.
pub(crate) fn check(target: &Target, name: &str) -> anyhow::Result<()> {
    changed(&Contexts::load()?, target, name, None).map(drop)
}

/// Stores a token in a context, with the control plane and project from the global flags.
pub(crate) fn save_token(target: &Target, name: String, token: String) -> anyhow::Result<()> {
    set(Contexts::load()?, target, name, Some(token))
}

fn set(mut contexts: Contexts, target: &Target, name: String, token: Option<String>) -> anyhow::Result<()> {
    let context = changed(&contexts, target, &name, token)?;
    contexts.contexts.insert(name.clone(), context);
    contexts.current.get_or_insert_with(|| name.clone());
    let path = contexts.save()?;
    let words = |of: &ContextSummary| format!("Context {} is saved in {}.", of.name, path.display());
    print(target, &contexts, &name, words)
}

fn print(
    target: &Target,
    contexts: &Contexts,
    name: &str,
    words: impl FnOnce(&ContextSummary) -> String,
) -> anyhow::Result<()> {
    let context = contexts.contexts.get(name).cloned().unwrap_or_default();
    output::one(target.output, &summary(contexts, name, &context), words, name)
}

fn summary(contexts: &Contexts, name: &str, context: &Context) -> ContextSummary {
    ContextSummary {
        name: name.to_owned(),
        current: contexts.current.as_deref() == Some(name),
        url: context.url.clone(),
        ca_file: context.ca_file.clone(),
        project: context.project.clone(),
        has_token: context.token.is_some(),
    }
}

fn list(target: &Target, contexts: &Contexts) -> anyhow::Result<()> {
    let all: Vec<_> = contexts.contexts.iter().map(|(name, context)| summary(contexts, name, context)).collect();
    let columns = [
        column("CURRENT", |context: &ContextSummary| if context.current { "*".to_owned() } else { String::new() }),
        column("NAME", |context| context.name.clone()),
        column("URL", |context| context.url.clone().unwrap_or_default()),
        column("PROJECT", |context| context.project.clone().unwrap_or_default()),
    ];
    output::list(target.output, &all, &columns, |context| context.name.clone())
}

/// Returns the named context, or a new one, with the given settings changed and all others kept. Refuses a URL and a CA file with which no
/// command could succeed.
fn changed(contexts: &Contexts, target: &Target, name: &str, given_token: Option<String>) -> anyhow::Result<Context> {
    check_name(name)?;
    let context = contexts.contexts.get(name).cloned().unwrap_or_default();
    let ready = target.ready_file.as_deref().map(ReadyFile::read).transpose()?;
    let (url, ca_file, token) = match ready {
        Some(ready) => (Some(ready.url), Some(ready.ca_file), ready.token),
        None => (None, None, None),
    };
    let ca_file = target.ca_file.clone().map(std::path::absolute).transpose()?.or(ca_file);
    if let Some(file) = &ca_file {
        std::fs::metadata(file).map_err(|error| unreadable("CA file", file, &error))?;
    }
    let Some(url) = target.url.clone().or(url).or(context.url) else {
        let refused =
            format!("context {name} needs a control plane: add --url URL and --ca-file FILE, or --ready-file FILE");
        return Err(ClientError::InvalidSetting(refused).into());
    };
    check_url(&url)?;
    Ok(Context {
        url: Some(url),
        ca_file: ca_file.or(context.ca_file),
        token: given_token.or(token).or(context.token),
        project: target.project.clone().or(context.project),
    })
}

/// Reads a token from a file, or from standard input for `-`.
pub(crate) fn read_token(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().take(TOKEN_BYTES_MAX).read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(TOKEN_BYTES_MAX).read_to_string(&mut text))
    };
    read.map_err(|error| unreadable("token file", file, &error))?;
    Ok(checked_token(&text, &file.display().to_string())?)
}

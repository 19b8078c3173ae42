//! `gpuaas keys`.

use clap::{Subcommand, ValueEnum};
use gpuaas_api_types::{Authority, ForceAuthority, SealingKey, SigningKey};
use gpuaas_client::Client;

use super::following::{Following, Next};
use crate::{cli::Target, output};

/// What a key is for.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Purpose {
    /// Signs the tasks that nodes carry out
    TaskSigning,
    /// Issues the certificates of nodes and of the control plane
    #[value(alias = "authorities")]
    Authority,
    /// Seals what the control plane keeps; every replica must have taken the next one before
    Sealing,
}

/// A state of an authority that waits for nodes.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Waiting {
    /// Until every connected node trusts it; then it issues
    Staged,
    /// Until every node has a certificate of the one that issues; then it is retired
    Grace,
}

impl Waiting {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Grace => "grace",
        }
    }
}

/// Keys that are listed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Listed {
    /// Those that sign or signed tasks
    TaskSigning,
    /// Those that issue or issued certificates
    #[value(alias = "authorities")]
    Authority,
}

/// A key that is shown by itself.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Shown {
    /// Seals what the control plane keeps
    Sealing,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List task-signing keys or certificate authorities, and what each waits for
    List {
        /// Which keys
        #[arg(default_value = "task-signing")]
        purpose: Listed,
    },
    /// Show the key in use, by its public id, and how far its successor is
    Show {
        /// Which key
        purpose: Shown,
    },
    /// Replace the key in use by a new one, without a refused task or a lost connection
    Rotate {
        /// Which key
        purpose: Purpose,
        /// Authority only: end this state without the nodes that it waits for. A node that is left behind in grace has to be enrolled again
        #[arg(long, value_name = "STATE", requires = "reason")]
        force: Option<Waiting>,
        /// Why it is forced, in one line; kept in the audit
        #[arg(long, value_name = "TEXT", requires = "force")]
        reason: Option<String>,
    },
    /// End a key that may have leaked: nodes take no task of it any more, and where it signed, another signs at once
    Revoke {
        /// The key's id, as `keys list` has it
        key: String,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List { purpose: Listed::Authority } => {
            let authorities = client.list_authorities().await?.items;
            let row = |of: &Authority| {
                let waiting_for = of.waiting_for.clone().unwrap_or_default();
                vec![of.id.clone(), of.state.clone(), of.changed_at.clone(), waiting_for]
            };
            output::list(target.output, &authorities, &COLUMNS, row, |authority| authority.id.clone())
        }
        Verb::List { purpose: Listed::TaskSigning } => {
            let keys = client.list_signing_keys().await?.items;
            output::list(target.output, &keys, &COLUMNS, row, |key| key.id.clone())
        }
        Verb::Rotate { purpose: Purpose::TaskSigning | Purpose::Sealing, force: Some(_), .. } => {
            anyhow::bail!("only the rotation of an authority waits for nodes that are away, and can be forced")
        }
        Verb::Rotate { purpose: Purpose::Authority, force, reason } => {
            let mut authority = match force {
                Some(waiting) => forced(client, waiting, reason.unwrap_or_default()).await?,
                None => client.rotate_authority().await?,
            };
            if target.wait {
                authority = succeeded(client, authority).await?;
            }
            output::one(target.output, &authority, |of| format!("Authority {} is {}.", of.id, of.state), &authority.id)
        }
        Verb::Rotate { purpose: Purpose::TaskSigning, .. } => {
            let mut key = client.rotate_signing_keys().await?;
            if target.wait {
                key = rotated(client, key).await?;
            }
            output::one(target.output, &key, described, &key.id)
        }
        Verb::Rotate { purpose: Purpose::Sealing, .. } => {
            let mut key = client.rotate_sealing_key().await?;
            if target.wait {
                key = sealed_again(client, key).await?;
            }
            output::one(target.output, &key, sealing, &key.id)
        }
        Verb::Show { purpose: Shown::Sealing } => {
            let key = client.get_sealing_key().await?;
            output::one(target.output, &key, sealing, &key.id)
        }
        Verb::Revoke { key } => {
            let key = client.revoke_signing_key(&key).await?;
            output::one(target.output, &key, described, &key.id)
        }
    }
}

/// The authority after the state that it was in is ended.
async fn forced(client: &Client, waiting: Waiting, reason: String) -> anyhow::Result<Authority> {
    let state = waiting.as_str();
    let authorities = client.list_authorities().await?.items;
    // The server refuses it if none is in that state, or no longer.
    let named = authorities.iter().find(|authority| authority.state == state).or(authorities.last());
    let Some(authority) = named.map(|authority| authority.id.clone()) else {
        anyhow::bail!("the control plane lists no authority");
    };
    Ok(client.force_authority(&ForceAuthority { authority, state: state.to_owned(), reason }).await?)
}

const COLUMNS: [&str; 4] = ["ID", "STATE", "SINCE", "WAITING FOR"];

fn described(key: &SigningKey) -> String {
    format!("Key {} is {}.", key.id, key.state)
}

fn sealing(key: &SealingKey) -> String {
    let mut words = format!("Sealing key {} is in use: {}.", key.id, key.state.replace('_', " "));
    let more = [("Next", &key.next), ("Before", &key.previous), ("Waiting for", &key.waiting_for)];
    for (what, value) in more.into_iter().filter_map(|(what, value)| Some((what, value.as_ref()?))) {
        words.push_str(&format!("\n{what}: {value}"));
    }
    words
}

/// The sealing key once nothing is under the one before, told by events.
async fn sealed_again(client: &Client, began: SealingKey) -> anyhow::Result<SealingKey> {
    let mut events = Following::start(client, None, None).await?;
    loop {
        let key = client.get_sealing_key().await?;
        if key.id != began.id || key.previous.is_none() {
            return Ok(key);
        }
        loop {
            match events.next().await? {
                Next::Event(event) if event.kind != "sealing_key.state_changed" => {}
                Next::Event(_) | Next::Anew => break,
            }
        }
    }
}

fn row(key: &SigningKey) -> Vec<String> {
    let waiting_for = key.waiting_for.clone().unwrap_or_default();
    vec![key.id.clone(), key.state.clone(), key.changed_at.clone(), waiting_for]
}

/// The key once it signs alone, told by events.
async fn rotated(client: &Client, made: SigningKey) -> anyhow::Result<SigningKey> {
    let mut events = Following::start(client, None, None).await?;
    loop {
        let keys = client.list_signing_keys().await?.items;
        let under_way = keys.iter().any(|key| matches!(key.state.as_str(), "staged" | "grace"));
        if let Some(key) = keys.into_iter().find(|key| key.id == made.id).filter(|_| !under_way) {
            return Ok(key);
        }
        loop {
            match events.next().await? {
                Next::Event(event) if event.kind != "signing_key.state_changed" => {}
                Next::Event(_) | Next::Anew => break,
            }
        }
    }
}

/// The authority once nothing is to come by itself, told by events.
async fn succeeded(client: &Client, made: Authority) -> anyhow::Result<Authority> {
    let mut events = Following::start(client, None, None).await?;
    loop {
        let authorities = client.list_authorities().await?.items;
        let under_way = authorities.iter().any(|authority| matches!(authority.state.as_str(), "staged" | "grace"));
        if let Some(authority) = authorities.into_iter().find(|of| of.id == made.id).filter(|_| !under_way) {
            return Ok(authority);
        }
        loop {
            match events.next().await? {
                Next::Event(event) if event.kind != "authority.state_changed" => {}
                Next::Event(_) | Next::Anew => break,
            }
        }
    }
}

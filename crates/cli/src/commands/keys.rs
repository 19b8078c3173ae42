//! Implements `gpuaas keys`.

use clap::{Subcommand, ValueEnum};
use clap_complete::ArgValueCandidates;
use gpuaas_api_types::{Authority, ForceAuthority, SealingKey, SigningKey};
use gpuaas_client::{Client, ClientError};

use super::{
    confirm::{Confirm, Loss},
    following::{EventFollower, Next},
};
use crate::{
    completion, output,
    table::{Column, column},
    target::{Format, Target},
};

/// Kinds of keys that can be rotated.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RotatableKey {
    /// Key that signs the tasks for nodes
    TaskSigning,
    /// Certificate authority that issues the certificates of nodes and of the control plane
    #[value(alias = "authorities")]
    Authority,
    /// Key that encrypts secrets in the database; every replica must have loaded the next key first
    Sealing,
}

/// States in which an authority waits for nodes.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WaitState {
    /// New authority that issues once every connected node trusts it
    Staged,
    /// Old authority that is retired once every node has a certificate of the new one
    Grace,
}

impl WaitState {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Grace => "grace",
        }
    }

    fn loss(self) -> Loss {
        match self {
            Self::Staged => Loss::new(
                "use the new authority now",
                "It issues certificates although some nodes have not accepted it yet.",
            ),
            Self::Grace => Loss::new(
                "retire the old authority now",
                "Nodes that still have a certificate of it lose their identity and must enroll again.",
            ),
        }
    }
}

/// Kinds of keys that can be listed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ListableKey {
    /// Keys that sign or signed tasks
    TaskSigning,
    /// Certificate authorities that issue or issued certificates
    #[value(alias = "authorities")]
    Authority,
}

/// Kinds of keys that can be shown.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ShowableKey {
    /// Key that encrypts secrets in the database
    Sealing,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List task-signing keys or certificate authorities, and what each waits for
    List {
        /// Kind of keys to list
        #[arg(default_value = "task-signing")]
        purpose: ListableKey,
    },
    /// Show the public id of the key in use and the state of its rotation
    Show {
        /// Kind of key to show
        purpose: ShowableKey,
    },
    /// Replace the key in use by a new one without refusing tasks or dropping connections
    Rotate {
        /// Kind of key to rotate
        purpose: RotatableKey,
        /// Authority only: end this state without waiting for nodes. A node left behind in grace must be enrolled again
        #[arg(long, value_name = "STATE", requires = "reason")]
        force: Option<WaitState>,
        /// Reason for --force, in one line; kept in the audit record
        #[arg(long, value_name = "TEXT", requires = "force")]
        reason: Option<String>,
        /// Do not ask for confirmation of --force; required without a terminal
        #[arg(short, long, requires = "force")]
        yes: bool,
        /// Print what --force would do, and change nothing
        #[arg(long, requires = "force")]
        dry_run: bool,
    },
    /// Revoke a task-signing key that may have leaked: nodes refuse its tasks, and if it was active, another key signs at once
    Revoke {
        /// Id of the key, as `keys list` shows it
        #[arg(add = ArgValueCandidates::new(completion::signing_keys))]
        key: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List { purpose: ListableKey::Authority } => {
            let mut authorities = client.list_authorities().await?.items;
            if target.output == Format::Name {
                authorities.retain(|authority| authority.state != "retired");
            }
            output::list(target.output, &authorities, AUTHORITIES, |authority| authority.id.clone())
        }
        Verb::List { purpose: ListableKey::TaskSigning } => {
            let mut keys = client.list_signing_keys().await?.items;
            if target.output == Format::Name {
                keys.retain(|key| !matches!(key.state.as_str(), "retired" | "revoked"));
            }
            output::list(target.output, &keys, SIGNING_KEYS, |key| key.id.clone())
        }
        Verb::Rotate { purpose: RotatableKey::TaskSigning | RotatableKey::Sealing, force: Some(_), .. } => {
            let refused = "--force applies only to the rotation of an authority";
            Err(ClientError::InvalidSetting(refused.to_owned()).into())
        }
        Verb::Rotate { purpose: RotatableKey::Authority, force, reason, yes, dry_run } => {
            let mut authority = match force {
                Some(waiting) => {
                    let request = forced_step(client, waiting, reason.unwrap_or_default()).await?;
                    let dry = client.clone().with_dry_run();
                    let loss = |_: &Authority| waiting.loss();
                    let confirm = Confirm { yes, dry_run };
                    if !confirm.allows(target, dry.force_authority(&request), loss, &request.authority).await? {
                        return Ok(());
                    }
                    client.force_authority(&request).await?
                }
                None => client.rotate_authority().await?,
            };
            if target.wait {
                authority = await_succession(client, target, authority).await?;
            }
            output::one(target.output, &authority, |of| format!("Authority {} is {}.", of.id, of.state), &authority.id)
        }
        Verb::Rotate { purpose: RotatableKey::TaskSigning, .. } => {
            let mut key = client.rotate_signing_keys().await?;
            if target.wait {
                key = await_rotation(client, target, key).await?;
            }
            output::one(target.output, &key, described, &key.id)
        }
        Verb::Rotate { purpose: RotatableKey::Sealing, .. } => {
            let mut key = client.rotate_sealing_key().await?;
            if target.wait {
                key = await_resealing(client, target, key).await?;
            }
            output::one(target.output, &key, sealing, &key.id)
        }
        Verb::Show { purpose: ShowableKey::Sealing } => {
            let key = client.get_sealing_key().await?;
            output::one(target.output, &key, sealing, &key.id)
        }
        Verb::Revoke { key, confirm } => {
            let dry = client.clone().with_dry_run();
            let known = client.list_signing_keys().await?.items;
            let signs = known.iter().any(|of| of.id == key && of.state == "active");
            let loss = |of: &SigningKey| {
                let successor = if signs { " Another key signs from then on." } else { "" };
                let lost =
                    format!("Nodes refuse every task that it signed.{successor} A revoked key cannot be restored.");
                Loss::new(format!("revoke task-signing key {}", of.id), lost)
            };
            if !confirm.allows(target, dry.revoke_signing_key(&key), loss, &key).await? {
                return Ok(());
            }
            let key = client.revoke_signing_key(&key).await?;
            output::one(target.output, &key, described, &key.id)
        }
    }
}

/// Returns the request that ends the given waiting state.
async fn forced_step(client: &Client, waiting: WaitState, reason: String) -> anyhow::Result<ForceAuthority> {
    let state = waiting.as_str();
    let authorities = client.list_authorities().await?.items;
    // If no authority is in that state, the server refuses the request and explains it.
    let named = authorities.iter().find(|authority| authority.state == state).or(authorities.last());
    let Some(authority) = named.map(|authority| authority.id.clone()) else {
        anyhow::bail!("the control plane lists no authority");
    };
    Ok(ForceAuthority { authority, state: state.to_owned(), reason })
}

const AUTHORITIES: &[Column<Authority>] = &[
    column("ID", |authority| authority.id.clone()),
    column("STATE", |authority| authority.state.clone()),
    column("SINCE", |authority| authority.changed_at.clone()),
    column("WAITING FOR", |authority| authority.waiting_for.clone().unwrap_or_default()),
];

const SIGNING_KEYS: &[Column<SigningKey>] = &[
    column("ID", |key| key.id.clone()),
    column("STATE", |key| key.state.clone()),
    column("SINCE", |key| key.changed_at.clone()),
    column("WAITING FOR", |key| key.waiting_for.clone().unwrap_or_default()),
];

fn described(key: &SigningKey) -> String {
    format!("Key {} is {}.", key.id, key.state)
}

fn sealing(key: &SealingKey) -> String {
    let rotation = match key.state.as_str() {
        "settled" => "No rotation is running.".to_owned(),
        "next_taken" => "The next key is loaded.".to_owned(),
        "rotating" => format!("A rotation is running: {} rows are left.", key.rows_left),
        other => format!("State: {other}."),
    };
    let mut text = format!("Sealing key {} is in use. {rotation}", key.id);
    let more = [("Next", &key.next), ("Previous", &key.previous), ("Waiting for", &key.waiting_for)];
    for (what, value) in more.into_iter().filter_map(|(what, value)| Some((what, value.as_ref()?))) {
        text.push_str(&format!("\n{what}: {value}"));
    }
    text
}

/// A rotation that a command waits for.
struct Rotation {
    /// Kind of the events after which it may have ended.
    event: &'static str,
    /// The command that shows it.
    command: &'static str,
}

/// Waits until `read` returns the key of an ended rotation; until then it returns what the rotation waits for, which is printed when it
/// changes. Reads again after each event of the rotation.
async fn await_end<T>(
    client: &Client,
    target: &Target,
    rotation: Rotation,
    read: impl AsyncFn() -> Result<Result<T, String>, ClientError>,
) -> anyhow::Result<T> {
    let mut events = EventFollower::start(client, None, None).await?;
    let mut shown = None;
    loop {
        match read().await? {
            Ok(ended) => return Ok(ended),
            Err(waiting_for) if shown.as_ref() != Some(&waiting_for) => {
                output::hint(target.output, &format!("waiting for {waiting_for}"));
                target.waits_for(&waiting_for, &format!("see it: {}", rotation.command));
                shown = Some(waiting_for);
            }
            Err(_) => {}
        }
        loop {
            match events.next().await? {
                Next::Event(event) if event.kind != rotation.event => {}
                Next::Event(_) | Next::Reconnected => break,
            }
        }
    }
}

/// Returns what the keys of a rotation wait for.
fn waiting_for<'a>(reasons: impl Iterator<Item = Option<&'a String>>) -> String {
    let reasons: Vec<&str> = reasons.flatten().map(String::as_str).collect();
    if reasons.is_empty() { "the rotation to end".to_owned() } else { reasons.join("; ") }
}

/// Waits until no row is encrypted with the previous key.
async fn await_resealing(client: &Client, target: &Target, began: SealingKey) -> anyhow::Result<SealingKey> {
    let rotation = Rotation { event: "sealing_key.state_changed", command: "gpuaas keys show sealing" };
    let read = async || {
        let key = client.get_sealing_key().await?;
        let is_rotating = key.id == began.id && key.previous.is_some();
        Ok(if is_rotating { Err(waiting_for(std::iter::once(key.waiting_for.as_ref()))) } else { Ok(key) })
    };
    await_end(client, target, rotation, read).await
}

/// Waits until the key is the only one that signs.
async fn await_rotation(client: &Client, target: &Target, made: SigningKey) -> anyhow::Result<SigningKey> {
    let rotation = Rotation { event: "signing_key.state_changed", command: "gpuaas keys list" };
    let read = async || {
        let keys = client.list_signing_keys().await?.items;
        let reasons = waiting_for(keys.iter().map(|key| key.waiting_for.as_ref()));
        let is_rotating = keys.iter().any(|key| matches!(key.state.as_str(), "staged" | "grace"));
        Ok(keys.into_iter().find(|key| key.id == made.id).filter(|_| !is_rotating).ok_or(reasons))
    };
    await_end(client, target, rotation, read).await
}

/// Waits until no authority is staged or in grace.
async fn await_succession(client: &Client, target: &Target, made: Authority) -> anyhow::Result<Authority> {
    let rotation = Rotation { event: "authority.state_changed", command: "gpuaas keys list authority" };
    let read = async || {
        let authorities = client.list_authorities().await?.items;
        let reasons = waiting_for(authorities.iter().map(|of| of.waiting_for.as_ref()));
        let is_rotating = authorities.iter().any(|of| matches!(of.state.as_str(), "staged" | "grace"));
        Ok(authorities.into_iter().find(|of| of.id == made.id).filter(|_| !is_rotating).ok_or(reasons))
    };
    await_end(client, target, rotation, read).await
}

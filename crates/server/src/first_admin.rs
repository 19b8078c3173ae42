//! The one-time token by which a control plane gets its first administrator: made at the very first start, later only by a command on this
//! machine.
//!
//! Guarantees: a row, written in the token's transaction, records that the first start made a token; neither a lost file nor lost token
//! rows make a later start create another. The file is removed once its token was exchanged, revoked or has expired.
//!
//! Deliberately absent: the exchange (`engine::commands::bootstrap`).

use std::{
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use gpuaas_engine::{Keys, commands::bootstrap, port::Ports};
use gpuaas_model::{AuditAction, OwnActor, Role, Timestamp};
use gpuaas_store::{AuditFilter, AuditRecord, Change, Store, StoreError, TokenRecord};
use gpuaas_trust::SecretText;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use crate::{
    bootstrap::keys,
    data_dir::{ADMIN_TOKEN, refuse_unfinished_restore, write_private_for},
    error::ServerError,
    options::ServerOptions,
    ports, prior_use,
    sealing_key::KeyFiles,
};

/// Setting that records that the first one-time token was made. Its value is the token's id.
const FIRST_TOKEN_MADE: &str = "bootstrap.done";

/// Longest user name taken from the environment, in bytes: the limit of Linux.
const USER_BYTES_MAX: usize = 32;

/// A one-time token that can be exchanged for a platform admin's token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneTimeAdmin {
    /// File (0600) that holds the token.
    pub token_file: PathBuf,
    /// Expiry, RFC 3339.
    pub expires_at: String,
    /// URL of the API of a running replica; absent if none runs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub url: Option<String>,
}

/// Reasons for making a one-time token, for its audit record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenReason {
    /// The first start: there was never an administrator.
    FirstStart,
    /// A request on this machine, by `gpuaas server recover-admin`.
    Recovery,
    /// A restored backup, whose tokens are all revoked.
    Restore,
    /// An accepted history, whose tokens are all revoked.
    AcceptedHistory,
}

/// Makes a one-time token for a platform admin and writes it into `admin.token` of the data directory `folder` (0600, owned by the folder's
/// owner). Revokes every earlier one-time token; no later start makes one automatically. Audited.
///
/// Writes the file first: a row without its text would be a token that cannot be exchanged. May run while a control plane serves from the
/// same store.
pub(crate) async fn one_time_admin(
    store: &Store,
    keys: &Keys,
    folder: &Path,
    ports: &Ports,
    reason: TokenReason,
) -> Result<OneTimeAdmin, ServerError> {
    let (token, text) = bootstrap::generate(keys, ports);
    let made = write(folder, &token, &text)?;
    let mut tx = store.begin().await?;
    tx.put_setting_if_absent(FIRST_TOKEN_MADE, token.id.to_string().as_bytes()).await?;
    let (actor, action, metadata) = reason.audit_entry(&made);
    bootstrap::insert(&mut tx, &token, actor, action, metadata).await?;
    tx.commit().await?;
    Ok(made)
}

/// Makes the first one-time token if this control plane has never made one, and removes the file of one that is no longer valid. Returns
/// the file of a token that can be exchanged now.
pub(crate) async fn at_start(
    store: &Store,
    keys: &Keys,
    folder: &Path,
    ports: &Ports,
) -> Result<Option<PathBuf>, ServerError> {
    if is_first_start(store).await? {
        let (token, text) = bootstrap::generate(keys, ports);
        let made = write(folder, &token, &text)?;
        let mut tx = store.begin().await?;
        let id = token.id.to_string();
        // Another replica may have been first.
        if tx.put_setting_if_absent(FIRST_TOKEN_MADE, id.as_bytes()).await? == id.as_bytes() {
            let (actor, action, metadata) = TokenReason::FirstStart.audit_entry(&made);
            bootstrap::insert(&mut tx, &token, actor, action, metadata).await?;
            tx.commit().await?;
            return Ok(Some(made.token_file));
        }
    }
    match file_state(store, folder, ports.clock.now()).await? {
        FileState::Valid(file) => Ok(Some(file)),
        FileState::Absent => Ok(None),
        FileState::Unknown | FileState::Ended => {
            remove(folder);
            Ok(None)
        }
    }
}

/// One more than the number of audit records that exist when a first start makes its token.
const FIRST_RECORDS: u32 = 3;

/// Reports whether there was never an administrator. Anyone with write access to the database can remove the setting, so the audit must
/// agree: its numbers only grow, and its newest record is never deleted.
async fn is_first_start(store: &Store) -> Result<bool, StoreError> {
    let mut reader = store.read().await?;
    let audit = reader.audits(&AuditFilter { limit: Some(FIRST_RECORDS), ..AuditFilter::default() }).await?;
    // A first start has just created an authority and a task-signing key.
    let is_made_at_start =
        |record: &AuditRecord| matches!(record.action, AuditAction::AuthorityActivate | AuditAction::KeyActivate);
    // Higher numbers follow records that are in an archive already.
    let is_new = audit.iter().all(|record| record.sequence <= u64::from(FIRST_RECORDS) && is_made_at_start(record));
    Ok(is_new && reader.setting(FIRST_TOKEN_MADE).await?.is_none())
}

/// Removes the file as soon as its token is spent or revoked, at any replica.
pub(crate) async fn remove_when_spent(store: Store, folder: PathBuf, ports: Ports) {
    let mut changes = store.changes();
    loop {
        match changes.recv().await {
            Ok(Change::Token(_) | Change::Missed) | Err(RecvError::Lagged(_)) => {}
            Ok(_) => continue,
            Err(RecvError::Closed) => return,
        }
        // An unknown token may be one that another process is creating now. After a read error the next start checks again.
        if matches!(file_state(&store, &folder, ports.clock.now()).await, Ok(FileState::Ended)) {
            remove(&folder);
        }
    }
}

/// Makes a one-time token for a user who can read the data directory and its sealing key. The control plane may be running.
pub async fn recover_admin(options: &ServerOptions) -> Result<OneTimeAdmin, ServerError> {
    refuse_unfinished_restore(&options.data_dir)?;
    let ports = ports::system();
    prior_use::require_platform(options).await?;
    let sealing = KeyFiles::of(options)?.keys()?;
    let store = Store::open(&options.store(), ports.clock.clone()).await?;
    let made = async {
        // Fails if the sealing key does not decrypt the store's secrets: it is then another control plane's store.
        let keys = keys(&store, sealing, &ports).await?;
        let made = one_time_admin(&store, &keys, &options.data_dir, &ports, TokenReason::Recovery).await?;
        let replicas = store.read_once().await?.replicas().await?;
        let running = replicas.into_iter().find(|life| !life.time_left.is_zero());
        Ok(OneTimeAdmin { url: running.map(|life| life.replica.api_url), ..made })
    };
    let made = made.await;
    store.close().await;
    made
}

/// The state of the token's file.
enum FileState {
    /// The file does not exist.
    Absent,
    /// The token in the file can be exchanged.
    Valid(PathBuf),
    /// The token was exchanged, revoked or has expired, or is not a one-time token.
    Ended,
    /// The store has no such token.
    Unknown,
}

async fn file_state(store: &Store, folder: &Path, now: Timestamp) -> Result<FileState, StoreError> {
    let file = folder.join(ADMIN_TOKEN);
    let Ok(text) = std::fs::read_to_string(&file) else { return Ok(FileState::Absent) };
    let sha256 = SecretText::new(text.trim().to_owned()).sha256();
    Ok(match store.read().await?.token_by_sha256(&sha256).await? {
        None => FileState::Unknown,
        Some(token) if bootstrap::holder(&token, now).is_ok() => FileState::Valid(file),
        Some(_) => FileState::Ended,
    })
}

fn write(folder: &Path, token: &TokenRecord, text: &SecretText) -> Result<OneTimeAdmin, ServerError> {
    let failed = |source| ServerError::Io { what: "writing the one-time admin token", source };
    // Root may run this while the control plane runs as another user.
    let owner = std::fs::metadata(folder).map_err(failed)?;
    let token_file = folder.join(ADMIN_TOKEN);
    write_private_for((owner.uid(), owner.gid()), &token_file, text.expose().as_bytes()).map_err(failed)?;
    let expires_at = token.expires_at.map(|at| at.to_string()).unwrap_or_default();
    Ok(OneTimeAdmin { token_file, expires_at, url: None })
}

fn remove(folder: &Path) {
    let file = folder.join(ADMIN_TOKEN);
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(file = %file.display(), %error, "the file of a spent or expired one-time admin token could not be removed");
        }
        Ok(()) | Err(_) => {}
    }
}

impl TokenReason {
    /// Returns the actor, action and metadata of the audit record.
    fn audit_entry(self, made: &OneTimeAdmin) -> (OwnActor, AuditAction, Value) {
        let expires_at = &made.expires_at;
        match self {
            Self::FirstStart => {
                let metadata =
                    json!({ "occasion": "first_start", "role": Role::PlatformAdmin, "expires_at": expires_at });
                (OwnActor::ControlPlane, AuditAction::TokenCreate, metadata)
            }
            Self::Recovery => {
                let uid = nix::unistd::getuid();
                let user = nix::unistd::User::from_uid(uid).ok().flatten().map(|user| user.name);
                // Set by sudo: the user who became root.
                let sudo_user = std::env::var("SUDO_USER").ok().filter(|name| name.len() <= USER_BYTES_MAX);
                let metadata = json!({
                    "occasion": "recovery", "expires_at": expires_at, "uid": uid.as_raw(), "os_user": user,
                    "sudo_user": sudo_user,
                });
                (OwnActor::Local, AuditAction::AdminRecover, metadata)
            }
            Self::Restore | Self::AcceptedHistory => {
                let occasion = if self == Self::Restore { "restore" } else { "accepted_history" };
                (OwnActor::Local, AuditAction::AdminRecover, json!({ "occasion": occasion, "expires_at": expires_at }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, time::Duration};

    use gpuaas_store::{Expired, StoreOptions};
    use gpuaas_trust::SealingKey;

    use super::*;

    async fn store_in(folder: &Path, ports: &Ports) -> (Store, Keys) {
        let options = StoreOptions { url: format!("sqlite://{}", folder.join("store.db").display()) };
        let store = Store::open(&options, ports.clock.clone()).await.unwrap();
        let keys = keys(&store, SealingKey::new(&[7; 32]).unwrap().into(), ports).await.unwrap();
        (store, keys)
    }

    #[tokio::test]
    async fn only_the_first_start_makes_a_one_time_token() {
        let (folder, ports) = (tempfile::tempdir().unwrap(), ports::system());
        let (store, keys) = store_in(folder.path(), &ports).await;
        let start = async || at_start(&store, &keys, folder.path(), &ports).await.unwrap();
        let file = start().await.expect("the first start makes one");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read(&file).unwrap();
        assert_eq!(start().await, Some(file.clone()), "it waits to be exchanged");
        assert_eq!(std::fs::read(&file).unwrap(), text, "it is the same");

        std::fs::rename(&file, folder.path().join("lost")).unwrap();
        assert_eq!(start().await, None, "its file was lost");
        std::fs::rename(folder.path().join("lost"), &file).unwrap();
        let mut tx = store.begin().await.unwrap();
        let token = tx.all_tokens().await.unwrap().remove(0);
        tx.revoke_token(token.id, ports.clock.now()).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(start().await, None, "it was revoked");
        assert!(!file.exists(), "the file of a revoked token remains");

        let later = ports.clock.now().plus(Duration::from_secs(60));
        assert!(store.delete_expired(Expired::Tokens(later)).await.unwrap());
        assert_eq!(start().await, None, "its row was lost");
        assert!(!file.exists());
        let mut tx = store.begin().await.unwrap();
        tx.remove_setting(FIRST_TOKEN_MADE).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(start().await, None, "the setting that records it was removed");
    }
}

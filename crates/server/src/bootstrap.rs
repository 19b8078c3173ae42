//! Creates on the first start, and loads on every later one, the control plane's id and keys.

use std::sync::Arc;

use gpuaas_app_rke2::{Deadlines, Rke2};
use gpuaas_app_rke2_effects::Rke2Effects;
use gpuaas_engine::{
    AppEntry, Catalog, Keys, KeysError, RevokedCredentials, open_authority, port::Ports, record_proof,
    revoke_restored_credentials, stored_authority,
};
use gpuaas_model::{AuditAction, KeyState, OwnActor, Timestamp};
use gpuaas_store::{NewAudit, PLATFORM, SealingRecord, Store, StoreError, StoreOptions, Tx, raised_number};
use gpuaas_trust::{Authority, SealingKeys, ServerKey, TaskSigner, TokenKey};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::error::ServerError;

/// Setting that held the only task-signing key before there could be several.
const FIRST_KEY: &str = "task-signing.key";

/// Setting that held the only authority's certificate before there could be several.
const FIRST_AUTHORITY: &str = "authority.certificate";
/// Setting that held that authority's sealed key.
const FIRST_AUTHORITY_KEY: &str = "authority.key";

/// Setting with the sealed private key of the API listener.
const API_KEY: &str = "api.key";

/// Setting with the sealed key that makes and checks tokens.
const TOKEN_KEY: &str = "token.key";

/// The settings whose values are sealed.
pub(crate) const SEALED_SETTINGS: [&str; 4] = [FIRST_KEY, FIRST_AUTHORITY_KEY, API_KEY, TOKEN_KEY];

/// Returns the app catalog.
pub(crate) fn catalog(rke2: Deadlines) -> Catalog {
    Catalog::default()
        .with(AppEntry { app: Arc::new(Rke2::with_deadlines(rke2)), effects: Arc::new(Rke2Effects::default()) })
}

/// Returns the OpenAPI document, as a control plane with this catalog serves it.
pub fn api_document() -> Value {
    let catalog = catalog(Deadlines::default());
    let manifests: Vec<_> = catalog.apps().map(|entry| entry.app.manifest()).collect();
    gpuaas_api::document(&manifests)
}

/// Loads or creates the keys. The store holds them encrypted with the sealing key, which never enters the store.
pub(crate) async fn keys(store: &Store, sealing: SealingKeys, ports: &Ports) -> Result<Keys, ServerError> {
    let trust = |error: &dyn std::fmt::Display| ServerError::Trust(error.to_string());
    let fresh_id = gpuaas_model::ReplicaId::generate(&*ports.clock, &*ports.entropy).to_string();
    let mut tx = store.begin().await?;
    // Checked first: with another sealing key, the platform's own rows would count as forged.
    let named = tx.sealing().await?;
    if let Some(named) = &named {
        use_key(&sealing, named)?;
    }
    let is_new = tx.setting(PLATFORM).await?.is_none();
    let id = tx.put_setting_if_absent(PLATFORM, fresh_id.as_bytes()).await?;
    let id = String::from_utf8(id).map_err(|error| StoreError::corrupt("settings", PLATFORM, "value", error))?;
    let version = first_version(is_new, ports.clock.now());
    let sealing = Arc::new(sealing);
    store.set_record_proof(record_proof(sealing.clone()));
    let authority = authority(&mut tx, &sealing, is_new.then_some(&*id), ports).await?;
    // The authority's key was decrypted, so the sealing key is the right one.
    if named.is_none() {
        tx.put_sealing(&SealingRecord::new(sealing.active(), ports.clock.now())).await?;
    }
    let tokens = token_key(&mut tx, &sealing, ports).await?;
    let keys = Keys::new(id, authority, sealing, tokens);
    tx.remove_forged_authorities().await?;
    tx.remove_forged_signing_keys().await?;
    if tx.signing_keys().await?.is_empty() {
        let now = ports.clock.now();
        let made = match tx.setting(FIRST_KEY).await? {
            Some(sealed) => {
                let seed = open(keys.sealing(), Some(sealed), FIRST_KEY)?;
                let seed: [u8; 32] = seed.as_slice().try_into().map_err(|error| trust(&error))?;
                tx.remove_setting(FIRST_KEY).await?;
                keys.stored_signing_key(&TaskSigner::from_seed(&seed), KeyState::Active, version, now)
            }
            None => keys.generate_signing_key(KeyState::Active, version, now, &*ports.entropy),
        };
        let made = made.map_err(|error| trust(&error))?;
        tx.insert_signing_key(&made).await?;
        let target = format!("signing-key/{}", made.key.key_id);
        tx.append_audit(&NewAudit::of_own(
            OwnActor::ControlPlane,
            AuditAction::KeyActivate,
            target,
            json!({ "version": version }),
        ))
        .await?;
    }
    // Also loads the other authorities, which exist during a rotation.
    keys.ring(&mut tx).await.map_err(keys_error)?;
    tx.commit().await?;
    Ok(keys)
}

/// Loads or creates the key that makes tokens and authenticates them. All replicas share it, because each accepts the others' tokens.
async fn token_key(tx: &mut Tx, sealing: &SealingKeys, ports: &Ports) -> Result<TokenKey, ServerError> {
    let trust = |error: &dyn std::fmt::Display| ServerError::Trust(error.to_string());
    let kept = match tx.setting(TOKEN_KEY).await? {
        Some(kept) => kept,
        None => {
            let mut made = Zeroizing::new([0; TokenKey::BYTES]);
            ports.entropy.fill(&mut *made);
            let sealed = sealing.seal(TOKEN_KEY.as_bytes(), &*made).map_err(|error| trust(&error))?;
            // Another replica may have stored its key first; then that key counts.
            tx.put_setting_if_absent(TOKEN_KEY, &sealed).await?
        }
    };
    let bytes = open(sealing, Some(kept), TOKEN_KEY)?;
    let bytes: &[u8; TokenKey::BYTES] = bytes.as_slice().try_into().map_err(|error| trust(&error))?;
    Ok(TokenKey::new(bytes))
}

/// Returns the version of a key set whose first key is made now. Agents refuse key sets older than theirs. If the control plane existed
/// before, its agents hold a set, and the rows with its version were lost or forged: the version then leaps past every earlier one.
fn first_version(is_new: bool, now: Timestamp) -> u64 {
    if is_new { 1 } else { raised_number(0, now) }
}

/// Loads the active authority. The first start, recognized by the id in `new`, creates it. An authority in the settings, from before there
/// could be several, is moved into a row.
async fn authority(
    tx: &mut Tx,
    sealing: &SealingKeys,
    new: Option<&str>,
    ports: &Ports,
) -> Result<Authority, ServerError> {
    let trust = |error: &dyn std::fmt::Display| ServerError::Trust(error.to_string());
    let kept = tx.authorities().await?.into_iter().find(|stored| stored.authority.state == KeyState::Active);
    if let Some(kept) = kept {
        let opened = open_authority(sealing, &kept);
        let named = |error| StoreError::corrupt("authorities", &kept.authority.id, "sealed_key", error);
        return Ok(opened.map_err(named)?);
    }
    let ids = tx.authority_ids().await?;
    if !ids.is_empty() {
        let why = "no active authority verifies with this sealing key: the key belongs to another control plane, or the rows were changed";
        return Err(StoreError::corrupt("authorities", ids.join(", "), "code", why).into());
    }
    let now = ports.clock.now();
    let made = match tx.setting(FIRST_AUTHORITY).await? {
        Some(certificate) => {
            let key = open(sealing, tx.setting(FIRST_AUTHORITY_KEY).await?, FIRST_AUTHORITY_KEY)?;
            Authority::from_pem(&String::from_utf8_lossy(&certificate), &String::from_utf8_lossy(&key))
        }
        None => match new {
            Some(control_plane) => Authority::generate(control_plane, now),
            None => {
                let why = "the certificate authority is missing, which every node trusts: restore a backup";
                return Err(StoreError::corrupt("authorities", "*", "id", why).into());
            }
        },
    };
    let made = made.map_err(|error| trust(&error))?;
    let stored = stored_authority(sealing, &made, KeyState::Active, 1, now).map_err(|error| trust(&error))?;
    tx.insert_authority(&stored).await?;
    tx.remove_setting(FIRST_AUTHORITY).await?;
    tx.remove_setting(FIRST_AUTHORITY_KEY).await?;
    let target = format!("authority/{}", stored.authority.id);
    tx.append_audit(&NewAudit::of_own(
        OwnActor::ControlPlane,
        AuditAction::AuthorityActivate,
        target,
        json!({ "version": 1 }),
    ))
    .await?;
    Ok(made)
}

/// Completes a restore that was interrupted before it had revoked the backup's credentials.
pub(crate) async fn finish_restore(
    store: &Store,
    keys: &Keys,
    ports: &Ports,
) -> Result<Option<RevokedCredentials>, ServerError> {
    revoke_restored_credentials(store, keys, ports).await.map_err(keys_error)
}

fn keys_error(error: KeysError) -> ServerError {
    match error {
        KeysError::Store(error) => error.into(),
        other => ServerError::Trust(other.to_string()),
    }
}

/// Loads or creates the key of the API listener. All replicas share it, because enrollment commands pin it.
pub(crate) async fn api_key(store: &Store, keys: &Keys) -> Result<ServerKey, ServerError> {
    let trust = |error: &dyn std::fmt::Display| ServerError::Trust(error.to_string());
    let mut tx = store.begin().await?;
    let kept = match tx.setting(API_KEY).await? {
        Some(kept) => kept,
        None => {
            let made = ServerKey::generate().map_err(|error| trust(&error))?;
            let sealed = keys.sealing().seal(API_KEY.as_bytes(), made.to_pem().as_bytes());
            // Another replica may have stored its key first; then that key counts.
            tx.put_setting_if_absent(API_KEY, &sealed.map_err(|error| trust(&error))?).await?
        }
    };
    tx.commit().await?;
    let pem = open(keys.sealing(), Some(kept), API_KEY)?;
    ServerKey::from_pem(&String::from_utf8_lossy(&pem)).map_err(|error| trust(&error))
}

/// Activates the key that the rows name. During a rotation the previous key is needed too, because some rows are encrypted only with it.
fn use_key(sealing: &SealingKeys, named: &SealingRecord) -> Result<(), ServerError> {
    check_held(sealing, named)?;
    sealing.activate(&named.current);
    Ok(())
}

/// Refuses key files that lack a key that the rows name. Called before the store is opened, because opening moves SQLite's write-ahead log
/// into the database file.
pub(crate) async fn check_keys(options: &StoreOptions, sealing: &SealingKeys) -> Result<(), ServerError> {
    options.sealing().await?.map_or(Ok(()), |named| check_held(sealing, &named))
}

fn check_held(sealing: &SealingKeys, named: &SealingRecord) -> Result<(), ServerError> {
    let Some(lacking) = named.ids().find(|id| !sealing.holds(id)) else { return Ok(()) };
    let held: Vec<String> = std::iter::once(sealing.active()).chain(sealing.next()).collect();
    Err(ServerError::SealingKeyMismatch { needed: lacking.clone(), held: held.join(", ") })
}

fn open(sealing: &SealingKeys, sealed: Option<Vec<u8>>, name: &str) -> Result<Zeroizing<Vec<u8>>, ServerError> {
    let corrupt = |why: &dyn std::fmt::Display| StoreError::corrupt("settings", name, "value", why);
    let sealed = sealed.ok_or_else(|| corrupt(&"the row is missing"))?;
    Ok(sealing.open(name.as_bytes(), &sealed).map_err(|error| corrupt(&error))?)
}

#[cfg(test)]
mod tests;

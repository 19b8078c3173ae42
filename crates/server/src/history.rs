//! Checks whether the store has every change that this process acknowledged, and applies an operator's decision if it has not.
//!
//! The data directory holds a high-water mark, with PostgreSQL too: a failover of the database can lose acknowledged changes. If the store
//! lacks a change, or nothing proves that it lacks none, the control plane does not start.
//!
//! Guarantees: a crash at any point leaves a true mark or one that states nothing; the next start completes an accepted history.

use std::{path::Path, time::Duration};

use gpuaas_engine::{RevokedCredentials, port::Ports};
use gpuaas_model::{AuditAction, OwnActor, Timestamp};
use gpuaas_store::{Comparison, Eviction, FoundMark, HistoryPoint, Mark, MarkFile, NewAudit, Store};
use gpuaas_trust::SealingKeys;
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use crate::{
    bootstrap,
    data_dir::{self, DataDir, MARK, set_owner},
    error::ServerError,
    first_admin::{self, OneTimeAdmin, TokenReason},
    options::ServerOptions,
    ports, prior_use,
    sealing_key::KeyFiles,
};

/// Interval of syncing the mark to disk while changes are made. A power cut can lose that much of it: an older mark is still true.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// A store that the control plane may serve from.
pub(crate) enum HistoryCheck {
    /// The store has everything that the mark states.
    Complete(MarkFile),
    /// The store is not known to lack anything. A new mark replaces the one with this id, if there was one.
    NewMark(Option<Uuid>),
}

/// The result of accepting a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AcceptedHistory {
    /// Description of the problem that was accepted.
    pub found: String,
    /// Credentials that were revoked and nodes that must enroll again. Absent with `keep_credentials`.
    pub ended: Option<RevokedCredentials>,
    /// One-time token for a new platform admin. Absent with `keep_credentials`.
    pub admin: Option<OneTimeAdmin>,
}

/// Reasons why the control plane may not serve from a store.
enum HistoryProblem {
    /// The store lacks a change that the mark states, written at that time; without a time another process recorded the problem.
    WentBack(String, Option<Timestamp>),
    /// Nothing proves that the store is complete.
    Unproven(String),
}

/// Compares the store with the mark of the data directory. Called before the store is opened, because opening moves the write-ahead log
/// into the database file: a damaged log stays available for recovery.
pub(crate) async fn check(options: &ServerOptions, ports: &Ports) -> Result<HistoryCheck, ServerError> {
    match evaluate_store(options).await? {
        Ok(standing) => Ok(standing),
        Err(HistoryProblem::Unproven(why)) => Err(ServerError::HistoryUnverified(why)),
        Err(HistoryProblem::WentBack(why, noticed)) => {
            if let Some(noticed) = noticed.filter(|_| options.store_url.is_some()) {
                // Other replicas may not have noticed and must stop too.
                let store = Store::open(&options.store(), ports.clock.clone()).await?;
                let stopped = store.stop_changes(&why, noticed).await;
                store.close().await;
                stopped?;
            }
            Err(ServerError::HistoryRolledBack(why))
        }
    }
}

/// Describes, as a phrase, what is wrong with a store's history; `None` if nothing is. Changes nothing. May run while the control plane
/// runs, because that raises the mark only after it changed the store.
pub(crate) async fn problem(options: &ServerOptions) -> Result<Option<String>, ServerError> {
    Ok(match evaluate_store(options).await? {
        Ok(_) => None,
        Err(HistoryProblem::WentBack(why, _)) => Some(format!("history went back: {why}")),
        Err(HistoryProblem::Unproven(why)) => Some(format!("the store may not be the newest: {why}")),
    })
}

async fn evaluate_store(options: &ServerOptions) -> Result<Result<HistoryCheck, HistoryProblem>, ServerError> {
    // Read the mark first: a running control plane raises it after it changed the store.
    let found = open(&options.data_dir)?;
    let id = id_of(&found);
    Ok(match options.store().history(id).await? {
        Some(point) => evaluate(found, point, &options.data_dir, options.store_url.is_some()),
        None => Ok(HistoryCheck::NewMark(id)),
    })
}

fn evaluate(
    found: FoundMark,
    point: HistoryPoint,
    folder: &Path,
    is_shared: bool,
) -> Result<HistoryCheck, HistoryProblem> {
    let (path, id) = (folder.join(MARK), id_of(&found));
    if point.is_restored_or_accepted {
        return Ok(HistoryCheck::NewMark(id));
    }
    let unproven = |why: String| Err(HistoryProblem::Unproven(why));
    // Any number of data directories may use a shared store, so only the directory itself shows whether it had a mark.
    let needs_mark = data_dir::requires_mark(folder) || (!is_shared && point.generation.is_some());
    let compared = match found {
        FoundMark::Damaged(why) => return unproven(format!("{} is damaged: {why}", path.display())),
        FoundMark::Absent if needs_mark => {
            return unproven(format!("{} is missing, although the store has one", path.display()));
        }
        FoundMark::Absent => None,
        FoundMark::Valid(file) => Some((point.compare(file.mark()), file)),
    };
    if let Some((Comparison::WentBack(why), file)) = &compared {
        return Err(HistoryProblem::WentBack(why.clone(), Some(file.mark().at)));
    }
    if let Some(why) = point.went_back {
        return Err(HistoryProblem::WentBack(why, None));
    }
    match compared {
        Some((Comparison::Continues, file)) => Ok(HistoryCheck::Complete(file)),
        Some((Comparison::OtherControlPlane(why), _)) => unproven(format!("{}: {why}", path.display())),
        Some((Comparison::Inconclusive | Comparison::WentBack(_), _)) | None => Ok(HistoryCheck::NewMark(id)),
    }
}

fn id_of(found: &FoundMark) -> Option<Uuid> {
    match found {
        FoundMark::Valid(file) => Some(file.mark().id),
        FoundMark::Absent | FoundMark::Damaged(_) => None,
    }
}

fn open(folder: &Path) -> Result<FoundMark, ServerError> {
    MarkFile::open(&folder.join(MARK)).map_err(|source| ServerError::Io { what: "reading the high-water mark", source })
}

/// Uses the checked mark, or a new one, for all later changes.
pub(crate) async fn use_mark(
    store: &Store,
    data: &DataDir,
    check: HistoryCheck,
    control_plane: &str,
    ports: &Ports,
) -> Result<(), ServerError> {
    let file = match check {
        HistoryCheck::Complete(file) => file,
        HistoryCheck::NewMark(replaced) => create_mark(store, data.path(), replaced, control_plane, ports).await?,
    };
    store.keep_mark(file);
    Ok(())
}

/// Creates a mark in a folder. Writes its file before the row that records it, so a crash in between leaves a mark that states nothing yet.
pub(crate) async fn create_mark(
    store: &Store,
    folder: &Path,
    replaced: Option<Uuid>,
    control_plane: &str,
    ports: &Ports,
) -> Result<MarkFile, ServerError> {
    let now = ports.clock.now();
    let point = store.read().await?.history(None).await?;
    let first = point.generation.unwrap_or_else(|| u64::try_from(now.as_millis()).unwrap_or(0));
    let create = |generation| {
        let mark = Mark::fresh(control_plane.to_owned(), generation, point.audit.0, now);
        let created =
            MarkFile::create(&folder.join(MARK), mark).and_then(|file| set_owner(folder, MARK).map(|()| file));
        created.map_err(|source| ServerError::Io { what: "writing the high-water mark", source })
    };
    let file = create(first)?;
    let mut tx = store.begin().await?;
    let generation = tx.begin_marks(first).await?;
    if let Some(replaced) = replaced {
        tx.delete_mark(replaced).await?;
    }
    tx.commit().await?;
    // Another replica may have recorded its generation first.
    if generation == first { Ok(file) } else { create(generation) }
}

/// Syncs the mark to disk a second after it was raised, together with all later raises in that second.
pub(crate) async fn sync(store: Store) {
    loop {
        store.mark_raised().await;
        tokio::time::sleep(SYNC_EVERY).await;
        let store = store.clone();
        let synced = tokio::task::spawn_blocking(move || store.sync_mark()).await;
        if let Ok(Err(error)) = synced {
            tracing::error!(%error, "the high-water mark may not be durable");
        }
    }
}

/// Accepts a history that went back or cannot be proven complete. Missing changes are lost, and all credentials are revoked, as after a
/// restore. With `keep_credentials` an operator confirms that nothing is missing; this is refused if the store lacks a change. Fails while another
/// process uses the data directory.
pub async fn accept_history(options: &ServerOptions, keep_credentials: bool) -> Result<AcceptedHistory, ServerError> {
    let (data, sealing) = open_for_acceptance(options).await?;
    let ports = ports::system();
    let found = match Box::pin(check(options, &ports)).await {
        Ok(_) => return Err(ServerError::HistoryComplete),
        Err(ServerError::HistoryRolledBack(why)) if keep_credentials => {
            return Err(ServerError::HistoryRolledBack(why));
        }
        Err(ServerError::HistoryRolledBack(why) | ServerError::HistoryUnverified(why)) => why,
        Err(error) => return Err(error),
    };
    let store = Store::open(&options.store(), ports.clock.clone()).await?;
    let accepted = Box::pin(apply_acceptance(found, sealing, &data, &store, &ports, keep_credentials)).await;
    store.close().await;
    accepted
}

/// Returns the problem that [`accept_history`] would accept, or its refusal. Changes nothing.
pub async fn preview_accept_history(
    options: &ServerOptions,
    keep_credentials: bool,
) -> Result<AcceptedHistory, ServerError> {
    let _used = open_for_acceptance(options).await?;
    match evaluate_store(options).await? {
        Ok(_) => Err(ServerError::HistoryComplete),
        Err(HistoryProblem::WentBack(why, _)) if keep_credentials => Err(ServerError::HistoryRolledBack(why)),
        Err(HistoryProblem::WentBack(found, _) | HistoryProblem::Unproven(found)) => {
            Ok(AcceptedHistory { found, ended: None, admin: None })
        }
    }
}

/// Locks the data directory, and refuses one without a control plane and a wrong sealing key.
async fn open_for_acceptance(options: &ServerOptions) -> Result<(DataDir, SealingKeys), ServerError> {
    let data = DataDir::open(&options.data_dir)?;
    prior_use::require_platform(options).await?;
    let sealing = KeyFiles::of(options)?.keys()?;
    bootstrap::check_keys(&options.store(), &sealing).await?;
    Ok((data, sealing))
}

async fn apply_acceptance(
    found: String,
    sealing: SealingKeys,
    data: &DataDir,
    store: &Store,
    ports: &Ports,
    keep_credentials: bool,
) -> Result<AcceptedHistory, ServerError> {
    let keys = bootstrap::keys(store, sealing, ports).await?;
    record_decision(store, &found, keep_credentials).await?;
    let replaced = id_of(&open(data.path())?);
    create_mark(store, data.path(), replaced, keys.control_plane(), ports).await?;
    if keep_credentials {
        return Ok(AcceptedHistory { found, ended: None, admin: None });
    }
    let ended = bootstrap::finish_restore(store, &keys, ports).await?;
    let admin = first_admin::one_time_admin(store, &keys, data.path(), ports, TokenReason::AcceptedHistory).await?;
    Ok(AcceptedHistory { found, ended, admin: Some(admin) })
}

/// Records the decision. If the process dies later, the next start does the rest.
async fn record_decision(store: &Store, found: &str, keep_credentials: bool) -> Result<(), ServerError> {
    if !store.is_shared() {
        // This process holds the data directory's lock, so no replica of the store is alive.
        for life in store.read_once().await?.replicas().await? {
            store.evict_replica(life.replica.id, Eviction::Unconditional).await?;
        }
    }
    let mut tx = store.begin().await?;
    if !keep_credentials {
        tx.begin_next_generation().await?;
    }
    let metadata = json!({ "found": found, "keep_credentials": keep_credentials });
    let (action, target) = (AuditAction::ServerHistoryAccept, "control-plane".to_owned());
    tx.append_audit(&NewAudit::of_own(OwnActor::Operator, action, target, metadata)).await?;
    Ok(tx.commit().await?)
}

//! Whether the store has all that this process has said is done, and what a person decides where it has not.
//!
//! The mark lies in the data directory, on PostgreSQL too: a server that fails over may lose what it had answered. Where the store lacks something, or
//! nothing tells whether it does, no start serves from it.
//!
//! Guarantees: a crash anywhere leaves a mark that is true, or one that says nothing; an accepted history is completed by the next start.

use std::{path::Path, time::Duration};

use gpuaas_engine::{Ended, port::Ports};
use gpuaas_model::{ActorType, AuditAction, AuditResult, OwnActor, Timestamp};
use gpuaas_store::{Burial, Compared, FoundMark, HistoryPoint, Mark, MarkFile, NewAudit, Store};
use gpuaas_trust::SealingKeys;
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use crate::{
    bootstrap,
    data_dir::{self, DataDir, give_to_owner},
    error::ServerError,
    first_admin::{self, Occasion, OneTimeAdmin},
    options::ServerOptions,
    ports, prior_use,
    sealing_key::KeyFiles,
};

/// The mark's file in the data directory.
pub(crate) const MARK: &str = "history.mark";
/// How often the mark is made durable while changes are made. A power cut takes as much of it: the mark is older then, and still true.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// A store that may be served from.
pub(crate) enum Standing {
    /// It has all that the mark says.
    GoesOn(MarkFile),
    /// Nothing is known that it could lack: a new mark is made, in place of this one.
    Anew(Option<Uuid>),
}

/// What became of a history that was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AcceptedHistory {
    /// What was known of it.
    pub found: String,
    /// What has to be made anew; absent where an operator vouched that nothing is missing.
    pub ended: Option<Ended>,
    /// The one-time token by which somebody becomes administrator again; absent likewise.
    pub admin: Option<OneTimeAdmin>,
}

/// Why a store may not be served from.
enum Doubt {
    /// It lacks what the mark of that moment says; without a moment somebody noticed before.
    WentBack(String, Option<Timestamp>),
    /// Nothing tells whether it lacks something.
    Unproven(String),
}

/// Compares the store with the mark of the data directory. Before the store is opened, which writes the log of a database into its file: what is left of a
/// damaged log stays for whoever can read it.
pub(crate) async fn look(options: &ServerOptions, ports: &Ports) -> Result<Standing, ServerError> {
    match standing(options).await? {
        Ok(standing) => Ok(standing),
        Err(Doubt::Unproven(why)) => Err(ServerError::HistoryUnproven(why)),
        Err(Doubt::WentBack(why, noticed)) => {
            if let Some(noticed) = noticed.filter(|_| options.store_url.is_some()) {
                // Other replicas may not have noticed, and must not go on either.
                let store = Store::open(&options.store(), ports.clock.clone()).await?;
                let stopped = store.stop_history(&why, noticed).await;
                store.close().await;
                stopped?;
            }
            Err(ServerError::HistoryWentBack(why))
        }
    }
}

/// What is wrong with the history of a store, as a phrase. Changes nothing, and may be asked while the control plane runs: it raises the mark only after
/// the store.
pub(crate) async fn doubt(options: &ServerOptions) -> Result<Option<String>, ServerError> {
    Ok(match standing(options).await? {
        Ok(_) => None,
        Err(Doubt::WentBack(why, _)) => Some(format!("history went back: {why}")),
        Err(Doubt::Unproven(why)) => Some(format!("nothing tells whether history went back: {why}")),
    })
}

async fn standing(options: &ServerOptions) -> Result<Result<Standing, Doubt>, ServerError> {
    // The mark first: a control plane that runs raises it after the store.
    let found = open(&options.data_dir)?;
    let id = id_of(&found);
    Ok(match options.store().history(id).await? {
        Some(point) => judge(found, point, &options.data_dir, options.store_url.is_some()),
        None => Ok(Standing::Anew(id)),
    })
}

fn judge(found: FoundMark, point: HistoryPoint, folder: &Path, is_shared: bool) -> Result<Standing, Doubt> {
    let (path, id) = (folder.join(MARK), id_of(&found));
    if point.is_decided {
        return Ok(Standing::Anew(id));
    }
    let unproven = |why: String| Err(Doubt::Unproven(why));
    // A shared store may have any number of data directories, so only the directory itself tells whether it had a mark.
    let must_have_mark = data_dir::keeps_mark(folder) || (!is_shared && point.generation.is_some());
    let compared = match found {
        FoundMark::Damaged(why) => return unproven(format!("{} is damaged: {why}", path.display())),
        FoundMark::Absent if must_have_mark => {
            return unproven(format!("{} is missing, and this store is known to have one", path.display()));
        }
        FoundMark::Absent => None,
        FoundMark::Whole(file) => Some((point.compare(file.mark()), file)),
    };
    if let Some((Compared::WentBack(why), file)) = &compared {
        return Err(Doubt::WentBack(why.clone(), Some(file.mark().at)));
    }
    if let Some(why) = point.went_back {
        return Err(Doubt::WentBack(why, None));
    }
    match compared {
        Some((Compared::GoesOn, file)) => Ok(Standing::GoesOn(file)),
        Some((Compared::Foreign(why), _)) => unproven(format!("{}: {why}", path.display())),
        Some((Compared::SaysNothing | Compared::WentBack(_), _)) | None => Ok(Standing::Anew(id)),
    }
}

fn id_of(found: &FoundMark) -> Option<Uuid> {
    match found {
        FoundMark::Whole(file) => Some(file.mark().id),
        FoundMark::Absent | FoundMark::Damaged(_) => None,
    }
}

fn open(folder: &Path) -> Result<FoundMark, ServerError> {
    MarkFile::open(&folder.join(MARK)).map_err(|source| ServerError::Io { what: "reading the high-water mark", source })
}

/// Keeps the mark from now on: the one that was compared, or a new one.
pub(crate) async fn keep(
    store: &Store,
    data: &DataDir,
    standing: Standing,
    control_plane: &str,
    ports: &Ports,
) -> Result<(), ServerError> {
    let file = match standing {
        Standing::GoesOn(file) => file,
        Standing::Anew(replaced) => make(store, data.path(), replaced, control_plane, ports).await?,
    };
    store.keep_mark(file);
    Ok(())
}

/// Makes a new mark in a folder. Its file comes before the row that says that there is one: a crash in between leaves a mark that says nothing yet.
pub(crate) async fn make(
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
            MarkFile::create(&folder.join(MARK), mark).and_then(|file| give_to_owner(folder, MARK).map(|()| file));
        created.map_err(|source| ServerError::Io { what: "keeping the high-water mark", source })
    };
    let file = create(first)?;
    let mut tx = store.begin().await?;
    let generation = tx.begin_marks(first).await?;
    if let Some(replaced) = replaced {
        tx.forget_mark(replaced).await?;
    }
    tx.commit().await?;
    // Another replica may have been quicker.
    if generation == first { Ok(file) } else { create(generation) }
}

/// Makes the mark durable a second after it was raised, with all that raised it until then.
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

/// Goes on with a history that went back, or of which nothing tells whether it did. What it lacks is lost, and all its credentials are ended, as after a
/// restore. With `as_it_is` an operator vouches that nothing is missing, where nothing shows the contrary. No process may use the data directory.
pub async fn accept_history(options: &ServerOptions, as_it_is: bool) -> Result<AcceptedHistory, ServerError> {
    let ports = ports::system();
    let data = DataDir::open(&options.data_dir)?;
    prior_use::require_platform(options).await?;
    let sealing = KeyFiles::of(options)?.keys()?;
    // A wrong sealing key is found before anything is decided.
    bootstrap::check_keys(&options.store(), &sealing).await?;
    let found = match look(options, &ports).await {
        Ok(_) => return Err(ServerError::HistoryGoesOn),
        Err(ServerError::HistoryWentBack(why)) if as_it_is => return Err(ServerError::HistoryWentBack(why)),
        Err(ServerError::HistoryWentBack(why) | ServerError::HistoryUnproven(why)) => why,
        Err(error) => return Err(error),
    };
    let store = Store::open(&options.store(), ports.clock.clone()).await?;
    let accepted = accepted(found, sealing, &data, &store, &ports, as_it_is).await;
    store.close().await;
    accepted
}

async fn accepted(
    found: String,
    sealing: SealingKeys,
    data: &DataDir,
    store: &Store,
    ports: &Ports,
    as_it_is: bool,
) -> Result<AcceptedHistory, ServerError> {
    let keys = bootstrap::keys(store, sealing, ports).await?;
    decide(store, &found, as_it_is).await?;
    let replaced = id_of(&open(data.path())?);
    make(store, data.path(), replaced, keys.control_plane(), ports).await?;
    if as_it_is {
        return Ok(AcceptedHistory { found, ended: None, admin: None });
    }
    let ended = bootstrap::finish_restore(store, &keys, ports).await?;
    let admin = first_admin::one_time_admin(store, &keys, data.path(), ports, Occasion::AcceptedHistory).await?;
    Ok(AcceptedHistory { found, ended, admin: Some(admin) })
}

/// Writes the decision down: whatever is left to be done, the next start does.
async fn decide(store: &Store, found: &str, as_it_is: bool) -> Result<(), ServerError> {
    if !store.is_shared() {
        // Nobody else lives, whoever the rows say did.
        for life in store.read().await?.replicas().await? {
            store.bury_replica(life.replica.id, Burial::Known).await?;
        }
    }
    let mut tx = store.begin().await?;
    if !as_it_is {
        tx.begin_history_anew().await?;
    }
    tx.append_audit(&NewAudit {
        actor: OwnActor::Operator.to_string(),
        actor_type: ActorType::ControlPlane,
        by: None,
        action: AuditAction::ServerHistoryAccept,
        target: "control-plane".to_owned(),
        project: None,
        result: AuditResult::Accepted,
        correlation: None,
        metadata: json!({ "found": found, "as_it_is": as_it_is }),
    })
    .await?;
    Ok(tx.commit().await?)
}

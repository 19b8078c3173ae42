//! Restores a backup into an empty store.
//!
//! First it reads, checks and prepares everything in a folder ([`Staging`]): the rows in a temporary database, with all changes that a
//! restore makes to them. Then it puts everything in place: artifacts, keys, the one-time token, and last the rows, all at once.

use std::{
    fs::{self, File},
    io::{BufReader, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
};

use gpuaas_crash_points::{Point, RestoreStage, reach};
use gpuaas_engine::{Keys, RevokedCredentials, port::Ports};
use gpuaas_model::{AuditAction, ReplicaId};
use gpuaas_store::{DumpError, RESTORE_ID, Store, StoreError, StoreOptions};
use gpuaas_trust::SealingKeys;
use serde::{Deserialize, Serialize};

use super::{
    Manifest,
    archive::Archive,
    audit,
    staging::{Journal, Staging},
};
use crate::{
    bootstrap,
    data_dir::{ADMIN_TOKEN, DataDir, create_private},
    error::{BackupError, ServerError},
    first_admin::{self, OneTimeAdmin, TokenReason},
    history,
    options::ServerOptions,
    ports,
    sealing_key::KeyFiles,
};

/// The rows in the staging folder: as a SQLite database, and as the dump for a shared database.
const DATABASE: &str = "rows.db";
const ROWS: &str = "rows.jsonl";

/// The result of a restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// Description of the backup.
    pub backup: Manifest,
    /// Credentials that were revoked and nodes that must enroll again.
    pub ended: RevokedCredentials,
    /// One-time token for a new platform admin.
    pub admin: OneTimeAdmin,
}

/// Restores the backup `from` into the empty store that `options` name, and revokes all credentials and node identities in it. Fails while
/// another process uses the data directory. A failed restore leaves nothing; an interrupted one must be run again.
pub async fn restore(options: &ServerOptions, from: &Path) -> Result<Restored, ServerError> {
    // Checked first: without a configured key a shared store could not be decrypted.
    KeyFiles::of(options)?;
    let data = DataDir::open(&options.data_dir)?;
    let staging = Staging::in_folder(data.path());
    if let Some(restored) = staging.recover(options).await?
        && Archive::read(from)?.manifest == restored.backup
    {
        return Ok(restored);
    }
    let ports = ports::system();
    let restored = Box::pin(Restore { options, data: &data, staging: &staging, ports: &ports }.run(from)).await;
    let Err(error) = restored else { return restored };
    match staging.recover(options).await {
        // The connection to the database broke after it had committed the rows.
        Ok(Some(restored)) => Ok(restored),
        Ok(None) => Err(error),
        Err(unsettled) => {
            tracing::error!(%unsettled, "the failed restore could not be reverted: run the restore again");
            Err(error)
        }
    }
}

/// A restore in progress.
struct Restore<'a> {
    options: &'a ServerOptions,
    data: &'a DataDir,
    staging: &'a Staging,
    ports: &'a Ports,
}

impl Restore<'_> {
    async fn run(&self, from: &Path) -> Result<Restored, ServerError> {
        let archive = Archive::read(from)?;
        if archive.sealing_key.is_none() && self.options.sealing_key_file.is_none() {
            return Err(BackupError::KeyRequired.into());
        }
        if let Some(table) = Store::inspect_restore_target(&self.options.store()).await?.rows_in {
            return Err(BackupError::Rows(DumpError::NotEmpty(table)).into());
        }
        self.staging.begin()?;
        reach(Point::Restore(RestoreStage::Begun));
        let journal = Box::pin(self.prepare(&archive)).await?;
        self.staging.write(&journal)?;
        reach(Point::Restore(RestoreStage::Ready));
        self.apply(&archive, &journal).await?;
        reach(Point::Restore(RestoreStage::InPlace));
        self.staging.end()?;
        Ok(journal.restored)
    }

    /// Checks everything and prepares it in the staging folder. Returns the journal of what will be put in place.
    async fn prepare(&self, archive: &Archive) -> Result<Journal, ServerError> {
        let (sealing, brings_key, brings_next_key) = self.keys(archive)?;
        let mut artifacts = Vec::new();
        if self.options.artifacts_folder().is_dir() {
            let present = self.options.artifacts()?;
            for sha256 in archive.artifacts() {
                if !present.has(sha256).await.map_err(BackupError::from)? {
                    artifacts.push(sha256.to_owned());
                }
            }
        } else {
            artifacts.extend(archive.artifacts().map(str::to_owned));
        }
        let id = ReplicaId::generate(&*self.ports.clock, &*self.ports.entropy).to_string();
        let url = format!("sqlite://{}", self.staging.join(DATABASE).display());
        let store = Store::open(&StoreOptions { url }, self.ports.clock.clone()).await?;
        let restored = self.load_rows(&store, archive, sealing, &id).await;
        store.close().await;
        Ok(Journal {
            id,
            restored: restored?,
            is_shared: self.options.store_url.is_some(),
            artifacts_dir: self.options.artifacts_dir.clone(),
            artifacts,
            brings_key,
            brings_next_key,
        })
    }

    /// Returns the keys that decrypt the rows, and whether the backup adds the present and the next one to the data directory. Keys from
    /// the backup are copied into the staging folder. Fails if the data directory holds another key.
    fn keys(&self, archive: &Archive) -> Result<(SealingKeys, bool, bool), ServerError> {
        let (Some(key), None) = (&archive.sealing_key, &self.options.sealing_key_file) else {
            return Ok((KeyFiles::of(self.options)?.keys()?, false, false));
        };
        let (data_dir, staged) = (KeyFiles::in_folder(self.data.path()), KeyFiles::in_folder(self.staging.path()));
        let [present_file, next_file] = data_dir.paths();
        let (present, next) = (data_dir.present()?, data_dir.next()?);
        if present.as_ref().is_some_and(|present| present != key) {
            return Err(BackupError::OtherKey { path: present_file }.into());
        }
        if next.is_some() && next != archive.next_sealing_key {
            return Err(BackupError::OtherKey { path: next_file }.into());
        }
        staged.write_present(key)?;
        if let Some(key) = &archive.next_sealing_key {
            staged.write_next(key)?;
        }
        Ok((staged.keys()?, present.is_none(), next.is_none() && archive.next_sealing_key.is_some()))
    }

    /// Loads the rows into the staged store and makes all changes of a restore to them.
    async fn load_rows(
        &self,
        store: &Store,
        archive: &Archive,
        sealing: SealingKeys,
        id: &str,
    ) -> Result<Restored, ServerError> {
        store.restore(&mut archive.rows()?).await.map_err(BackupError::from)?;
        self.check_rows(store, archive).await?;
        audit(store, AuditAction::ServerRestore, &archive.manifest).await?;
        let keys = bootstrap::keys(store, sealing, self.ports).await?;
        bootstrap::api_key(store, &keys).await?;
        check_secrets(store, &keys, archive).await?;
        let ended = revoke_restored(store, &keys, self.ports).await?;
        let folder = self.staging.path();
        history::create_mark(store, folder, None, keys.control_plane(), self.ports).await?;
        let mut admin = first_admin::one_time_admin(store, &keys, folder, self.ports, TokenReason::Restore).await?;
        admin.token_file = self.data.join(ADMIN_TOKEN);
        let mut tx = store.begin().await?;
        tx.remove_setting(RESTORE_ID).await?;
        tx.put_setting_if_absent(RESTORE_ID, id.as_bytes()).await?;
        tx.commit().await?;
        if self.options.store_url.is_some() {
            let path = self.staging.join(ROWS);
            let mut rows = create_private(&path).map_err(|source| BackupError::File { path, source })?;
            store.dump(&mut rows).await.map_err(BackupError::from)?;
        }
        Ok(Restored { backup: archive.manifest.clone(), ended, admin })
    }

    async fn check_rows(&self, store: &Store, archive: &Archive) -> Result<(), ServerError> {
        store.read_every_row().await.map_err(|error| match error {
            StoreError::Corrupt(row) => ServerError::from(archive.invalid(row.to_string())),
            error => error.into(),
        })?;
        for artifact in store.read().await?.artifacts(None, None).await? {
            if !archive.artifacts().any(|digest| digest == artifact.sha256) {
                return Err(archive.invalid(format!("it lacks the artifact {}", artifact.sha256)).into());
            }
        }
        Ok(())
    }

    async fn apply(&self, archive: &Archive, journal: &Journal) -> Result<(), ServerError> {
        let artifacts = self.options.artifacts()?;
        for sha256 in archive.artifacts() {
            let bytes = archive.artifact(sha256).await?;
            artifacts.put_verified(sha256, sha256, bytes).await.map_err(BackupError::from)?;
        }
        reach(Point::Restore(RestoreStage::Artifacts));
        let (staged, data_dir) = (KeyFiles::in_folder(self.staging.path()), KeyFiles::in_folder(self.data.path()));
        if let Some(key) = staged.present()?.filter(|_| journal.brings_key) {
            data_dir.write_present(&key)?;
        }
        if let Some(key) = staged.next()?.filter(|_| journal.brings_next_key) {
            data_dir.write_next(&key)?;
        }
        self.staging.put(ADMIN_TOKEN)?;
        reach(Point::Restore(RestoreStage::Keys));
        self.put_rows().await
    }

    /// Puts the rows in place, all at once.
    async fn put_rows(&self) -> Result<(), ServerError> {
        if self.options.store_url.is_some() {
            let path = self.staging.join(ROWS);
            let rows = File::open(&path).map_err(|source| BackupError::File { path, source })?;
            let clock = Arc::clone(&self.ports.clock);
            Store::fill(&self.options.store(), clock, &mut BufReader::new(rows)).await.map_err(BackupError::from)?;
            return Ok(());
        }
        let (from, to) = (self.staging.join(DATABASE), self.options.database());
        Ok(replace_database(&from, &to).map_err(|source| BackupError::File { path: to, source })?)
    }
}

/// Replaces a database without rows, or none, by a closed database.
fn replace_database(from: &Path, to: &Path) -> std::io::Result<()> {
    let sibling = |file: &Path, suffix: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    if sibling(from, "-wal").exists() {
        return Err(std::io::Error::other("the database file has a separate write-ahead log"));
    }
    // A leftover log would be taken for the log of the new database.
    for left in [sibling(to, "-wal"), sibling(to, "-shm")] {
        match fs::remove_file(left) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    File::open(from)?.sync_all()?;
    fs::rename(from, to)?;
    File::open(to.parent().unwrap_or(to))?.sync_all()
}

async fn revoke_restored(store: &Store, keys: &Keys, ports: &Ports) -> Result<RevokedCredentials, ServerError> {
    let revoked = bootstrap::finish_restore(store, keys, ports).await?;
    revoked.ok_or_else(|| ServerError::Trust("the restored rows lack the record of their restore".to_owned()))
}

/// Checks that the keys decrypt every secret.
async fn check_secrets(store: &Store, keys: &Keys, archive: &Archive) -> Result<(), ServerError> {
    for secret in store.read().await?.every_secret().await? {
        if keys.unseal(secret.id, &secret.sealed).is_err() {
            return Err(archive.invalid(format!("no sealing key decrypts the secret {}", secret.id)).into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use gpuaas_trust::SecretText;

    use super::*;

    #[tokio::test]
    async fn shared_store_without_a_key_file_is_refused_before_any_change() {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path().join("data");
        let url = SecretText::new("postgres://localhost/nowhere".to_owned());
        let options = ServerOptions { store_url: Some(url), ..ServerOptions::local(data_dir.clone()) };
        let refused = restore(&options, &folder.path().join("backup.tar")).await.unwrap_err();
        assert!(matches!(refused, ServerError::SealingKeyRequired), "{refused}");
        assert!(!data_dir.exists());
    }

    #[test]
    fn database_replaces_another_and_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| fs::write(path(name), text).unwrap();
        write("new.db", "new");
        write("new.db-wal", "not in its file yet");
        write("old.db", "old");
        write("old.db-wal", "old log");
        assert!(replace_database(&path("new.db"), &path("old.db")).is_err(), "its log would be lost");
        assert_eq!(fs::read(path("old.db-wal")).unwrap(), b"old log");
        fs::remove_file(path("new.db-wal")).unwrap();
        replace_database(&path("new.db"), &path("old.db")).unwrap();
        assert_eq!(fs::read(path("old.db")).unwrap(), b"new");
        assert!(!path("old.db-wal").exists() && !path("new.db").exists());
    }
}

//! Writes a backup. The control plane may be running.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Seek, Write},
    path::Path,
};

use futures::TryStreamExt;
use gpuaas_artifacts::{ArtifactError, ArtifactStore};
use gpuaas_model::AuditAction;
use gpuaas_store::Store;
use gpuaas_trust::Sha256Writer;
use tar::{Builder, Header};
use zeroize::Zeroizing;

use super::{ARTIFACTS, FORMAT, MANIFEST, Manifest, NEXT_SEALING_KEY, ROWS, SEALING_KEY, audit};
use crate::{
    data_dir::{create_draft, refuse_unfinished_restore},
    error::{BackupError, ServerError},
    options::ServerOptions,
    ports, prior_use,
    sealing_key::KeyFiles,
};

/// Backs up everything that `options` name into the file `to`, which appears only when it is complete.
pub async fn backup(options: &ServerOptions, to: &Path) -> Result<Manifest, ServerError> {
    refuse_unfinished_restore(&options.data_dir)?;
    // Opening a store would create a missing one, and a wrong data directory would be backed up as an empty platform.
    prior_use::require_platform(options).await?;
    let ports = ports::system();
    let store = Store::open(&options.store(), ports.clock.clone()).await?;
    let artifacts = options.artifacts()?;
    let written = write(options, &store, &artifacts, to, ports.clock.now().to_string()).await;
    store.close().await;
    Ok(written?)
}

async fn write(
    options: &ServerOptions,
    store: &Store,
    artifacts: &ArtifactStore,
    to: &Path,
    made_at: String,
) -> Result<Manifest, BackupError> {
    let file = |source| BackupError::File { path: to.to_owned(), source };
    // Read before the rows and again after them: if a rotation happens meanwhile, the rows may need either set of keys.
    let mut keys = data_dir_keys(options)?;
    let mut tar = Builder::new(create_draft(to).map_err(file)?);
    let mut rows = Sha256Writer::new(tempfile::tempfile().map_err(file)?);
    let count = store.dump(&mut rows).await?;
    let (rows, rows_sha256) = rows.finish();
    append_file(&mut tar, ROWS, rows).map_err(file)?;
    // Read after the rows: artifacts that the rows name existed before them, and artifacts are never removed.
    let mut reader = store.read().await?;
    let mut named: BTreeSet<String> = reader.archive_digests().await?.into_iter().collect();
    named.extend(reader.artifacts(None, None).await?.into_iter().map(|artifact| artifact.sha256));
    drop(reader);
    for sha256 in &named {
        let spool = spooled(artifacts, sha256).await?;
        append_file(&mut tar, &format!("{ARTIFACTS}{sha256}"), spool).map_err(file)?;
    }
    let known = keys.clone();
    keys.extend(data_dir_keys(options)?.into_iter().filter(|key| !known.contains(key)));
    for (name, key) in [SEALING_KEY, NEXT_SEALING_KEY].into_iter().zip(&keys) {
        append(&mut tar, name, key).map_err(file)?;
    }
    let manifest = Manifest {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        made_at,
        rows: count,
        rows_sha256,
        artifacts: named.len() as u64,
        holds_sealing_key: !keys.is_empty(),
    };
    audit(store, AuditAction::ServerBackup, &manifest).await?;
    let manifest_json = serde_json::to_vec_pretty(&manifest).map_err(|error| file(error.into()))?;
    append(&mut tar, MANIFEST, &manifest_json).map_err(file)?;
    let draft = tar.into_inner().map_err(file)?;
    draft.as_file().sync_all().map_err(file)?;
    draft.persist(to).map_err(|error| file(error.error))?;
    Ok(manifest)
}

/// Returns the keys in the data directory; none if a key file is configured, because the operator then keeps it elsewhere.
fn data_dir_keys(options: &ServerOptions) -> Result<Vec<Zeroizing<Vec<u8>>>, BackupError> {
    if options.sealing_key_file.is_some() {
        return Ok(Vec::new());
    }
    let files = KeyFiles::in_folder(&options.data_dir);
    let unreadable = |error: ServerError| BackupError::Key(error.to_string());
    let present = files.present().map_err(unreadable)?;
    Ok(present.into_iter().chain(files.next().map_err(unreadable)?).collect())
}

/// Copies an artifact into an unnamed temporary file.
async fn spooled(artifacts: &ArtifactStore, sha256: &str) -> Result<File, ArtifactError> {
    let failed = |error: io::Error| ArtifactError::Store(error.to_string());
    let missing = || ArtifactError::Missing { name: sha256.to_owned() };
    let (_, mut bytes) = artifacts.get(sha256, 0).await?.ok_or_else(missing)?;
    let mut spool = tempfile::tempfile().map_err(failed)?;
    while let Some(chunk) = bytes.try_next().await.map_err(failed)? {
        spool.write_all(&chunk).map_err(failed)?;
    }
    Ok(spool)
}

fn append_file(tar: &mut Builder<impl Write>, name: &str, mut file: File) -> io::Result<()> {
    let length = file.stream_position()?;
    file.rewind()?;
    tar.append_data(&mut header(length), name, file)
}

fn append(tar: &mut Builder<impl Write>, name: &str, bytes: &[u8]) -> io::Result<()> {
    tar.append_data(&mut header(bytes.len() as u64), name, bytes)
}

fn header(length: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(0o600);
    header.set_size(length);
    header
}

//! Restores a backup into an empty store.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
};

use gpuaas_artifacts::ArtifactStore;
use gpuaas_engine::{Ended, Keys, port::Ports};
use gpuaas_model::AuditAction;
use gpuaas_store::Store;
use gpuaas_trust::Sha256Writer;
use serde::Serialize;
use tokio_util::io::ReaderStream;
use zeroize::Zeroizing;

use super::{ARTIFACTS, BackupError, FORMAT, MANIFEST, Manifest, NEXT_SEALING_KEY, ROWS, SEALING_KEY, audit};
use crate::{
    bootstrap,
    data_dir::DataDir,
    error::ServerError,
    first_admin::{self, Occasion, OneTimeAdmin},
    options::ServerOptions,
    ports,
    sealing_key::KeyFiles,
};

/// Longest member beside rows and artifacts, in bytes.
const SMALL_BYTES_MAX: u64 = 64 * 1_024;

/// What came out of the file, checked.
struct Unpacked {
    manifest: Manifest,
    rows: File,
    sealing_key: Option<Zeroizing<Vec<u8>>>,
    next_sealing_key: Option<Zeroizing<Vec<u8>>>,
}

/// What a restore did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// The backup.
    pub backup: Manifest,
    /// What has to be made anew.
    pub ended: Ended,
    /// The one-time token by which somebody becomes administrator again.
    pub admin: OneTimeAdmin,
}

/// Reads `from` into the empty store that `options` name, and ends the rights and identities that come with it. No process may use the data
/// directory.
pub async fn restore(options: &ServerOptions, from: &Path) -> Result<Restored, ServerError> {
    let ports = ports::system();
    let data = DataDir::open(&options.data_dir)?;
    let store = Store::open(&options.store(), ports.clock.clone()).await?;
    let artifacts = options.artifacts()?;
    let restored = restored(options, &data, &store, &artifacts, from).await;
    let opened = match restored {
        Ok(manifest) => {
            // The key is tried at once: a wrong one would be found when the control plane is needed.
            let sealing = data.sealing_keys(options, &*ports.entropy)?;
            let opened = async {
                let keys = bootstrap::keys(&store, sealing, &ports).await?;
                let ended = ended(&store, &keys, &ports).await?;
                let occasion = Occasion::Restore;
                let admin = first_admin::one_time_admin(&store, &keys, data.path(), &ports, occasion).await?;
                Ok(Restored { backup: manifest, ended, admin })
            };
            opened.await
        }
        Err(error) => Err(error.into()),
    };
    store.close().await;
    opened
}

async fn ended(store: &Store, keys: &Keys, ports: &Ports) -> Result<Ended, ServerError> {
    let ended = bootstrap::finish_restore(store, keys, ports).await?;
    ended.ok_or_else(|| ServerError::Trust("the restored rows do not say that they were restored".to_owned()))
}

async fn restored(
    options: &ServerOptions,
    data: &DataDir,
    store: &Store,
    artifacts: &ArtifactStore,
    from: &Path,
) -> Result<Manifest, BackupError> {
    let unpacked = unpack(artifacts, from).await?;
    match (&unpacked.sealing_key, &options.sealing_key_file) {
        (Some(key), None) => {
            let failed = |error: ServerError| BackupError::Key(error.to_string());
            data.keep_key(key).map_err(failed)?;
            if let Some(next) = &unpacked.next_sealing_key {
                KeyFiles::in_folder(data.path()).keep_next(next).map_err(failed)?;
            }
        }
        (None, None) => return Err(BackupError::KeyRequired),
        (_, Some(_)) => {}
    }
    store.restore(&mut BufReader::new(unpacked.rows)).await?;
    audit(store, AuditAction::ServerRestore, &unpacked.manifest).await?;
    Ok(unpacked.manifest)
}

async fn unpack(artifacts: &ArtifactStore, from: &Path) -> Result<Unpacked, BackupError> {
    let file = |source| BackupError::File { path: from.to_owned(), source };
    let broken = |why: String| BackupError::NotWhole { path: from.to_owned(), why };
    let mut tar = tar::Archive::new(BufReader::new(File::open(from).map_err(file)?));
    let (mut rows, mut sealing_key, mut next_sealing_key, mut manifest, mut count) = (None, None, None, None, 0);
    for member in tar.entries().map_err(file)? {
        let mut member = member.map_err(|error| broken(error.to_string()))?;
        let name = String::from_utf8_lossy(&member.path_bytes()).into_owned();
        match name.as_str() {
            ROWS => rows = Some(spooled(&mut member).map_err(|error| broken(error.to_string()))?),
            SEALING_KEY => sealing_key = Some(small(&mut member).map_err(|error| broken(error.to_string()))?),
            NEXT_SEALING_KEY => {
                next_sealing_key = Some(small(&mut member).map_err(|error| broken(error.to_string()))?);
            }
            MANIFEST => manifest = Some(small(&mut member).map_err(|error| broken(error.to_string()))?),
            artifact => {
                let sha256 = artifact.strip_prefix(ARTIFACTS).ok_or_else(|| broken(format!("it holds {name:?}")))?;
                let (bytes, _) = spooled(&mut member).map_err(|error| broken(error.to_string()))?;
                artifacts.put_verified(sha256, sha256, ReaderStream::new(tokio::fs::File::from_std(bytes))).await?;
                count += 1;
            }
        }
    }
    let manifest = manifest.ok_or_else(|| broken("it breaks off".to_owned()))?;
    let manifest: Manifest = serde_json::from_slice(&manifest).map_err(|error| broken(error.to_string()))?;
    let (rows, sha256) = rows.ok_or_else(|| broken("it holds no rows".to_owned()))?;
    if manifest.format != FORMAT {
        return Err(broken(format!("its form is {}, and this version reads {FORMAT}", manifest.format)));
    }
    if (sha256.as_str(), count) != (manifest.rows_sha256.as_str(), manifest.artifacts) {
        return Err(broken("rows or artifacts are not those that it names".to_owned()));
    }
    Ok(Unpacked { manifest, rows, sealing_key, next_sealing_key })
}

/// The member in a file without a name, from its start, with its digest.
fn spooled(member: &mut impl Read) -> io::Result<(File, String)> {
    let mut spool = Sha256Writer::new(tempfile::tempfile()?);
    io::copy(member, &mut spool)?;
    let (mut file, sha256) = spool.finish();
    io::Seek::rewind(&mut file)?;
    Ok((file, sha256))
}

fn small(member: &mut impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::new());
    member.take(SMALL_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > SMALL_BYTES_MAX {
        return Err(io::Error::other("a member is too long"));
    }
    Ok(bytes)
}

//! The data directory: used by one process at a time, and readable only by its owner.

use std::{
    fs::{DirBuilder, DirEntry, File, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown, lchown},
    path::{Path, PathBuf},
    time::Duration,
};

use fs4::fs_std::FileExt;
use gpuaas_model::ReplicaId;
use tempfile::NamedTempFile;

use crate::error::{BackupError, ServerError};

/// File with the authorities' certificates, for clients on this machine.
pub const CA_FILE: &str = "ca.pem";
/// File with the id of the replica that uses the directory. Its second line states that the directory has a high-water mark.
pub(crate) const REPLICA: &str = "replica.id";
/// The second line of [`REPLICA`].
const MARKED: &str = "with a high-water mark";

/// File name of the one-time token.
pub(crate) const ADMIN_TOKEN: &str = "admin.token";
/// File name of the high-water mark.
pub(crate) const MARK: &str = "history.mark";
/// End of the names of files that are not complete yet.
const DRAFT_SUFFIX: &str = ".gpuaas-draft";
/// Time without a write after which no process writes a draft any more.
const DRAFT_AGE_MAX: Duration = Duration::from_secs(3_600);
/// Name of the folder in the data directory.
pub(crate) const UNFINISHED_RESTORE: &str = "restore.unfinished";

/// A locked data directory. The kernel releases the lock when this value is dropped or the process dies.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Creates the directory if needed, checks that it is writable, and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self, ServerError> {
        let refuse = |source| ServerError::DataDirNotWritable { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(refuse)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(refuse)?;
        match FileExt::try_lock_exclusive(&lock) {
            Ok(true) => {
                remove_drafts(path);
                Ok(Self { path: path.to_owned(), _lock: lock })
            }
            Ok(false) => Err(ServerError::DataDirInUse { path: path.to_owned() }),
            Err(source) => Err(refuse(source)),
        }
    }

    /// Returns the directory's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file in the directory.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the replica that used the directory before; `None` if there was none.
    pub(crate) fn predecessor(&self) -> Option<ReplicaId> {
        std::fs::read_to_string(self.join(REPLICA)).ok()?.lines().next()?.trim().parse().ok()
    }

    /// Records `replica` as the user of the directory, and that it has a high-water mark. Call it only after the predecessor's leases were
    /// ended: after a crash in between, the next start ends them again.
    pub(crate) fn record_user(&self, replica: ReplicaId) -> Result<(), ServerError> {
        let path = self.join(REPLICA);
        write_private(&path, format!("{replica}\n{MARKED}\n").as_bytes())
            .map_err(|source| ServerError::DataDirNotWritable { path, source })
    }
}

/// Reports whether the last user of the directory kept a high-water mark.
pub(crate) fn requires_mark(folder: &Path) -> bool {
    std::fs::read_to_string(folder.join(REPLICA)).is_ok_and(|text| text.lines().nth(1) == Some(MARKED))
}

/// Gives a file in a folder to the folder's owner: root may run a command while the control plane runs as another user. Only root can do
/// that; for others it does nothing.
pub(crate) fn set_owner(folder: &Path, name: &str) -> std::io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let owner = std::fs::metadata(folder)?;
    lchown(folder.join(name), Some(owner.uid()), Some(owner.gid()))
}

/// Checks that the directory, or the one in which it would be created, is writable. Changes nothing.
pub(crate) fn check_writable(path: &Path) -> Result<(), ServerError> {
    let present = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(path);
    let refuse = |source| ServerError::DataDirNotWritable { path: path.to_owned(), source };
    if !present.is_dir() {
        return Err(refuse(ErrorKind::NotADirectory.into()));
    }
    rustix::fs::access(present, rustix::fs::Access::WRITE_OK).map_err(|error| refuse(error.into()))
}

/// Refuses a data directory with an interrupted restore.
pub(crate) fn refuse_unfinished_restore(data_dir: &Path) -> Result<(), ServerError> {
    match data_dir.join(UNFINISHED_RESTORE).symlink_metadata() {
        // Other checks report an unusable data directory.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        Err(source) => Err(BackupError::File { path: data_dir.join(UNFINISHED_RESTORE), source }.into()),
        Ok(_) => Err(ServerError::RestoreUnfinished { path: data_dir.to_owned() }),
    }
}

/// Writes a file of mode 0600. It appears complete and durable or not at all.
pub fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    write_owned(None, path, bytes)
}

/// Writes a file like [`write_private`], for a user id and group id. Takes effect only as root.
pub(crate) fn write_private_for(owner: (u32, u32), path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    write_owned(Some(owner), path, bytes)
}

fn write_owned(owner: Option<(u32, u32)>, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let path = std::path::absolute(path)?;
    let folder = path.parent().ok_or_else(|| std::io::Error::new(ErrorKind::InvalidInput, "the path has no folder"))?;
    let mut draft = create_draft(&path)?;
    if let Some((user, group)) = owner
        && rustix::process::geteuid().is_root()
    {
        // On the open file: the path may be replaced meanwhile.
        fchown(draft.as_file(), Some(user), Some(group))?;
    }
    draft.write_all(bytes)?;
    draft.as_file().sync_all()?;
    draft.persist(&path)?;
    File::open(folder)?.sync_all()
}

/// Creates a file of mode 0600 that replaces `path` once it is complete (`persist`); until then it has a name of its own next to `path`. It is
/// removed if it is dropped before. A process that is killed leaves it behind.
pub(crate) fn create_draft(path: &Path) -> std::io::Result<NamedTempFile> {
    let path = std::path::absolute(path)?;
    let mut beginning = path.file_name().unwrap_or_default().to_owned();
    beginning.push(".");
    let folder = path.parent().unwrap_or(&path);
    tempfile::Builder::new().prefix(&beginning).suffix(DRAFT_SUFFIX).tempfile_in(folder)
}

/// Removes the drafts of processes that died while they wrote: they may contain secrets. Leaves those that a process may still write. One
/// that cannot be removed does no harm.
fn remove_drafts(folder: &Path) {
    let is_old =
        |entry: &DirEntry| entry.metadata()?.modified().map(|at| at.elapsed().unwrap_or_default() > DRAFT_AGE_MAX);
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let drafts = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(DRAFT_SUFFIX));
    for draft in drafts.filter(|entry| is_old(entry).unwrap_or(false)) {
        let _ = std::fs::remove_file(draft.path());
    }
}

/// Creates an empty file of mode 0600. Removes an existing file, a leftover or a planted link, instead of writing through it.
pub(crate) fn create_private(path: &Path) -> std::io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, time::SystemTime};

    use super::*;
    use crate::{options::ServerOptions, ports::SystemEntropy, prior_use::StartKind};

    #[test]
    fn second_process_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let first = DataDir::open(folder.path()).unwrap();
        assert!(matches!(DataDir::open(folder.path()), Err(ServerError::DataDirInUse { .. })));
        drop(first);
        assert!(DataDir::open(folder.path()).is_ok());
    }

    #[test]
    fn unwritable_directory_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let error = DataDir::open(&folder.path().join("file/inside")).unwrap_err();
        assert!(matches!(error, ServerError::DataDirNotWritable { .. }), "{error}");
    }

    #[test]
    fn private_file_is_not_written_through_a_planted_link() {
        let folder = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (folder.path().join("bundle.gz"), folder.path().join("elsewhere"));
        std::fs::write(&elsewhere, "kept").unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        write_private(&path, b"secret").unwrap();
        assert_eq!(std::fs::read(&elsewhere).unwrap(), b"kept");
        assert_eq!(std::fs::read(&path).unwrap(), b"secret");
        assert_eq!(path.symlink_metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    }

    #[test]
    fn drafts_of_a_process_that_died_are_removed_when_the_directory_is_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let (_, written_now) = create_draft(&folder.path().join("sealing.key")).unwrap().keep().unwrap();
        let (file, left) = create_draft(&folder.path().join("sealing.key")).unwrap().keep().unwrap();
        file.set_modified(SystemTime::now() - DRAFT_AGE_MAX * 2).unwrap();
        let _in_use = DataDir::open(folder.path()).unwrap();
        assert!(!left.exists(), "a draft remains");
        assert!(written_now.exists(), "a draft was removed while it may be written");
    }

    #[test]
    fn private_file_leaves_other_files_and_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("bundle.draft");
        std::fs::write(&other, "kept").unwrap();
        write_private(&folder.path().join("bundle.gz"), b"secret").unwrap();
        assert_eq!(std::fs::read_to_string(&other).expect("a file of the user was removed"), "kept");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "a draft remains");
    }

    #[test]
    fn data_directory_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/data");
        let _data = DataDir::open(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn sealing_key_is_created_once_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::open(folder.path()).unwrap();
        let options = ServerOptions::local(folder.path().to_owned());
        let keys = || StartKind::First.sealing_keys(&data, &options, &SystemEntropy);
        assert_eq!(keys().unwrap().active(), keys().unwrap().active());
        let mode = std::fs::metadata(data.join("sealing.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(data.join("sealing.key"), "short").unwrap();
        assert!(matches!(keys(), Err(ServerError::Key { .. })));
    }
}

//! Files under a host's root.
//!
//! Guarantees: what is written or copied is there whole and durable, or not at all, and belongs to whom the agent runs as; links planted
//! where a draft goes are not followed; nobody else is held up while a disk takes its time; of what was given up nothing is begun or put in place.

use std::{
    fs::{self, File, Metadata, OpenOptions, Permissions},
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
};

use camino::{Utf8Path, Utf8PathBuf};
use rustix::process::{getegid, geteuid};

use crate::{
    error::HostError,
    file::{Changed, FileSpec},
    root::Root,
    turns::{Asked, Turn},
};

/// Files of a host, all of them under its root.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    root: Root,
}

impl Files {
    pub(crate) fn under(root: Root) -> Self {
        Self { root }
    }

    pub(crate) fn root(&self) -> &Root {
        &self.root
    }

    pub(crate) async fn write(&self, file: &FileSpec) -> Result<Changed, HostError> {
        let file = file.clone();
        self.aside(move |root, asked| write(root, &file, asked)).await
    }

    pub(crate) async fn read(&self, path: &Utf8Path, bytes_max: u64) -> Result<Option<Vec<u8>>, HostError> {
        let path = path.to_owned();
        self.aside(move |root, _| read(root, &path, bytes_max)).await
    }

    pub(crate) async fn remove(&self, path: &Utf8Path) -> Result<Changed, HostError> {
        let path = path.to_owned();
        self.aside(move |root, _| remove(root, &path)).await
    }

    pub(crate) async fn remove_empty_folder(&self, path: &Utf8Path) -> Result<Changed, HostError> {
        let path = path.to_owned();
        self.aside(move |root, _| remove_empty_folder(root, &path)).await
    }

    pub(crate) async fn make_folder(&self, path: &Utf8Path, mode: u32) -> Result<Changed, HostError> {
        let path = path.to_owned();
        self.aside(move |root, _| make_folder(root, &path, mode)).await
    }

    pub(crate) fn exists(&self, path: &Utf8Path) -> Result<bool, HostError> {
        Ok(fs::symlink_metadata(self.root.resolve(path)?).is_ok())
    }

    pub(crate) async fn list(&self, path: &Utf8Path) -> Result<Vec<String>, HostError> {
        let path = path.to_owned();
        self.aside(move |root, _| list(root, &path)).await
    }

    pub(crate) fn size(&self, path: &Utf8Path) -> Result<Option<u64>, HostError> {
        match fs::metadata(self.root.resolve_followed(path)?) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(HostError::file("look at", path)(error)),
        }
    }

    pub(crate) async fn open(&self, path: &Utf8Path) -> Result<tokio::fs::File, HostError> {
        let real = self.root.resolve_followed(path)?;
        tokio::fs::File::open(&real).await.map_err(HostError::file("open", path))
    }

    pub(crate) async fn append(&self, path: &Utf8Path) -> Result<tokio::fs::File, HostError> {
        let path = path.to_owned();
        self.aside(move |root, _| open_append(root, &path)).await.map(tokio::fs::File::from_std)
    }

    pub(crate) async fn sync(&self, path: &Utf8Path) -> Result<(), HostError> {
        let path = path.to_owned();
        self.aside(move |root, _| sync(root, &path)).await
    }

    pub(crate) async fn rename(&self, from: &Utf8Path, to: &Utf8Path) -> Result<(), HostError> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.aside(move |root, _| rename(root, &from, &to)).await
    }

    pub(crate) async fn copy(&self, from: &Utf8Path, to: &Utf8Path, mode: u32) -> Result<Changed, HostError> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.aside(move |root, asked| copy(root, &from, &to, mode, asked)).await
    }

    /// Does what may wait for a disk beside everything else. Who drops this does not end that.
    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Root, &Asked) -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, HostError> {
        let root = self.root.clone();
        let (_asker, asked) = Asked::new();
        let begun = move || asked.still().and_then(|()| work(&root, &asked));
        let done = tokio::task::spawn_blocking(begun).await;
        done.unwrap_or_else(|error| Err(HostError::Init(format!("work on files broke off: {error}"))))
    }
}

fn write(root: &Root, file: &FileSpec, asked: &Asked) -> Result<Changed, HostError> {
    let real = root.resolve(&file.path)?;
    let _turn = Turn::take(&real, asked)?;
    let fail = |action| HostError::file(action, &file.path);
    if let Ok(metadata) = fs::symlink_metadata(&real)
        && metadata.is_file()
        && is_ours(&metadata, file.mode)
        && metadata.len() == file.content.len() as u64
        && fs::read(&real).is_ok_and(|content| content == file.content)
    {
        return Ok(Changed::No);
    }
    let folder = real.parent().ok_or_else(|| HostError::Path { path: file.path.clone() })?;
    fs::create_dir_all(folder).map_err(fail("make the folder of"))?;
    let draft = draft(folder, &real).map_err(fail("write"))?;
    let mut options = OpenOptions::new();
    let mut open = options.create_new(true).write(true).mode(file.mode).open(&draft).map_err(fail("write"))?;
    let put = || {
        open.write_all(&file.content).map_err(fail("write"))?;
        own(&open, file.mode).map_err(fail("set mode and owner of"))?;
        open.sync_all().map_err(fail("sync"))?;
        asked.still()?;
        fs::rename(&draft, &real).map_err(fail("put in place"))
    };
    whole_or_gone(put, &draft)?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(fail("sync the folder of"))?;
    Ok(Changed::Yes)
}

fn read(root: &Root, path: &Utf8Path, bytes_max: u64) -> Result<Option<Vec<u8>>, HostError> {
    let real = root.resolve_followed(path)?;
    let file = match File::open(&real) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(HostError::file("open", path)(error)),
    };
    let mut content = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut content).map_err(HostError::file("read", path))?;
    if content.len() as u64 > bytes_max {
        return Err(HostError::TooLong { path: path.to_owned(), bytes_max });
    }
    Ok(Some(content))
}

fn remove(root: &Root, path: &Utf8Path) -> Result<Changed, HostError> {
    let real = root.resolve(path)?;
    let removed = match fs::symlink_metadata(&real) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(&real),
        Ok(_) => fs::remove_file(&real),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Changed::No),
        Err(error) => Err(error),
    };
    removed.map(|()| Changed::Yes).map_err(HostError::file("remove", path))
}

fn remove_empty_folder(root: &Root, path: &Utf8Path) -> Result<Changed, HostError> {
    use ErrorKind::{DirectoryNotEmpty, NotADirectory, NotFound, ResourceBusy};
    match fs::remove_dir(root.resolve(path)?) {
        Ok(()) => Ok(Changed::Yes),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory | DirectoryNotEmpty | ResourceBusy) => {
            Ok(Changed::No)
        }
        Err(error) => Err(HostError::file("remove", path)(error)),
    }
}

fn make_folder(root: &Root, path: &Utf8Path, mode: u32) -> Result<Changed, HostError> {
    let real = root.resolve_followed(path)?;
    if fs::metadata(&real).is_ok_and(|known| known.is_dir() && is_ours(&known, mode)) {
        return Ok(Changed::No);
    }
    fs::create_dir_all(&real).map_err(HostError::file("make", path))?;
    let owned = File::open(&real).and_then(|folder| own(&folder, mode));
    owned.map_err(HostError::file("set mode and owner of", path))?;
    Ok(Changed::Yes)
}

fn list(root: &Root, path: &Utf8Path) -> Result<Vec<String>, HostError> {
    let entries = match fs::read_dir(root.resolve_followed(path)?) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Vec::new()),
        Err(error) => return Err(HostError::file("list", path)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(HostError::file("list", path))?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn open_append(root: &Root, path: &Utf8Path) -> Result<File, HostError> {
    let real = root.resolve_followed(path)?;
    if let Some(folder) = real.parent() {
        fs::create_dir_all(folder).map_err(HostError::file("make the folder of", path))?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(&real).map_err(HostError::file("open", path))
}

fn sync(root: &Root, path: &Utf8Path) -> Result<(), HostError> {
    let real = root.resolve_followed(path)?;
    File::open(&real).and_then(|file| file.sync_all()).map_err(HostError::file("sync", path))
}

fn rename(root: &Root, from: &Utf8Path, to: &Utf8Path) -> Result<(), HostError> {
    let (real_from, real_to) = (root.resolve(from)?, root.resolve(to)?);
    fs::rename(&real_from, &real_to).map_err(HostError::file("rename", from))?;
    let folder = real_to.parent().ok_or_else(|| HostError::Path { path: to.to_owned() })?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(HostError::file("sync the folder of", to))
}

fn copy(root: &Root, from: &Utf8Path, to: &Utf8Path, mode: u32, asked: &Asked) -> Result<Changed, HostError> {
    let (real_from, real_to) = (root.resolve_followed(from)?, root.resolve(to)?);
    let _turn = Turn::take(&real_to, asked)?;
    if is_copy(&real_from, &real_to, mode) {
        return Ok(Changed::No);
    }
    let folder = real_to.parent().ok_or_else(|| HostError::Path { path: to.to_owned() })?;
    fs::create_dir_all(folder).map_err(HostError::file("make the folder of", to))?;
    let draft = draft(folder, &real_to).map_err(HostError::file("write", to))?;
    let mut source = File::open(&real_from).map_err(HostError::file("open", from))?;
    let mut options = OpenOptions::new();
    let mut copied =
        options.create_new(true).write(true).mode(mode).open(&draft).map_err(HostError::file("write", to))?;
    let put = || {
        std::io::copy(&mut source, &mut copied).map_err(HostError::file("copy", from))?;
        own(&copied, mode).map_err(HostError::file("set mode and owner of", to))?;
        copied.sync_all().map_err(HostError::file("sync", to))?;
        asked.still()?;
        fs::rename(&draft, &real_to).map_err(HostError::file("put in place", to))
    };
    whole_or_gone(put, &draft)?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(HostError::file("sync the folder of", to))?;
    Ok(Changed::Yes)
}

/// Whether something has that mode and belongs to whom we run as.
fn is_ours(metadata: &Metadata, mode: u32) -> bool {
    let owner = (geteuid().as_raw(), getegid().as_raw());
    metadata.permissions().mode() & 0o7777 == mode && (metadata.uid(), metadata.gid()) == owner
}

/// Gives something to whom we run as, with that mode.
fn own(open: &File, mode: u32) -> std::io::Result<()> {
    // The owner first: changing it takes some bits of the mode away.
    fchown(open, Some(geteuid().as_raw()), Some(getegid().as_raw()))?;
    open.set_permissions(Permissions::from_mode(mode))
}

/// A name beside the file for what is not whole yet. What an interrupted change left there goes first: it is never followed through a link.
fn draft(folder: &Utf8Path, real: &Utf8Path) -> std::io::Result<Utf8PathBuf> {
    let draft = folder.join(format!(".{}.draft", real.file_name().unwrap_or_default()));
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(draft),
    }
}

/// Puts a draft in place, or removes what there is of it: on a full disk it would keep the disk full.
fn whole_or_gone(put: impl FnOnce() -> Result<(), HostError>, draft: &Utf8Path) -> Result<(), HostError> {
    put().inspect_err(|_| {
        // The failure itself is what counts; a draft that stays is removed before the next try.
        let _ = fs::remove_file(draft);
    })
}

fn is_copy(from: &Utf8Path, to: &Utf8Path, mode: u32) -> bool {
    let (Ok(known), Ok(source)) = (fs::symlink_metadata(to), fs::metadata(from)) else { return false };
    let alike = known.is_file() && known.len() == source.len() && is_ours(&known, mode);
    alike && same_content(from, to).unwrap_or(false)
}

fn same_content(one: &Utf8Path, other: &Utf8Path) -> std::io::Result<bool> {
    let (mut one, mut other) = (BufReader::new(File::open(one)?), BufReader::new(File::open(other)?));
    loop {
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let length = left.len().min(right.len());
        if left[..length] != right[..length] {
            return Ok(false);
        }
        if length == 0 {
            return Ok(left.len() == right.len());
        }
        one.consume(length);
        other.consume(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Root, file: &FileSpec) -> Result<Changed, HostError> {
        let (_asker, asked) = Asked::new();
        super::write(root, file, &asked)
    }

    fn copy(root: &Root, from: &str, to: &str) -> Result<Changed, HostError> {
        let (_asker, asked) = Asked::new();
        super::copy(root, from.into(), to.into(), 0o600, &asked)
    }

    fn root() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(folder.path().to_owned()).unwrap();
        (folder, Root::new(path))
    }

    #[test]
    fn writing_twice_changes_once_and_a_mode_alone_counts_as_a_change() {
        let (_folder, root) = root();
        let mut file = FileSpec { path: "/etc/rancher/config".into(), mode: 0o600, content: b"a: 1".to_vec() };
        assert_eq!(write(&root, &file).unwrap(), Changed::Yes);
        assert_eq!(write(&root, &file).unwrap(), Changed::No);
        file.mode = 0o640;
        assert_eq!(write(&root, &file).unwrap(), Changed::Yes);
        assert_eq!(list(&root, "/etc/rancher".into()).unwrap(), ["config"]);
        assert_eq!(read(&root, &file.path, 100).unwrap().unwrap(), b"a: 1");
        assert!(matches!(read(&root, &file.path, 3), Err(HostError::TooLong { .. })));
    }

    #[test]
    fn a_draft_planted_as_a_link_is_not_followed() {
        let (folder, root) = root();
        fs::create_dir(folder.path().join("etc")).unwrap();
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, folder.path().join("etc/.x.draft")).unwrap();
        let file = FileSpec { path: "/etc/x".into(), mode: 0o600, content: b"new".to_vec() };
        write(&root, &file).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }

    #[test]
    fn what_cannot_be_put_in_place_leaves_no_draft() {
        let (_folder, root) = root();
        make_folder(&root, "/etc/taken".into(), 0o750).unwrap();
        let file = |name: &str| FileSpec { path: format!("/etc/{name}").into(), mode: 0o600, content: b"a".to_vec() };
        assert!(write(&root, &file("taken")).is_err(), "a folder is there");
        write(&root, &file("from")).unwrap();
        assert!(copy(&root, "/etc/from", "/etc/taken").is_err());
        assert_eq!(list(&root, "/etc".into()).unwrap(), ["from", "taken"]);
    }

    #[test]
    fn removing_what_is_not_there_changes_nothing() {
        let (_folder, root) = root();
        assert_eq!(remove(&root, "/nowhere/x".into()).unwrap(), Changed::No);
        make_folder(&root, "/a/b".into(), 0o750).unwrap();
        assert_eq!(make_folder(&root, "/a/b".into(), 0o750).unwrap(), Changed::No);
        assert_eq!(remove(&root, "/a".into()).unwrap(), Changed::Yes);
    }

    #[test]
    fn a_copy_that_was_given_up_is_not_put_in_place() {
        let (folder, root) = root();
        let made = std::process::Command::new("mkfifo").arg(folder.path().join("from")).status().unwrap();
        assert!(made.success());
        let (asker, asked) = Asked::new();
        let (to, real) = (root.clone(), folder.path().join("x/to"));
        let copying = std::thread::spawn(move || super::copy(&to, "/from".into(), "/x/to".into(), 0o600, &asked));
        // Opened on both ends: the copying has begun.
        let mut source = OpenOptions::new().write(true).open(folder.path().join("from")).unwrap();
        source.write_all(b"half").unwrap();
        drop(asker);
        drop(source);
        assert!(matches!(copying.join().unwrap(), Err(HostError::GivenUp)));
        assert!(!real.exists());
        assert!(list(&root, "/x".into()).unwrap().is_empty(), "nor does a draft stay");
    }
}

//! Files under a host's root.
//!
//! Guarantees: a written or copied file is there whole and durable, or not at all, and belongs to the user that the agent runs as; a copy
//! has exactly the bytes that its digest names; planted links, pipes and mounts neither redirect nor block an operation ([`crate::root`]).
//! Two operations, for the agent's own files, change a file in place: appending to it and overwriting a part of it.

use std::{
    fs::File,
    io::{self, ErrorKind, Read, Seek, Write},
    os::{fd::AsFd, unix::fs::FileExt},
};

use camino::Utf8Path;
use rustix::{
    fs::{AtFlags, Dir, OFlags, ResolveFlags, fstat, unlinkat},
    io::Errno,
};

use crate::{
    digest::{ContentId, Sha256},
    error::HostError,
    file::{Changed, Durable, FileSpec},
    lookup::{ensure_folder, look_up_folder},
    place::{Draft, FileHandle, Place, is_ours, open_folder, set_owner_and_mode},
    root::Root,
    write_lock::{Cancellation, WriteLock},
};

pub(crate) fn write(root: &Root, file: &FileSpec, cancellation: &Cancellation) -> Result<Changed, HostError> {
    let _lock = WriteLock::acquire(&root.full_path(&file.path)?, cancellation)?;
    let place = root.place_with_parents(&file.path)?;
    if is_written(&place, file) {
        return Ok(Changed::No);
    }
    let fail = |action| HostError::file(action, &file.path);
    let mut draft = Draft::begin(&place)?;
    draft.file.write_all(&file.content).map_err(fail("write"))?;
    draft.set_owner_and_mode(file.mode).map_err(fail("set mode and owner of"))?;
    draft.file.sync_all().map_err(fail("sync"))?;
    cancellation.check()?;
    draft.commit()?;
    Ok(Changed::Yes)
}

/// Returns true if the file already matches its description. Any other file there is replaced.
fn is_written(place: &Place, file: &FileSpec) -> bool {
    let Ok(Some(held)) = place.own_file() else { return false };
    let is_same = is_ours(&held.status, file.mode) && held.size() == file.content.len() as u64;
    is_same && content(&held, file.content.len() as u64).is_ok_and(|content| content == file.content)
}

/// Reads at most `bytes_max` and one more byte.
fn content(held: &FileHandle, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    held.open(OFlags::RDONLY)?.take(bytes_max.saturating_add(1)).read_to_end(&mut content)?;
    Ok(content)
}

/// Opens the regular file of this path; `None` if there is none.
pub(crate) fn file(root: &Root, path: &Utf8Path) -> Result<Option<FileHandle>, HostError> {
    root.place(path)?.map_or(Ok(None), |place| place.file())
}

pub(crate) fn read(root: &Root, path: &Utf8Path, bytes_max: u64) -> Result<Option<Vec<u8>>, HostError> {
    let Some(held) = file(root, path)? else { return Ok(None) };
    let content = content(&held, bytes_max).map_err(HostError::file("read", path))?;
    if content.len() as u64 > bytes_max {
        return Err(HostError::TooLong { path: path.to_owned(), bytes_max });
    }
    Ok(Some(content))
}

/// Checks the bytes in the agent's memory: later changes of the file do not reach them.
pub(crate) fn read_verified(root: &Root, path: &Utf8Path, id: ContentId) -> Result<Vec<u8>, HostError> {
    let held = root.place(path)?.map_or(Ok(None), |place| place.own_file())?.ok_or_else(|| absent("open", path))?;
    id.check_size(path, held.size())?;
    let bytes = content(&held, id.size_bytes).map_err(HostError::file("read", path))?;
    id.check(path, Sha256::of(&bytes))?;
    Ok(bytes)
}

fn absent(action: &'static str, path: &Utf8Path) -> HostError {
    HostError::file(action, path)(ErrorKind::NotFound.into())
}

pub(crate) fn has_content(
    root: &Root,
    path: &Utf8Path,
    id: ContentId,
    cancellation: &Cancellation,
) -> Result<bool, HostError> {
    match root.place(path)? {
        Some(place) => place_has_content(&place, path, id, cancellation),
        None => Ok(false),
    }
}

/// Returns true if the agent's own file is there with these bytes; false if something else is there.
fn place_has_content(
    place: &Place,
    path: &Utf8Path,
    id: ContentId,
    cancellation: &Cancellation,
) -> Result<bool, HostError> {
    let held = match place.own_file() {
        Ok(Some(held)) if held.size() == id.size_bytes => held,
        Ok(_) | Err(HostError::UnsafePath { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    let file = held.open(OFlags::RDONLY).map_err(HostError::file("open", path))?;
    Ok(digest(file.take(id.size_bytes), path, cancellation)? == id.sha256)
}

fn digest(file: impl Read, path: &Utf8Path, cancellation: &Cancellation) -> Result<Sha256, HostError> {
    let digest = Sha256::of_reader(file, || cancellation.check().map_err(DigestError::Cancelled));
    digest.map_err(|error| match error {
        DigestError::Cancelled(error) => error,
        DigestError::Failed(error) => HostError::file("read", path)(error),
    })
}

enum DigestError {
    Cancelled(HostError),
    Failed(std::io::Error),
}

impl From<std::io::Error> for DigestError {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error)
    }
}

pub(crate) fn remove_empty_folder(root: &Root, path: &Utf8Path) -> Result<Changed, HostError> {
    let Some(place) = root.place(path)? else { return Ok(Changed::No) };
    match unlinkat(place.folder(), place.name(), AtFlags::REMOVEDIR) {
        Ok(()) => Ok(Changed::Yes),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => Ok(Changed::No),
        Err(error) => Err(place.fail("remove")(error)),
    }
}

pub(crate) fn make_folder(root: &Root, path: &Utf8Path, mode: u32) -> Result<Changed, HostError> {
    let place = root.place_with_parents(path)?;
    let folder = ensure_folder(place.folder().as_fd(), place.name()).map_err(|error| match error {
        Errno::LOOP => place.unsafe_path("is a symbolic link, which is not followed"),
        error => place.fail("create")(error),
    })?;
    let status = fstat(&folder).map_err(place.fail("stat"))?;
    if is_ours(&status, mode) {
        return Ok(Changed::No);
    }
    let folder = File::from(open_folder(&folder).map_err(place.fail("open"))?);
    set_owner_and_mode(&folder, mode).map_err(HostError::file("set mode and owner of", path))?;
    Ok(Changed::Yes)
}

pub(crate) fn list(root: &Root, path: &Utf8Path) -> Result<Vec<String>, HostError> {
    let Some(place) = root.place(path)? else { return Ok(Vec::new()) };
    let folder = match look_up_folder(place.folder().as_fd(), place.name(), ResolveFlags::empty()) {
        Ok(folder) => folder,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Vec::new()),
        Err(Errno::LOOP) => return Err(place.unsafe_path("is a symbolic link, which is not followed")),
        Err(error) => return Err(place.fail("list")(error)),
    };
    let fail = place.fail("list");
    let mut names = Vec::new();
    for entry in Dir::new(open_folder(&folder).map_err(&fail)?).map_err(&fail)? {
        let name = entry.map_err(&fail)?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

pub(crate) fn open(root: &Root, path: &Utf8Path) -> Result<File, HostError> {
    let held = file(root, path)?.ok_or_else(|| absent("open", path))?;
    held.open(OFlags::RDONLY).map_err(HostError::file("open", path))
}

pub(crate) fn open_append(root: &Root, path: &Utf8Path) -> Result<File, HostError> {
    let place = root.place_with_parents(path)?;
    match place.own_file()? {
        Some(held) => held.open(OFlags::WRONLY | OFlags::APPEND).map_err(HostError::file("open", path)),
        None => place.create(0o600),
    }
}

pub(crate) fn append_bytes(root: &Root, path: &Utf8Path, content: &[u8], durable: Durable) -> Result<(), HostError> {
    let fail = |action| HostError::file(action, path);
    let held = own_file(root, path)?;
    let mut file = held.open(OFlags::WRONLY | OFlags::APPEND).map_err(fail("open"))?;
    file.write_all(content).map_err(fail("write"))?;
    sync_if_durable(&file, durable).map_err(fail("sync"))
}

pub(crate) fn overwrite(
    root: &Root,
    path: &Utf8Path,
    at: u64,
    content: &[u8],
    durable: Durable,
) -> Result<(), HostError> {
    let fail = |action| HostError::file(action, path);
    let held = own_file(root, path)?;
    if at.saturating_add(content.len() as u64) > held.size() {
        return Err(fail("write")(ErrorKind::UnexpectedEof.into()));
    }
    let file = held.open(OFlags::WRONLY).map_err(fail("open"))?;
    file.write_all_at(content, at).map_err(fail("write"))?;
    sync_if_durable(&file, durable).map_err(fail("sync"))
}

fn sync_if_durable(file: &File, durable: Durable) -> io::Result<()> {
    match durable {
        Durable::OnReturn => file.sync_data(),
        Durable::Later => Ok(()),
    }
}

/// Opens the regular file of this path, which only the agent's own user can write.
fn own_file(root: &Root, path: &Utf8Path) -> Result<FileHandle, HostError> {
    let place = root.place(path)?.ok_or_else(|| absent("open", path))?;
    place.own_file()?.ok_or_else(|| absent("open", path))
}

pub(crate) fn rename(root: &Root, from: &Utf8Path, to: &Utf8Path) -> Result<(), HostError> {
    let existing = |path| root.place(path)?.ok_or_else(|| absent("rename", path));
    let (from, to) = (existing(from)?, existing(to)?);
    rustix::fs::renameat(from.folder(), from.name(), to.folder(), to.name()).map_err(from.fail("rename"))?;
    to.sync_folder()
}

/// Copies into the agent's own, unnamed file and checks that one: changes of the source, even during the copy, do not reach the checked
/// bytes. Costs: the copy shares the source's blocks if the file system can, and takes its length on the disk otherwise; reading it back
/// takes about one second per gigabyte. A sealed copy in memory would take a gigabyte of the tenant's memory and would still have to be
/// written to the disk.
pub(crate) fn copy_verified(
    root: &Root,
    from: &Utf8Path,
    to: &Utf8Path,
    mode: u32,
    id: ContentId,
    cancellation: &Cancellation,
) -> Result<Changed, HostError> {
    let _lock = WriteLock::acquire(&root.full_path(to)?, cancellation)?;
    let place = root.place_with_parents(to)?;
    let has_mode = place.status()?.is_some_and(|status| is_ours(&status, mode));
    if has_mode && place_has_content(&place, to, id, cancellation)? {
        return Ok(Changed::No);
    }
    let source = file(root, from)?.ok_or_else(|| absent("open", from))?;
    id.check_size(from, source.size())?;
    let mut bytes = source.open(OFlags::RDONLY).map_err(HostError::file("open", from))?.take(id.size_bytes);
    let mut draft = Draft::begin(&place)?;
    std::io::copy(&mut bytes, &mut draft.file).map_err(HostError::file("copy", from))?;
    draft.file.rewind().map_err(HostError::file("read", to))?;
    id.check(from, digest(&draft.file, to, cancellation)?)?;
    draft.set_owner_and_mode(mode).map_err(HostError::file("set mode and owner of", to))?;
    draft.file.sync_all().map_err(HostError::file("sync", to))?;
    cancellation.check()?;
    draft.commit()?;
    Ok(Changed::Yes)
}

#[cfg(test)]
mod tests;

//! A name in a folder that is open: what lies there, and putting something else there whole.

use std::{
    fs::{File, Permissions},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
};

use camino::{Utf8Path, Utf8PathBuf};
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fchown, fstat, linkat, openat, renameat, statat,
        unlinkat,
    },
    io::Errno,
    process::{getegid, geteuid},
};

use crate::{
    error::HostError,
    root::{look_up_name, reopened},
};

/// A name in a folder that is open.
#[derive(Debug)]
pub(crate) struct Place {
    folder: OwnedFd,
    name: String,
    /// As it was asked for.
    path: Utf8PathBuf,
}

/// A regular file that nothing can be put in the place of any more.
#[derive(Debug)]
pub(crate) struct Held {
    name: OwnedFd,
    pub(crate) status: Stat,
}

impl Held {
    pub(crate) fn size(&self) -> u64 {
        u64::try_from(self.status.st_size).unwrap_or(0)
    }

    pub(crate) fn open(&self, flags: OFlags) -> std::io::Result<File> {
        Ok(reopened(&self.name, flags)?)
    }
}

impl Place {
    pub(crate) fn new(folder: OwnedFd, name: String, path: &Utf8Path) -> Self {
        Self { folder, name, path: path.to_owned() }
    }

    pub(crate) fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What lies there, a link itself; `None` when nothing does.
    pub(crate) fn status(&self) -> Result<Option<Stat>, HostError> {
        match statat(&self.folder, self.name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => Ok(Some(status)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(self.fail("look at")(error)),
        }
    }

    /// The regular file that lies there; `None` when nothing does.
    pub(crate) fn file(&self) -> Result<Option<Held>, HostError> {
        self.held(ResolveFlags::empty())
    }

    /// The same, of whom we run as: who alone writes it, by this name alone, and nothing is mounted over it.
    pub(crate) fn own_file(&self) -> Result<Option<Held>, HostError> {
        let Some(held) = self.held(ResolveFlags::NO_XDEV)? else { return Ok(None) };
        if held.status.st_uid != geteuid().as_raw() {
            return Err(self.unfit("belongs to another user"));
        }
        if held.status.st_mode & 0o022 != 0 {
            return Err(self.unfit("may be written by other users"));
        }
        if held.status.st_nlink != 1 {
            return Err(self.unfit("has another name, by which it could be changed"));
        }
        Ok(Some(held))
    }

    fn held(&self, also: ResolveFlags) -> Result<Option<Held>, HostError> {
        let name = match look_up_name(self.folder.as_fd(), &self.name, also) {
            Ok(name) => name,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(Errno::XDEV) => return Err(self.unfit("is mounted over")),
            Err(error) => return Err(self.fail("look at")(error)),
        };
        let status = fstat(&name).map_err(self.fail("look at"))?;
        match no_file(FileType::from_raw_mode(status.st_mode)) {
            Some(what) => Err(self.unfit(what)),
            None => Ok(Some(Held { name, status })),
        }
    }

    /// Makes a file there to append to: an error where something lies.
    pub(crate) fn created(&self, mode: u32) -> Result<File, HostError> {
        created(&self.folder, &self.name, mode, OFlags::APPEND).map_err(self.fail("make"))
    }

    /// Removes what is no folder; whether there was anything.
    pub(crate) fn unlink(&self) -> Result<bool, HostError> {
        match unlinkat(&self.folder, self.name.as_str(), AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(self.fail("remove")(error)),
        }
    }

    /// Makes the names in the folder durable.
    pub(crate) fn sync_folder(&self) -> Result<(), HostError> {
        let folder = opened(&self.folder).map_err(self.fail("open the folder of"))?;
        rustix::fs::fsync(folder).map_err(self.fail("sync the folder of"))
    }

    pub(crate) fn fail(&self, action: &'static str) -> impl Fn(Errno) -> HostError {
        let path = self.path.clone();
        move |error| HostError::file(action, &path)(error.into())
    }

    pub(crate) fn unfit(&self, what: &'static str) -> HostError {
        HostError::Unfit { path: self.path.clone(), at: self.path.clone(), what }
    }
}

/// A file that is not in place yet. It has no name until then where the file system can have such files, so that nobody else opens it; it is gone
/// when it is dropped, also by a crash.
pub(crate) struct Draft<'p> {
    place: &'p Place,
    pub(crate) file: File,
    /// Its name beside the place, while it has one.
    name: Option<String>,
}

impl<'p> Draft<'p> {
    pub(crate) fn begin(place: &'p Place) -> Result<Self, HostError> {
        let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match openat(&place.folder, ".", unnamed, Mode::from_raw_mode(0o600)) {
            Ok(file) => return Ok(Self { place, file: file.into(), name: None }),
            // Not every file system has files without a name.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
            Err(error) => return Err(place.fail("write")(error)),
        }
        let name = place.free_name().map_err(place.fail("write"))?;
        let file = created(&place.folder, &name, 0o600, OFlags::empty()).map_err(place.fail("write"))?;
        Ok(Self { place, file, name: Some(name) })
    }

    /// Gives it to whom we run as, with that mode.
    pub(crate) fn own(&self, mode: u32) -> std::io::Result<()> {
        own(&self.file, mode)
    }

    /// Puts it in place, durable. What was synced before is there whole or not at all.
    pub(crate) fn put(mut self) -> Result<(), HostError> {
        let place = self.place;
        if self.name.is_none() {
            let name = place.free_name().map_err(place.fail("write"))?;
            let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            linkat(CWD, unnamed, &place.folder, name.as_str(), AtFlags::SYMLINK_FOLLOW).map_err(place.fail("name"))?;
            self.name = Some(name);
        }
        if let Some(name) = &self.name {
            renameat(&place.folder, name.as_str(), &place.folder, place.name.as_str())
                .map_err(place.fail("put in place"))?;
        }
        self.name = None;
        let of = |status: &Stat| (status.st_dev, status.st_ino);
        let written = fstat(&self.file).map_err(place.fail("look at"))?;
        if place.status()?.as_ref().map(of) != Some(of(&written)) {
            return Err(place.unfit("was replaced while it was put in place"));
        }
        place.sync_folder()
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // What failed is told already; a draft that stays is removed before the next try.
            let _ = unlinkat(&self.place.folder, name.as_str(), AtFlags::empty());
        }
    }
}

impl Place {
    /// A name beside the place for what is not in place yet. What a crash left there goes first.
    fn free_name(&self) -> Result<String, Errno> {
        let name = format!(".{}.draft", self.name);
        match unlinkat(&self.folder, name.as_str(), AtFlags::empty()) {
            Err(error) if error != Errno::NOENT => Err(error),
            _ => Ok(name),
        }
    }
}

/// Whether something has that mode and belongs to whom we run as.
pub(crate) fn is_ours(status: &Stat, mode: u32) -> bool {
    let owner = (geteuid().as_raw(), getegid().as_raw());
    status.st_mode & 0o7777 == mode && (status.st_uid, status.st_gid) == owner
}

/// Gives something to whom we run as, with that mode.
pub(crate) fn own(open: &File, mode: u32) -> std::io::Result<()> {
    // The owner first: changing it takes some bits of the mode away.
    fchown(open, Some(geteuid()), Some(getegid()))?;
    open.set_permissions(Permissions::from_mode(mode))
}

/// A folder that is known by its name alone, opened to be read or synced.
pub(crate) fn opened(folder: &OwnedFd) -> Result<OwnedFd, Errno> {
    openat(folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn created(folder: &OwnedFd, name: &str, mode: u32, also: OFlags) -> Result<File, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(folder, name, flags | also, Mode::from_raw_mode(mode)).map(File::from)
}

/// Why that is no regular file.
fn no_file(kind: FileType) -> Option<&'static str> {
    match kind {
        FileType::RegularFile => None,
        FileType::Symlink => Some("is a link, and links are not followed"),
        FileType::Directory => Some("is a folder, not a file"),
        FileType::Fifo => Some("is a named pipe, not a file"),
        FileType::Socket => Some("is a socket, not a file"),
        _ => Some("is a device, not a file"),
    }
}

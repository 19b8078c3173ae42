//! A name in an open folder: checks the object with this name, and replaces it as a whole.

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
    lookup::{look_up_name, reopen},
};

/// A name in an open folder.
#[derive(Debug)]
pub(crate) struct Place {
    folder: OwnedFd,
    name: String,
    /// The path that the operation was called with.
    path: Utf8PathBuf,
}

/// A descriptor of a regular file; replacing the file's name does not affect it.
#[derive(Debug)]
pub(crate) struct FileHandle {
    descriptor: OwnedFd,
    pub(crate) status: Stat,
}

impl FileHandle {
    pub(crate) fn size(&self) -> u64 {
        u64::try_from(self.status.st_size).unwrap_or(0)
    }

    pub(crate) fn open(&self, flags: OFlags) -> std::io::Result<File> {
        Ok(reopen(&self.descriptor, flags)?)
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

    /// Returns the status of the object with this name, of a link itself; `None` if there is none.
    pub(crate) fn status(&self) -> Result<Option<Stat>, HostError> {
        match statat(&self.folder, self.name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => Ok(Some(status)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(self.fail("stat")(error)),
        }
    }

    /// Returns the regular file with this name; `None` if there is none.
    pub(crate) fn file(&self) -> Result<Option<FileHandle>, HostError> {
        self.look_up_file(ResolveFlags::empty())
    }

    /// Like [`Place::file`], but requires the agent's own user as owner and only writer, a single name, and no mount over it.
    pub(crate) fn own_file(&self) -> Result<Option<FileHandle>, HostError> {
        let Some(held) = self.look_up_file(ResolveFlags::NO_XDEV)? else { return Ok(None) };
        if held.status.st_uid != geteuid().as_raw() {
            return Err(self.unsafe_path("belongs to another user"));
        }
        if held.status.st_mode & 0o022 != 0 {
            return Err(self.unsafe_path("is writable by other users"));
        }
        if held.status.st_nlink != 1 {
            return Err(self.unsafe_path("has another hard link, through which it could be changed"));
        }
        Ok(Some(held))
    }

    fn look_up_file(&self, also: ResolveFlags) -> Result<Option<FileHandle>, HostError> {
        let descriptor = match look_up_name(self.folder.as_fd(), &self.name, also) {
            Ok(name) => name,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(Errno::XDEV) => return Err(self.unsafe_path("is a mount point")),
            Err(error) => return Err(self.fail("stat")(error)),
        };
        let status = fstat(&descriptor).map_err(self.fail("stat"))?;
        match not_a_file_reason(FileType::from_raw_mode(status.st_mode)) {
            Some(what) => Err(self.unsafe_path(what)),
            None => Ok(Some(FileHandle { descriptor, status })),
        }
    }

    /// Creates a file for appending; fails if the name exists.
    pub(crate) fn create(&self, mode: u32) -> Result<File, HostError> {
        create_file(&self.folder, &self.name, mode, OFlags::APPEND).map_err(self.fail("create"))
    }

    /// Removes anything but a folder; returns false if there was nothing.
    pub(crate) fn unlink(&self) -> Result<bool, HostError> {
        match unlinkat(&self.folder, self.name.as_str(), AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(self.fail("remove")(error)),
        }
    }

    /// Makes the names in the folder durable.
    pub(crate) fn sync_folder(&self) -> Result<(), HostError> {
        let folder = open_folder(&self.folder).map_err(self.fail("open the folder of"))?;
        rustix::fs::fsync(folder).map_err(self.fail("sync the folder of"))
    }

    pub(crate) fn fail(&self, action: &'static str) -> impl Fn(Errno) -> HostError {
        let path = self.path.clone();
        move |error| HostError::file(action, &path)(error.into())
    }

    pub(crate) fn unsafe_path(&self, what: &'static str) -> HostError {
        HostError::UnsafePath { path: self.path.clone(), at: self.path.clone(), what }
    }
}

/// A file that is not in place yet. It is unnamed until then if the file system supports unnamed files, so that no other process can open
/// it. An unnamed draft disappears when it is dropped, also by a crash; a named one when it is dropped, or at the next attempt.
pub(crate) struct Draft<'p> {
    place: &'p Place,
    pub(crate) file: File,
    /// Its temporary name in the same folder, if it has one.
    name: Option<String>,
}

impl<'p> Draft<'p> {
    pub(crate) fn begin(place: &'p Place) -> Result<Self, HostError> {
        let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match openat(&place.folder, ".", unnamed, Mode::from_raw_mode(0o600)) {
            Ok(file) => return Ok(Self { place, file: file.into(), name: None }),
            // Some file systems have no unnamed files.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
            Err(error) => return Err(place.fail("write")(error)),
        }
        let name = place.draft_name().map_err(place.fail("write"))?;
        let file = create_file(&place.folder, &name, 0o600, OFlags::empty()).map_err(place.fail("write"))?;
        Ok(Self { place, file, name: Some(name) })
    }

    /// Gives the file to the agent's own user, with this mode.
    pub(crate) fn set_owner_and_mode(&self, mode: u32) -> std::io::Result<()> {
        set_owner_and_mode(&self.file, mode)
    }

    /// Puts the file in place and makes its name durable. Content that was synced before is there whole or not at all.
    pub(crate) fn commit(mut self) -> Result<(), HostError> {
        let place = self.place;
        if self.name.is_none() {
            let name = place.draft_name().map_err(place.fail("write"))?;
            let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            linkat(CWD, unnamed, &place.folder, name.as_str(), AtFlags::SYMLINK_FOLLOW).map_err(place.fail("link"))?;
            self.name = Some(name);
        }
        if let Some(name) = &self.name {
            renameat(&place.folder, name.as_str(), &place.folder, place.name.as_str())
                .map_err(place.fail("replace"))?;
        }
        self.name = None;
        let of = |status: &Stat| (status.st_dev, status.st_ino);
        let written = fstat(&self.file).map_err(place.fail("stat"))?;
        if place.status()?.as_ref().map(of) != Some(of(&written)) {
            return Err(place.unsafe_path("was replaced by another process during the write"));
        }
        place.sync_folder()
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // The original failure is already reported; a remaining draft is removed before the next attempt.
            let _ = unlinkat(&self.place.folder, name.as_str(), AtFlags::empty());
        }
    }
}

impl Place {
    /// Returns a temporary name in the same folder. Removes a draft that a crash left there.
    fn draft_name(&self) -> Result<String, Errno> {
        let name = format!(".{}.draft", self.name);
        match unlinkat(&self.folder, name.as_str(), AtFlags::empty()) {
            Err(error) if error != Errno::NOENT => Err(error),
            _ => Ok(name),
        }
    }
}

/// Returns true if the object has this mode and belongs to the agent's own user and group.
pub(crate) fn is_ours(status: &Stat, mode: u32) -> bool {
    let owner = (geteuid().as_raw(), getegid().as_raw());
    status.st_mode & 0o7777 == mode && (status.st_uid, status.st_gid) == owner
}

/// Gives an open file to the agent's own user and group, with this mode.
pub(crate) fn set_owner_and_mode(open: &File, mode: u32) -> std::io::Result<()> {
    // The owner first: a change of owner clears some mode bits.
    fchown(open, Some(geteuid()), Some(getegid()))?;
    open.set_permissions(Permissions::from_mode(mode))
}

/// Opens a folder of an `O_PATH` descriptor for reading or syncing.
pub(crate) fn open_folder(folder: &OwnedFd) -> Result<OwnedFd, Errno> {
    openat(folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn create_file(folder: &OwnedFd, name: &str, mode: u32, also: OFlags) -> Result<File, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(folder, name, flags | also, Mode::from_raw_mode(mode)).map(File::from)
}

/// Returns the reason why this is not a regular file; `None` for regular files.
fn not_a_file_reason(kind: FileType) -> Option<&'static str> {
    match kind {
        FileType::RegularFile => None,
        FileType::Symlink => Some("is a symbolic link, which is not followed"),
        FileType::Directory => Some("is a folder, not a file"),
        FileType::Fifo => Some("is a named pipe, not a file"),
        FileType::Socket => Some("is a socket, not a file"),
        _ => Some("is a device, not a file"),
    }
}

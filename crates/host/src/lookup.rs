//! Lookups below an open folder, by the rules of [`crate::root`].

use std::{
    fs::File,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2},
    io::Errno,
    path::Arg,
};

/// Mode of missing parent folders that are created.
const FOLDER_MODE: u32 = 0o755;
/// The kernel asks for another try if something was renamed during the lookup; libpathrs tries as often.
const TRIES: u32 = 128;

pub(crate) const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
pub(crate) const ANYTHING: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Flags of rule 1.
pub(crate) const BELOW: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Looks up a path below a folder.
pub(crate) fn look_up(
    folder: BorrowedFd<'_>,
    path: impl Arg + Copy,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    for _ in 1..TRIES {
        match openat2(folder, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            ended => return ended,
        }
    }
    openat2(folder, path, flags, Mode::empty(), resolve)
}

/// Looks up one name of any type in a folder; a link is opened itself. `also` adds restrictions.
pub(crate) fn look_up_name(folder: BorrowedFd<'_>, name: &str, also: ResolveFlags) -> Result<OwnedFd, Errno> {
    look_up(folder, name, ANYTHING, BELOW | also)
}

/// Looks up a folder in a folder. `also` adds restrictions.
pub(crate) fn look_up_folder(
    folder: BorrowedFd<'_>,
    name: impl Arg + Copy,
    also: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    look_up(folder, name, FOLDER, BELOW | also)
}

/// Opens a folder in a folder, and creates it if it is missing.
pub(crate) fn ensure_folder(folder: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    match look_up_folder(folder, name, ResolveFlags::empty()) {
        Err(Errno::NOENT) => {}
        looked_up => return looked_up,
    }
    match mkdirat(folder, name, Mode::from_raw_mode(FOLDER_MODE)) {
        Ok(()) | Err(Errno::EXIST) => look_up_folder(folder, name, ResolveFlags::empty()),
        Err(error) => Err(error),
    }
}

/// Opens the object of an `O_PATH` descriptor: it cannot be replaced between check and opening.
pub(crate) fn reopen(held: &OwnedFd, flags: OFlags) -> Result<File, Errno> {
    let path = format!("/proc/self/fd/{}", held.as_raw_fd());
    openat(CWD, path, flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()).map(File::from)
}

//! Removal of files, links and whole folders: follows no link, empties no mount, and does bounded work on folders of any depth and size.

use std::{
    ffi::CString,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, ResolveFlags, unlinkat},
    io::Errno,
};

use crate::{
    error::HostError,
    file::Changed,
    lookup::look_up_folder,
    place::{Place, open_folder},
};

/// Deepest nesting of folders that is removed: the agent's own folders have one level. Each level holds open descriptors.
const DEPTH_MAX: u32 = 64;
/// Most entries removed in one call: the agent's own folders have ten. It stops the removal of a folder that grows faster than it is
/// emptied.
const ENTRIES_MAX: u32 = 100_000;
/// Names read at once.
const BATCH: usize = 1_024;

/// Removes a file, a link itself, or a folder with its content.
pub(crate) fn remove(place: &Place) -> Result<Changed, HostError> {
    let Some(status) = place.status()? else { return Ok(Changed::No) };
    if !FileType::from_raw_mode(status.st_mode).is_dir() {
        return Ok(if place.unlink()? { Changed::Yes } else { Changed::No });
    }
    let removed = remove_folder(place.folder(), &c_string(place.name()), &mut Budget { entries: ENTRIES_MAX }, 0);
    removed.map(|()| Changed::Yes).map_err(|stop| match stop {
        RemoveError::Failed(Errno::XDEV) => place.unsafe_path("is or contains a mount point, which is not removed"),
        RemoveError::Failed(error) => place.fail("remove")(error),
        RemoveError::LimitExceeded => place.unsafe_path("has more entries or deeper folders than one removal allows"),
    })
}

enum RemoveError {
    Failed(Errno),
    LimitExceeded,
}

impl From<Errno> for RemoveError {
    fn from(error: Errno) -> Self {
        Self::Failed(error)
    }
}

struct Budget {
    entries: u32,
}

fn remove_folder(parent: &OwnedFd, name: &CString, budget: &mut Budget, depth: u32) -> Result<(), RemoveError> {
    if depth >= DEPTH_MAX {
        return Err(RemoveError::LimitExceeded);
    }
    let folder = look_up_folder(parent.as_fd(), name.as_c_str(), ResolveFlags::NO_XDEV)?;
    loop {
        let names = next_names(&folder)?;
        if names.is_empty() {
            break;
        }
        for name in names {
            budget.entries = budget.entries.checked_sub(1).ok_or(RemoveError::LimitExceeded)?;
            match unlinkat(&folder, name.as_c_str(), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR) => remove_folder(&folder, &name, budget, depth + 1)?,
                Err(error) => return Err(error.into()),
            }
        }
    }
    match unlinkat(parent, name.as_c_str(), AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns at most [`BATCH`] of the names in a folder; none if it is empty.
fn next_names(folder: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::new(open_folder(folder)?)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
        if names.len() == BATCH {
            break;
        }
    }
    Ok(names)
}

/// Converts a name of a path, which has no NUL byte.
fn c_string(name: &str) -> CString {
    CString::new(name).unwrap_or_default()
}

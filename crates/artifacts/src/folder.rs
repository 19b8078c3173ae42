//! An open folder with a release: its files are opened relative to its descriptor and never through links.

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Component, Path},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, fstat, openat},
    io::Errno,
};

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// An open folder.
pub(crate) struct Folder(OwnedFd);

impl Folder {
    /// Opens one of the control plane's own folders; follows links in `path`.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(openat(CWD, path, FOLDER, Mode::empty())?))
    }

    /// Opens the folder `path`, which must be `top` or below it; both are absolute paths. Follows no link below `top`.
    pub(crate) fn open_below(top: &Path, path: &Path) -> io::Result<Self> {
        let rest = path.strip_prefix(top).map_err(io::Error::other)?;
        let mut folder = openat(CWD, top, FOLDER, Mode::empty())?;
        for component in rest.components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) => folder = openat(&folder, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?,
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(io::Error::other("the path leads upward"));
                }
            }
        }
        Ok(Self(folder))
    }

    /// Opens a regular file directly in the folder and returns it with its length; `None` if there is none. Anything else by that name,
    /// such as a pipe or a link, is an error and does not block.
    pub(crate) fn file(&self, name: &str) -> io::Result<Option<(File, u64)>> {
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(&self.0, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let status = fstat(&file)?;
        if !FileType::from_raw_mode(status.st_mode).is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        Ok(Some((file.into(), u64::try_from(status.st_size).unwrap_or(0))))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn folder_is_opened_below_another_without_following_links() {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name);
        std::fs::create_dir_all(path("releases/v1")).unwrap();
        std::fs::write(path("releases/v1/file"), "x").unwrap();
        symlink("releases", path("link")).unwrap();
        symlink("v1", path("releases/v2")).unwrap();
        assert!(Folder::open_below(top.path(), &path("releases/v1")).unwrap().file("file").unwrap().is_some());
        for bad in ["link/v1", "releases/v2", "releases/../releases/v1", "nowhere", "releases/v1/file"] {
            assert!(Folder::open_below(top.path(), &path(bad)).is_err(), "{bad}");
        }
        assert!(Folder::open_below(&path("releases"), top.path()).is_err(), "it is above the top folder");
        assert!(
            Folder::open_below(&path("rel"), &path("releases/v1")).is_err(),
            "a prefix of a name is another folder"
        );
    }

    #[test]
    fn only_regular_files_directly_in_the_folder_are_opened() {
        let top = tempfile::tempdir().unwrap();
        std::fs::write(top.path().join("file"), "12345").unwrap();
        std::fs::create_dir(top.path().join("folder")).unwrap();
        symlink("file", top.path().join("link")).unwrap();
        rustix::fs::mknodat(CWD, top.path().join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let folder = Folder::open(top.path()).unwrap();
        assert_eq!(folder.file("file").unwrap().unwrap().1, 5);
        for absent in ["nowhere", "", ".", "..", "folder/x", "../file"] {
            assert!(folder.file(absent).unwrap().is_none(), "{absent}");
        }
        for other in ["folder", "link", "pipe"] {
            assert!(folder.file(other).is_err(), "{other}");
        }
    }
}

//! Read access to a node's own files.

use std::{
    io::{ErrorKind, Read, Seek, SeekFrom, Write},
    os::fd::OwnedFd,
};

use camino::{Utf8Component, Utf8Path, Utf8PathBuf};
use rustix::fs::{AtFlags, Dir, OFlags, StatVfs, readlinkat, statat};

use crate::{
    error::HostError,
    file::{Changed, FileSpec},
    files,
    place::{Place, open_folder},
    root::Root,
    write_lock::Cancellation,
};

/// Longest file that is read, in bytes: `modules.dep` of a large kernel has about 700 KB.
const TEXT_BYTES_MAX: u64 = 4 * 1_024 * 1_024;
/// Most names that are listed of a folder.
const NAMES_MAX: usize = 4_096;

/// Mode of the file in which a sandbox keeps a kernel parameter of its own.
const SYSCTL_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

/// The files that a node reads about itself. Links are followed inside its root; only regular files are read.
///
/// A real machine's root is `/`. A sandbox has its own root and shares its machine's kernel: files that it lacks under `/proc`, `/sys` and
/// `/lib/modules` are read from the machine if they describe the kernel, and not if they describe devices, disks or routes. A sandbox's own
/// file takes precedence: so a sandbox has its own kernel parameters, which do not affect the machine's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    root: Root,
    shared: Option<Root>,
}

impl Tree {
    /// Returns the tree of the machine that this process runs on.
    pub fn of_this_machine() -> Self {
        Self::at("/".into())
    }

    /// Returns the tree of a machine whose files are under this folder.
    pub fn at(root: Utf8PathBuf) -> Self {
        Self { root: Root::new(root), shared: None }
    }

    /// Returns the tree of a sandbox on this machine.
    pub fn of_sandbox(root: Utf8PathBuf) -> Self {
        Self { root: Root::new(root), shared: Some(Root::new("/".into())) }
    }

    /// Returns true for a sandbox, which shares the kernel of its machine.
    pub fn is_sandbox(&self) -> bool {
        self.shared.is_some()
    }

    /// Returns the path of one of its own files on the surrounding machine. Ignores `..`.
    pub fn real_path(&self, path: &str) -> Utf8PathBuf {
        let names = Utf8Path::new(path).components().filter(|part| matches!(part, Utf8Component::Normal(_)));
        names.fold(self.root.folder().to_owned(), |place, name| place.join(name))
    }

    /// Returns the text of one of its own files; `None` if there is no readable one.
    pub fn own_text(&self, path: &str) -> Option<String> {
        self.root.text(path.into(), TEXT_BYTES_MAX)
    }

    /// Returns the text of one of its own files, or else of the shared kernel's.
    pub fn text(&self, path: &str) -> Option<String> {
        self.own_text(path).or_else(|| self.kernel_root(path)?.text(path.into(), TEXT_BYTES_MAX))
    }

    /// Returns the first line of a file, trimmed; empty if there is none.
    pub fn line(&self, path: &str) -> String {
        let text = self.text(path).unwrap_or_default();
        text.lines().next().unwrap_or_default().trim().to_owned()
    }

    /// Returns the permission bits of one of its own regular files; `None` if there is no file. Follows no link.
    pub fn own_mode(&self, path: &str) -> Result<Option<u32>, HostError> {
        Ok(files::file(&self.root, path.into())?.map(|held| held.status.st_mode & 0o7777))
    }

    /// Returns the last bytes of one of its own regular files, at most `bytes_max`; `None` if there is no file. Follows no link.
    pub fn own_end(&self, path: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, HostError> {
        let Some(held) = files::file(&self.root, path.into())? else { return Ok(None) };
        let read = || {
            let (mut file, mut end) = (held.open(OFlags::RDONLY)?, Vec::new());
            file.seek(SeekFrom::Start(held.size().saturating_sub(bytes_max)))?;
            // A file that grows meanwhile yields no more than its end had.
            file.take(bytes_max).read_to_end(&mut end)?;
            Ok(end)
        };
        read().map(Some).map_err(HostError::file("read", path.into()))
    }

    /// Returns true if one of its own paths exists, a dangling link included.
    pub fn own_exists(&self, path: &str) -> bool {
        let stat = |folder: OwnedFd, name: &str| statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        self.with_parent(path, stat).is_some()
    }

    /// Returns true if the path exists in its own files or in the shared kernel's.
    pub fn exists(&self, path: &str) -> bool {
        self.own_exists(path) || self.kernel_root(path).is_some_and(|kernel| kernel.resolves(path.into()))
    }

    /// Returns the sorted names in one of its own folders; none if there is no such folder.
    pub fn own_names(&self, path: &str) -> Vec<String> {
        names(&self.root, path)
    }

    /// Returns the sorted names in one of its own folders, or else in the shared kernel's.
    pub fn names(&self, path: &str) -> Vec<String> {
        if self.own_exists(path) {
            return self.own_names(path);
        }
        self.kernel_root(path).map_or_else(Vec::new, |kernel| names(kernel, path))
    }

    /// Returns the target of one of its own links.
    pub fn link(&self, path: &str) -> Option<Utf8PathBuf> {
        let target = self.with_parent(path, |folder, name| readlinkat(folder, name, Vec::new()).ok())?;
        target.into_string().ok().map(Utf8PathBuf::from)
    }

    /// Returns the first link in one of its own paths; the agent does not write through links.
    pub fn symlink_in_path(&self, path: &str) -> Option<Utf8PathBuf> {
        self.root.symlink_in_path(path.into())
    }

    /// Returns the size and free space of the file system on which one of its own folders is, or would be once it is created.
    pub(crate) fn stat_vfs(&self, folder: &str) -> Option<StatVfs> {
        self.root.stat_vfs(folder.into())
    }

    /// Returns a place for writing: a name in one of its own folders, or in the deepest existing folder above it.
    pub(crate) fn nearest(&self, folder: &str, name: &str) -> Result<Place, HostError> {
        let nearest = self.root.nearest(folder.into())?;
        Ok(Place::new(nearest, name.to_owned(), &Utf8Path::new(folder).join(name)))
    }

    /// Creates one of its own folders.
    pub(crate) fn make_folder(&self, folder: &Utf8Path) -> Result<Changed, HostError> {
        files::make_folder(&self.root, folder, FOLDER_MODE)
    }

    /// Returns a kernel parameter by its dotted name; `None` if the kernel has no such parameter.
    pub fn sysctl(&self, name: &str) -> Option<String> {
        let value = self.text(&sysctl_path(name)?)?;
        Some(value.trim().to_owned())
    }

    /// Sets an existing kernel parameter until the next boot. A sandbox stores it in its own folder.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<Changed, HostError> {
        let path = sysctl_path(name).ok_or_else(|| HostError::InvalidPath { path: name.into() })?;
        let missing = || HostError::file("set", Utf8Path::new(&path))(ErrorKind::NotFound.into());
        if self.sysctl(name).ok_or_else(missing)? == value {
            return Ok(Changed::No);
        }
        let content = format!("{value}\n").into_bytes();
        if self.is_sandbox() {
            let (_caller, cancellation) = Cancellation::new();
            return files::write(
                &self.root,
                &FileSpec { path: path.into(), mode: SYSCTL_MODE, content },
                &cancellation,
            );
        }
        // On a real machine, writing the kernel's own file sets the parameter.
        let place = self.root.place(Utf8Path::new(&path))?.ok_or_else(missing)?;
        let file = place.file()?.ok_or_else(missing)?.open(OFlags::WRONLY | OFlags::TRUNC);
        file.and_then(|mut file| file.write_all(&content)).map_err(HostError::file("set", Utf8Path::new(&path)))?;
        Ok(Changed::Yes)
    }

    /// Calls `look` with a path's parent folder and its last name; `.` for the root.
    fn with_parent<T>(&self, path: &str, look: impl FnOnce(OwnedFd, &str) -> Option<T>) -> Option<T> {
        let path = Utf8Path::new(path);
        look(self.root.open_folder_in_root(path.parent().unwrap_or(path))?, path.file_name().unwrap_or("."))
    }

    /// Returns the machine's root if the path is one of the shared kernel's.
    fn kernel_root(&self, path: &str) -> Option<&Root> {
        let is_kernel_path = ["/proc/", "/sys/", "/lib/modules/"].iter().any(|folder| path.starts_with(folder));
        self.shared.as_ref().filter(|_| is_kernel_path)
    }
}

/// Returns the path of a parameter whose name has letters, digits, `_` and `-` between dots, so that it cannot leave `/proc/sys`.
fn sysctl_path(name: &str) -> Option<String> {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    };
    name.split('.').all(is_part).then(|| format!("/proc/sys/{}", name.replace('.', "/")))
}

fn names(root: &Root, folder: &str) -> Vec<String> {
    let entries = root.open_folder_in_root(folder.into()).and_then(|folder| Dir::new(open_folder(&folder).ok()?).ok());
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name().to_owned());
    let names = names.filter_map(|name| name.into_string().ok()).filter(|name| name != "." && name != "..");
    let mut names: Vec<String> = names.take(NAMES_MAX).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use super::*;

    /// Creates a machine with these files; they are deleted with the returned folder.
    pub(in crate::survey) fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().unwrap();
        let root = Utf8PathBuf::from_path_buf(folder.path().canonicalize().unwrap()).unwrap();
        for (path, text) in files {
            let place = root.join(path.trim_start_matches('/'));
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, text).unwrap();
        }
        (folder, Tree::at(root))
    }

    #[test]
    fn a_sandbox_reads_its_machines_kernel_and_nothing_else_of_it() {
        let (folder, machine) = machine(&[("/etc/hostname", "own\n")]);
        let sandbox = Tree::of_sandbox(machine.root.folder().to_owned());
        assert_eq!(sandbox.line("/etc/hostname"), "own");
        assert!(sandbox.text("/proc/version").is_some() && machine.text("/proc/version").is_none());
        assert!(sandbox.own_text("/proc/version").is_none() && sandbox.own_names("/proc").is_empty());
        assert!(!sandbox.exists("/etc/passwd") && sandbox.text("/etc/passwd").is_none());
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("out")).unwrap();
        assert_eq!(sandbox.text("/out"), None, "no link leads out of the root");
        assert_eq!(sandbox.real_path("/../etc/../x"), machine.root.folder().join("etc/x"));
        assert_eq!(sandbox.link("/out").unwrap(), "/etc/passwd");
    }

    #[test]
    fn sysctls_of_a_sandbox_do_not_change_the_machine() {
        let (_folder, machine) = machine(&[]);
        let sandbox = Tree::of_sandbox(machine.root.folder().to_owned());
        let name = "fs.inotify.max_user_instances";
        let of_machine = Tree::of_this_machine().sysctl(name).unwrap();
        assert_eq!(sandbox.sysctl(name).unwrap(), of_machine);
        let other = format!("{}1", of_machine);
        assert_eq!(sandbox.set_sysctl(name, &other).unwrap(), Changed::Yes);
        assert_eq!(sandbox.set_sysctl(name, &other).unwrap(), Changed::No);
        assert_eq!(sandbox.sysctl(name).unwrap(), other);
        assert_eq!(Tree::of_this_machine().sysctl(name).unwrap(), of_machine);
        assert!(sandbox.set_sysctl("net.no.such_parameter", "1").is_err());
    }

    #[test]
    fn end_and_mode_of_a_regular_file_are_read_and_no_link_is_followed() {
        let (folder, machine) = machine(&[("/var/log/x", "first\nlast\n")]);
        assert_eq!(machine.own_end("/var/log/x", 5).unwrap().unwrap(), b"last\n");
        assert_eq!(machine.own_end("/var/log/x", 500).unwrap().unwrap(), b"first\nlast\n");
        assert_eq!(machine.own_end("/var/log/none", 5).unwrap(), None);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
        fs::set_permissions(folder.path().join("var/log/x"), mode).unwrap();
        assert_eq!(machine.own_mode("/var/log/x").unwrap(), Some(0o640));
        std::os::unix::fs::symlink("x", folder.path().join("var/log/link")).unwrap();
        assert!(machine.own_end("/var/log/link", 5).is_err() && machine.own_mode("/var/log/link").is_err());
    }

    #[test]
    fn sysctl_name_cannot_leave_proc_sys() {
        let (_folder, machine) = machine(&[("/proc/sys/vm/swappiness", "60\n"), ("/proc/secret", "x")]);
        assert_eq!(machine.sysctl("vm.swappiness").as_deref(), Some("60"));
        for odd in ["", "vm", "vm..swappiness", "../secret", "vm/swappiness", "vm.no_such"] {
            assert_eq!(machine.sysctl(odd), None, "{odd}");
        }
    }
}

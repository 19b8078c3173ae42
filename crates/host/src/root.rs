//! Looks up paths on a host. All file operations go through here and follow these rules.
//!
//! The tenant is root on the host, and so was the previous tenant: any part of a path may have been planted.
//!
//! 1. A path is looked up once, by `openat2` below a descriptor of the host's root: no link is followed, and the lookup cannot go up or
//!    out. The operation then works relative to the folder that was opened ([`Place`]).
//! 2. Links that distributions install ([`DISTRIBUTION_LINKS`]) are not followed either: a path that begins with one is looked up at the
//!    distribution's target, whatever the link contains.
//! 3. Data on another disk is mounted, not linked. Mounts are crossed on the way to a folder: only the machine's root can make them, and
//!    they end at reboot unless the machine's own configuration repeats them. They are not crossed at a file that is changed in place, nor
//!    below a folder that is being removed.
//! 4. Only regular files are opened: pipes, devices and sockets are recognised through a descriptor that does not open them (`O_PATH`).
//! 5. A file that is appended to, or accepted for its content, belongs to the user that the agent runs as, is writable by that user alone,
//!    and has a single name.
//!
//! Facts about the machine ([`crate::survey::Tree`]) are read through links, because `/sys` and `/etc/resolv.conf` consist of them; these
//! reads also stay inside the root (`RESOLVE_IN_ROOT`), and rule 4 applies. Programs are run by their path, which the kernel looks up:
//! `/usr/sbin/iptables` is a link on most machines.

use std::{
    io::Read,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, OnceLock},
};

use camino::{Utf8Component, Utf8Path, Utf8PathBuf};
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatVfs, fstat, fstatvfs, openat, openat2, statat},
    io::Errno,
};

use crate::{
    error::HostError,
    lookup::{ANYTHING, BELOW, FOLDER, ensure_folder, look_up, reopen},
    place::Place,
};

/// Links that distributions install, with their targets; a target can begin with a later link.
const DISTRIBUTION_LINKS: [(&str, &str); 7] = [
    ("bin", "usr/bin"),
    ("sbin", "usr/sbin"),
    ("lib", "usr/lib"),
    ("lib64", "usr/lib64"),
    ("var/run", "run"),
    ("var/lock", "run/lock"),
    ("usr/sbin", "usr/bin"),
];

/// Flags for reading facts through links.
const INSIDE: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

/// The folder that is `/` on a host: `/` itself, or a sandbox's folder. Opened once, at the first lookup.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    folder: Utf8PathBuf,
    opened: Arc<OnceLock<OwnedFd>>,
}

impl PartialEq for Root {
    fn eq(&self, other: &Self) -> bool {
        self.folder == other.folder
    }
}

impl Eq for Root {}

impl Root {
    /// Returns the root at `folder`, which is not opened yet.
    pub(crate) fn new(folder: Utf8PathBuf) -> Self {
        Self { folder, opened: Arc::default() }
    }

    /// Checks that paths can be looked up: the kernel must have `openat2`.
    pub(crate) fn check(&self) -> Result<(), HostError> {
        self.descriptor().map(drop)
    }

    /// Returns the folder's path on the surrounding machine.
    pub(crate) fn folder(&self) -> &Utf8Path {
        &self.folder
    }

    /// Translates a path of the host to the surrounding machine's path, for messages and programs.
    pub(crate) fn full_path(&self, path: &Utf8Path) -> Result<Utf8PathBuf, HostError> {
        Ok(names(path)?.iter().fold(self.folder.clone(), |named, name| named.join(name)))
    }

    /// Returns a program's path on the surrounding machine. In a sandbox the path must pass rule 1.
    pub(crate) fn program(&self, path: &Utf8Path) -> Result<Utf8PathBuf, HostError> {
        if self.folder != "/" {
            self.place(path)?;
        }
        self.full_path(path)
    }

    fn descriptor(&self) -> Result<BorrowedFd<'_>, HostError> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened.as_fd());
        }
        let fail = |error: Errno| HostError::file("open", &self.folder)(error.into());
        let opened = openat(CWD, self.folder.as_str(), FOLDER, Mode::empty()).map_err(fail)?;
        openat2(&opened, ".", FOLDER, Mode::empty(), BELOW)
            .map_err(|error| openat2_error(error).unwrap_or_else(|| fail(error)))?;
        Ok(self.opened.get_or_init(|| opened).as_fd())
    }

    /// Opens the parent folder of a path; `None` if it does not exist.
    pub(crate) fn place(&self, path: &Utf8Path) -> Result<Option<Place>, HostError> {
        let (parents, name) = self.split(path)?;
        match look_up(self.descriptor()?, joined(&parents).as_str(), FOLDER, BELOW) {
            Ok(folder) => Ok(Some(Place::new(folder, name, path))),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(self.lookup_error(path, &parents, error)),
        }
    }

    /// Like [`Root::place`], but creates missing parent folders.
    pub(crate) fn place_with_parents(&self, path: &Utf8Path) -> Result<Place, HostError> {
        if let Some(place) = self.place(path)? {
            return Ok(place);
        }
        let (parents, name) = self.split(path)?;
        let refused = |error| self.lookup_error(path, &parents, error);
        let mut folder = look_up(self.descriptor()?, ".", FOLDER, BELOW).map_err(refused)?;
        for parent in &parents {
            folder = ensure_folder(folder.as_fd(), parent).map_err(refused)?;
        }
        Ok(Place::new(folder, name, path))
    }

    /// Opens the deepest existing folder of a path, the path itself included.
    pub(crate) fn nearest(&self, path: &Utf8Path) -> Result<OwnedFd, HostError> {
        let names = self.resolve_distribution_links(names(path)?)?;
        let refused = |error| self.lookup_error(path, &names, error);
        let mut nearest = look_up(self.descriptor()?, ".", FOLDER, BELOW).map_err(refused)?;
        for name in &names {
            nearest = match look_up(nearest.as_fd(), name.as_str(), FOLDER, BELOW) {
                Ok(folder) => folder,
                Err(Errno::NOENT | Errno::NOTDIR) => break,
                Err(error) => return Err(refused(error)),
            };
        }
        Ok(nearest)
    }

    /// Calls `visit` with each folder along a path and the next name, before that name is looked up, as far as there are folders; and with the
    /// path's own folder and no name if it is one.
    pub(crate) fn walk(
        &self,
        path: &Utf8Path,
        mut visit: impl FnMut(BorrowedFd<'_>, Option<&str>) -> Result<(), HostError>,
    ) -> Result<(), HostError> {
        let names = self.resolve_distribution_links(names(path)?)?;
        let refused = |error| self.lookup_error(path, &names, error);
        let mut folder = look_up(self.descriptor()?, ".", FOLDER, BELOW).map_err(refused)?;
        for name in &names {
            visit(folder.as_fd(), Some(name))?;
            folder = match look_up(folder.as_fd(), name.as_str(), FOLDER, BELOW) {
                Ok(next) => next,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
                Err(error) => return Err(refused(error)),
            };
        }
        visit(folder.as_fd(), None)
    }

    /// Returns the first link in a path that is not one of the distribution's, as a path of the host.
    pub(crate) fn symlink_in_path(&self, path: &Utf8Path) -> Option<Utf8PathBuf> {
        self.first_symlink(&self.resolve_distribution_links(names(path).ok()?).ok()?)
    }

    fn first_symlink(&self, names: &[String]) -> Option<Utf8PathBuf> {
        let root = self.descriptor().ok()?;
        (1..=names.len()).map(|count| joined(&names[..count])).find_map(|path| {
            let met = look_up(root, path.as_str(), ANYTHING, BELOW).ok()?;
            let is_link = fstat(met).is_ok_and(|status| FileType::from_raw_mode(status.st_mode).is_symlink());
            is_link.then(|| Utf8Path::new("/").join(path))
        })
    }

    /// Returns the names of a path's parent folders, and its last name.
    fn split(&self, path: &Utf8Path) -> Result<(Vec<String>, String), HostError> {
        let mut names = self.resolve_distribution_links(names(path)?)?;
        let last = names.pop().ok_or_else(|| HostError::InvalidPath { path: path.to_owned() })?;
        Ok((names, last))
    }

    /// Applies rule 2.
    fn resolve_distribution_links(&self, mut names: Vec<String>) -> Result<Vec<String>, HostError> {
        let root = self.descriptor()?;
        for (link, leads_to) in DISTRIBUTION_LINKS {
            let length = link.split('/').count();
            if names.len() <= length || joined(&names[..length]) != link {
                continue;
            }
            let status = statat(root, link, AtFlags::SYMLINK_NOFOLLOW);
            if status.is_ok_and(|status| FileType::from_raw_mode(status.st_mode).is_symlink()) {
                names.splice(..length, leads_to.split('/').map(str::to_owned));
            }
        }
        Ok(names)
    }

    fn lookup_error(&self, path: &Utf8Path, names: &[String], error: Errno) -> HostError {
        if error != Errno::LOOP {
            return HostError::file("resolve", path)(error.into());
        }
        let at = self.first_symlink(names).unwrap_or_else(|| path.to_owned());
        HostError::UnsafePath { path: path.to_owned(), at, what: "is a symbolic link, which is not followed" }
    }
}

/// Reads through links, inside the root.
impl Root {
    /// Opens the object at a path, through links.
    fn open_in_root(&self, path: &Utf8Path, flags: OFlags) -> Option<OwnedFd> {
        let names = names(path).ok()?;
        look_up(self.descriptor().ok()?, joined(&names).as_str(), flags, INSIDE).ok()
    }

    /// Returns the text of a regular file, cut to `bytes_max`; `None` if there is no readable file.
    pub(crate) fn text(&self, path: &Utf8Path, bytes_max: u64) -> Option<String> {
        let found = self.open_in_root(path, OFlags::PATH | OFlags::CLOEXEC)?;
        if !FileType::from_raw_mode(fstat(&found).ok()?.st_mode).is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        reopen(&found, OFlags::RDONLY).ok()?.take(bytes_max).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns true if the path, with its links followed, leads to an existing object.
    pub(crate) fn resolves(&self, path: &Utf8Path) -> bool {
        self.open_in_root(path, OFlags::PATH | OFlags::CLOEXEC).is_some()
    }

    /// Opens a folder through links, for lookups in it.
    pub(crate) fn open_folder_in_root(&self, path: &Utf8Path) -> Option<OwnedFd> {
        self.open_in_root(path, FOLDER)
    }

    /// Returns the size and free space of the file system on which a folder is, or would be once it is created.
    pub(crate) fn stat_vfs(&self, path: &Utf8Path) -> Option<StatVfs> {
        let nearest = path.ancestors().find_map(|folder| self.open_in_root(folder, FOLDER))?;
        fstatvfs(nearest).ok()
    }
}

/// Splits a path into its names. Refuses relative paths, `..` and NUL bytes.
fn names(path: &Utf8Path) -> Result<Vec<String>, HostError> {
    let refuse = || HostError::InvalidPath { path: path.to_owned() };
    if !path.is_absolute() || path.as_str().contains('\0') {
        return Err(refuse());
    }
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Utf8Component::RootDir | Utf8Component::CurDir => {}
            Utf8Component::Normal(name) => names.push(name.to_owned()),
            Utf8Component::ParentDir | Utf8Component::Prefix(_) => return Err(refuse()),
        }
    }
    Ok(names)
}

/// Joins names to a path for `openat2`.
fn joined(names: &[String]) -> String {
    if names.is_empty() { ".".to_owned() } else { names.join("/") }
}

/// Returns the error for a missing `openat2`: kernels before 5.6 do not have it, and filters of older container runtimes forbid unknown
/// calls.
fn openat2_error(error: Errno) -> Option<HostError> {
    matches!(error, Errno::NOSYS | Errno::PERM).then(|| {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        HostError::KernelTooOld { release }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(Utf8PathBuf::from_path_buf(folder.path().to_owned()).unwrap());
        (folder, root)
    }

    #[test]
    fn paths_resolve_only_below_the_root() {
        let (folder, root) = root();
        assert_eq!(root.full_path("/etc/x".into()).unwrap(), root.folder.join("etc/x"));
        for bad in ["etc/x", "/../etc/x", "/etc/../../x", "", "/etc/\0"] {
            assert!(matches!(root.place(bad.into()), Err(HostError::InvalidPath { .. })), "{bad:?}");
            assert!(root.text(bad.into(), 10).is_none(), "{bad:?}");
        }
        assert!(matches!(root.place("/".into()), Err(HostError::InvalidPath { .. })), "the root has no name");
        std::os::unix::fs::symlink("/etc", folder.path().join("out")).unwrap();
        let refused = root.place("/out/passwd".into()).unwrap_err().to_string();
        assert_eq!(refused, "refused to use /out/passwd: /out is a symbolic link, which is not followed");
        assert_eq!(root.text("/out/passwd".into(), 10), None, "an absolute link resolves from the root of the host");
        assert_eq!(root.symlink_in_path("/out/passwd".into()).unwrap(), "/out");
    }

    #[test]
    fn paths_of_a_real_host_are_unchanged() {
        let root = Root::new("/".into());
        assert_eq!(root.full_path("/etc/x/y".into()).unwrap(), "/etc/x/y");
        root.check().unwrap();
        assert!(
            root.text("/proc/self/status".into(), 1_000).unwrap().contains("Name:"),
            "symbolic links inside of /proc are followed"
        );
        assert_eq!(root.text("/proc/self/cwd/Cargo.toml".into(), 10), None, "magic links are not followed");
        assert!(root.stat_vfs("/no/such/folder".into()).unwrap().f_blocks > 0);
    }

    #[test]
    fn reads_through_links_stay_in_the_root() {
        let (folder, root) = root();
        std::fs::create_dir_all(folder.path().join("run/resolve")).unwrap();
        std::fs::create_dir_all(folder.path().join("etc")).unwrap();
        std::fs::write(folder.path().join("run/resolve/stub"), "stub").unwrap();
        for (link, to) in
            [("own", "../run/resolve/stub"), ("absolute", "/run/resolve/stub"), ("up", "../../../../run/resolve/stub")]
        {
            std::os::unix::fs::symlink(to, folder.path().join("etc").join(link)).unwrap();
            assert_eq!(root.text(&Utf8Path::new("/etc").join(link), 10).as_deref(), Some("stub"), "{link}");
        }
    }

    #[test]
    fn agent_unit_allows_openat2() {
        // systemd lets `openat2` fail as if it did not exist: its flags are in memory, which a seccomp filter cannot read.
        let unit = include_str!("../../../packaging/agent/gpuaas-agent.service");
        assert!(!unit.lines().any(|line| line.starts_with("RestrictSUIDSGID=")), "the agent could not resolve a path");
    }

    #[test]
    fn kernel_without_openat2_is_reported() {
        for error in [Errno::NOSYS, Errno::PERM] {
            let text = openat2_error(error).unwrap().to_string();
            assert!(text.contains("openat2") && text.contains("5.6"), "{text}");
        }
        assert!(openat2_error(Errno::NOENT).is_none());
    }
}

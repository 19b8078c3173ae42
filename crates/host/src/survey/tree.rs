//! Where a node's own files lie, for whoever only reads.

use std::{
    io::{ErrorKind, Write},
    os::fd::OwnedFd,
};

use camino::{Utf8Component, Utf8Path, Utf8PathBuf};
use rustix::fs::{AtFlags, Dir, OFlags, StatVfs, readlinkat, statat};

use crate::{
    error::HostError,
    file::{Changed, FileSpec},
    files,
    place::{Place, opened},
    root::Root,
    turns::Asked,
};

/// Longest file that is read: `modules.dep` of a large kernel is about 700 KB.
const TEXT_BYTES_MAX: u64 = 4 * 1_024 * 1_024;
/// Most names that are listed of a folder.
const NAMES_MAX: usize = 4_096;

/// Mode of a kernel parameter's file where a sandbox keeps one for itself.
const SYSCTL_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

/// The files that a node reads of itself. Links are followed inside its root; only regular files are read.
///
/// Of a real machine they lie under `/`. A sandbox has its own root, and shares its machine's kernel: what it lacks under `/proc` and `/sys` is
/// read there, where that says something of the kernel and nothing of what belongs to somebody. A file of its own under these comes first: so a
/// sandbox has kernel parameters of its own, which change nothing of the machine's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    root: Root,
    shared: Option<Root>,
}

impl Tree {
    /// Of the machine that this process runs on.
    pub fn of_this_machine() -> Self {
        Self::at("/".into())
    }

    /// Of a machine whose files lie under that folder.
    pub fn at(root: Utf8PathBuf) -> Self {
        Self { root: Root::new(root), shared: None }
    }

    /// Of a sandbox on this machine.
    pub fn of_sandbox(root: Utf8PathBuf) -> Self {
        Self { root: Root::new(root), shared: Some(Root::new("/".into())) }
    }

    /// Whether the kernel is shared with a machine around it.
    pub fn is_sandbox(&self) -> bool {
        self.shared.is_some()
    }

    /// How the machine around names one of its own files. Steps upward lead nowhere.
    pub fn place(&self, path: &str) -> Utf8PathBuf {
        let names = Utf8Path::new(path).components().filter(|part| matches!(part, Utf8Component::Normal(_)));
        names.fold(self.root.folder().to_owned(), |place, name| place.join(name))
    }

    /// The text of one of its own files; `None` when it has none that can be read.
    pub fn own(&self, path: &str) -> Option<String> {
        self.root.text(path.into(), TEXT_BYTES_MAX)
    }

    /// The text of one of its own files, or of the shared kernel's.
    pub fn text(&self, path: &str) -> Option<String> {
        self.own(path).or_else(|| self.kernels(path)?.text(path.into(), TEXT_BYTES_MAX))
    }

    /// The first line of a file, without blanks around it; empty when there is none.
    pub fn line(&self, path: &str) -> String {
        let text = self.text(path).unwrap_or_default();
        text.lines().next().unwrap_or_default().trim().to_owned()
    }

    /// Whether one of its own files or folders is there, a dangling link included.
    pub fn own_exists(&self, path: &str) -> bool {
        let there = |folder: OwnedFd, name: &str| statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        self.last_name(path, there).is_some()
    }

    /// The same, or one of the shared kernel's.
    pub fn exists(&self, path: &str) -> bool {
        self.own_exists(path) || self.kernels(path).is_some_and(|kernel| kernel.leads_somewhere(path.into()))
    }

    /// Names in one of its own folders, sorted; none when there is no such folder.
    pub fn own_names(&self, path: &str) -> Vec<String> {
        names(&self.root, path)
    }

    /// The same, or of the shared kernel's folder where it has none itself.
    pub fn names(&self, path: &str) -> Vec<String> {
        if self.own_exists(path) {
            return self.own_names(path);
        }
        self.kernels(path).map_or_else(Vec::new, |kernel| names(kernel, path))
    }

    /// Where one of its own links leads.
    pub fn link(&self, path: &str) -> Option<Utf8PathBuf> {
        let target = self.last_name(path, |folder, name| readlinkat(folder, name, Vec::new()).ok())?;
        target.into_string().ok().map(Utf8PathBuf::from)
    }

    /// The first link on the way to one of its own paths: the agent writes through none.
    pub fn link_on_the_way(&self, path: &str) -> Option<Utf8PathBuf> {
        self.root.link_on_the_way(path.into())
    }

    /// The room where one of its own folders lies, or would lie once it is made.
    pub(crate) fn room(&self, folder: &str) -> Option<StatVfs> {
        self.root.room(folder.into())
    }

    /// A name in one of its own folders, or in the nearest folder above it that there is; for what is written.
    pub(crate) fn nearest(&self, folder: &str, name: &str) -> Result<Place, HostError> {
        let nearest = self.root.nearest(folder.into())?;
        Ok(Place::new(nearest, name.to_owned(), &Utf8Path::new(folder).join(name)))
    }

    /// Makes one of its own folders.
    pub(crate) fn make_folder(&self, folder: &Utf8Path) -> Result<Changed, HostError> {
        files::make_folder(&self.root, folder, FOLDER_MODE)
    }

    /// A kernel parameter by its name with dots; `None` when the kernel has none of that name.
    pub fn sysctl(&self, name: &str) -> Option<String> {
        let value = self.text(&sysctl_path(name)?)?;
        Some(value.trim().to_owned())
    }

    /// Sets a kernel parameter that there is, until the next boot. A sandbox keeps it for itself.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<Changed, HostError> {
        let path = sysctl_path(name).ok_or_else(|| HostError::Path { path: name.into() })?;
        let missing = || HostError::file("set", Utf8Path::new(&path))(ErrorKind::NotFound.into());
        if self.sysctl(name).ok_or_else(missing)? == value {
            return Ok(Changed::No);
        }
        let content = format!("{value}\n").into_bytes();
        if self.is_sandbox() {
            let (_asker, asked) = Asked::new();
            return files::write(&self.root, &FileSpec { path: path.into(), mode: SYSCTL_MODE, content }, &asked);
        }
        // The kernel's own file: it is set by being written to.
        let place = self.root.place(Utf8Path::new(&path))?.ok_or_else(missing)?;
        let file = place.file()?.ok_or_else(missing)?.open(OFlags::WRONLY | OFlags::TRUNC);
        file.and_then(|mut file| file.write_all(&content)).map_err(HostError::file("set", Utf8Path::new(&path)))?;
        Ok(Changed::Yes)
    }

    /// Looks at a path's last name in its folder. The root itself has none.
    fn last_name<T>(&self, path: &str, look: impl FnOnce(OwnedFd, &str) -> Option<T>) -> Option<T> {
        let path = Utf8Path::new(path);
        look(self.root.folder_inside(path.parent().unwrap_or(path))?, path.file_name().unwrap_or("."))
    }

    /// Where the shared kernel's file of that path lies.
    fn kernels(&self, path: &str) -> Option<&Root> {
        let is_kernels = ["/proc/", "/sys/", "/lib/modules/"].iter().any(|folder| path.starts_with(folder));
        self.shared.as_ref().filter(|_| is_kernels)
    }
}

/// Letters, digits, `_` and `-` between dots: nothing that leads elsewhere.
fn sysctl_path(name: &str) -> Option<String> {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    };
    name.split('.').all(is_part).then(|| format!("/proc/sys/{}", name.replace('.', "/")))
}

fn names(root: &Root, folder: &str) -> Vec<String> {
    let entries = root.folder_inside(folder.into()).and_then(|folder| Dir::new(opened(&folder).ok()?).ok());
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

    /// A machine of these files, gone with the folder.
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
        assert!(sandbox.own("/proc/version").is_none() && sandbox.own_names("/proc").is_empty());
        assert!(!sandbox.exists("/etc/passwd") && sandbox.text("/etc/passwd").is_none());
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("out")).unwrap();
        assert_eq!(sandbox.text("/out"), None, "no link leads out");
        assert_eq!(sandbox.place("/../etc/../x"), machine.root.folder().join("etc/x"));
        assert_eq!(sandbox.link("/out").unwrap(), "/etc/passwd");
    }

    #[test]
    fn a_sandbox_has_kernel_parameters_of_its_own_and_its_machine_keeps_its() {
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
    fn a_name_of_a_kernel_parameter_leads_nowhere_else() {
        let (_folder, machine) = machine(&[("/proc/sys/vm/swappiness", "60\n"), ("/proc/secret", "x")]);
        assert_eq!(machine.sysctl("vm.swappiness").as_deref(), Some("60"));
        for odd in ["", "vm", "vm..swappiness", "../secret", "vm/swappiness", "vm.no_such"] {
            assert_eq!(machine.sysctl(odd), None, "{odd}");
        }
    }
}

//! Where a node's own files lie, for whoever only reads.

use std::{fs, io::Read};

use camino::{Utf8Component, Utf8Path, Utf8PathBuf};

use crate::{error::HostError, file::Changed};

/// Longest file that is read: `modules.dep` of a large kernel is about 700 KB.
const TEXT_BYTES_MAX: u64 = 4 * 1_024 * 1_024;
/// Most names that are listed of a folder.
const NAMES_MAX: usize = 4_096;

/// The files that a node reads of itself.
///
/// Of a real machine they lie under `/`. A sandbox has its own root, and shares its machine's kernel: what it lacks under `/proc` and `/sys` is
/// read there, where that says something of the kernel and nothing of what belongs to somebody. A file of its own under these comes first: so a
/// sandbox has kernel parameters of its own, which change nothing of the machine's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    root: Utf8PathBuf,
    shared: Option<Utf8PathBuf>,
}

impl Tree {
    /// Of the machine that this process runs on.
    pub fn of_this_machine() -> Self {
        Self::at("/".into())
    }

    /// Of a machine whose files lie under that folder.
    pub fn at(root: Utf8PathBuf) -> Self {
        Self { root, shared: None }
    }

    /// Of a sandbox on this machine.
    pub fn of_sandbox(root: Utf8PathBuf) -> Self {
        Self { root, shared: Some("/".into()) }
    }

    /// Whether the kernel is shared with a machine around it.
    pub fn is_sandbox(&self) -> bool {
        self.shared.is_some()
    }

    /// Where one of its own files lies. Steps upward lead nowhere.
    pub fn place(&self, path: &str) -> Utf8PathBuf {
        let names = Utf8Path::new(path).components().filter(|part| matches!(part, Utf8Component::Normal(_)));
        names.fold(self.root.clone(), |place, name| place.join(name))
    }

    /// The text of one of its own files; `None` when it has none that can be read.
    pub fn own(&self, path: &str) -> Option<String> {
        read(&self.inside(path)?)
    }

    /// The text of one of its own files, or of the shared kernel's.
    pub fn text(&self, path: &str) -> Option<String> {
        self.own(path).or_else(|| read(&self.kernels(path)?))
    }

    /// The first line of a file, without blanks around it; empty when there is none.
    pub fn line(&self, path: &str) -> String {
        let text = self.text(path).unwrap_or_default();
        text.lines().next().unwrap_or_default().trim().to_owned()
    }

    /// Whether one of its own files or folders is there, a dangling link included.
    pub fn own_exists(&self, path: &str) -> bool {
        fs::symlink_metadata(self.place(path)).is_ok()
    }

    /// The same, or one of the shared kernel's.
    pub fn exists(&self, path: &str) -> bool {
        self.own_exists(path) || self.kernels(path).is_some_and(|path| path.exists())
    }

    /// Names in one of its own folders, sorted; none when there is no such folder.
    pub fn own_names(&self, path: &str) -> Vec<String> {
        self.inside(path).map_or_else(Vec::new, |path| names(&path))
    }

    /// The same, or of the shared kernel's folder where it has none itself.
    pub fn names(&self, path: &str) -> Vec<String> {
        if self.own_exists(path) {
            return self.own_names(path);
        }
        self.kernels(path).map_or_else(Vec::new, |path| names(&path))
    }

    /// Where one of its own links leads.
    pub fn link(&self, path: &str) -> Option<Utf8PathBuf> {
        Utf8PathBuf::from_path_buf(fs::read_link(self.place(path)).ok()?).ok()
    }

    /// A kernel parameter by its name with dots; `None` when the kernel has none of that name.
    pub fn sysctl(&self, name: &str) -> Option<String> {
        let value = self.text(&sysctl_path(name)?)?;
        Some(value.trim().to_owned())
    }

    /// Sets a kernel parameter that there is, until the next boot. A sandbox keeps it for itself.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<Changed, HostError> {
        let path = sysctl_path(name).ok_or_else(|| HostError::Path { path: name.into() })?;
        let here = Utf8Path::new(&path);
        match self.sysctl(name) {
            Some(present) if present == value => return Ok(Changed::No),
            Some(_) => {}
            None => return Err(HostError::file("set", here)(std::io::ErrorKind::NotFound.into())),
        }
        let place = self.place(&path);
        if self.is_sandbox()
            && let Some(folder) = place.parent()
        {
            fs::create_dir_all(folder).map_err(HostError::file("make the folder of", here))?;
        }
        fs::write(place, format!("{value}\n")).map_err(HostError::file("set", here))?;
        Ok(Changed::Yes)
    }

    /// Where one of its own files lies, links followed, unless that is outside of its root.
    fn inside(&self, path: &str) -> Option<Utf8PathBuf> {
        let place = self.place(path);
        if self.root == "/" {
            return Some(place);
        }
        let (place, root) = (place.canonicalize_utf8().ok()?, self.root.canonicalize_utf8().ok()?);
        place.starts_with(root).then_some(place)
    }

    /// Where the shared kernel's file of that path lies.
    fn kernels(&self, path: &str) -> Option<Utf8PathBuf> {
        let is_kernels = ["/proc/", "/sys/", "/lib/modules/"].iter().any(|folder| path.starts_with(folder));
        let shared = self.shared.as_ref().filter(|_| is_kernels)?;
        Some(shared.join(path.trim_start_matches('/')))
    }
}

/// Letters, digits, `_` and `-` between dots: nothing that leads elsewhere.
fn sysctl_path(name: &str) -> Option<String> {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    };
    name.split('.').all(is_part).then(|| format!("/proc/sys/{}", name.replace('.', "/")))
}

fn read(path: &Utf8Path) -> Option<String> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(TEXT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn names(folder: &Utf8Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(NAMES_MAX);
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
pub(super) mod tests {
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
        let sandbox = Tree::of_sandbox(machine.root.clone());
        assert_eq!(sandbox.line("/etc/hostname"), "own");
        assert!(sandbox.text("/proc/version").is_some() && machine.text("/proc/version").is_none());
        assert!(sandbox.own("/proc/version").is_none() && sandbox.own_names("/proc").is_empty());
        assert!(!sandbox.exists("/etc/passwd") && sandbox.text("/etc/passwd").is_none());
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("out")).unwrap();
        assert_eq!(sandbox.text("/out"), None, "no link leads out");
        assert_eq!(sandbox.place("/../etc/../x"), machine.root.join("etc/x"));
        assert_eq!(sandbox.link("/out").unwrap(), "/etc/passwd");
    }

    #[test]
    fn a_sandbox_has_kernel_parameters_of_its_own_and_its_machine_keeps_its() {
        let (_folder, machine) = machine(&[]);
        let sandbox = Tree::of_sandbox(machine.root.clone());
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

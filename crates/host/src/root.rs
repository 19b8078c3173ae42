//! Where a host's true paths really lie: the root of a real host is `/`, a sandbox's is a folder.

use camino::{Utf8Component, Utf8Path, Utf8PathBuf};

use crate::error::HostError;

/// What stands for `/` on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root(Utf8PathBuf);

impl Root {
    /// The folder that stands for `/`.
    pub(crate) fn new(folder: Utf8PathBuf) -> Self {
        Self(folder)
    }

    /// Where a true path really lies. Refuses what is relative, holds `..`, or goes through a link out of the root.
    pub(crate) fn resolve(&self, path: &Utf8Path) -> Result<Utf8PathBuf, HostError> {
        let refuse = || HostError::Path { path: path.to_owned() };
        let mut real = self.0.clone();
        if !path.is_absolute() {
            return Err(refuse());
        }
        for component in path.components() {
            match component {
                Utf8Component::RootDir | Utf8Component::CurDir => {}
                Utf8Component::Normal(name) => real.push(name),
                Utf8Component::ParentDir | Utf8Component::Prefix(_) => return Err(refuse()),
            }
        }
        let folder = real.ancestors().skip(1).find(|folder| folder.exists()).ok_or_else(refuse)?;
        let (folder, root) = (folder.canonicalize_utf8(), self.0.canonicalize_utf8());
        match (folder, root) {
            (Ok(folder), Ok(root)) if folder.starts_with(&root) => Ok(real),
            _ => Err(refuse()),
        }
    }

    /// The same for what follows a link at the path's own end. Refuses one that leads out of the root, and one that leads nowhere:
    /// whatever is made through it would be made who knows where.
    pub(crate) fn resolve_followed(&self, path: &Utf8Path) -> Result<Utf8PathBuf, HostError> {
        let real = self.resolve(path)?;
        if !real.is_symlink() {
            return Ok(real);
        }
        match (real.canonicalize_utf8(), self.0.canonicalize_utf8()) {
            (Ok(end), Ok(root)) if end.starts_with(&root) => Ok(real),
            _ => Err(HostError::Path { path: path.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn true_paths_lie_under_the_root_and_no_way_leads_out() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(Utf8PathBuf::from_path_buf(folder.path().to_owned()).unwrap());
        assert_eq!(root.resolve("/etc/x".into()).unwrap(), root.0.join("etc/x"));
        for bad in ["etc/x", "/../etc/x", "/etc/../../x", ""] {
            assert!(root.resolve(bad.into()).is_err(), "{bad}");
        }
        std::os::unix::fs::symlink("/etc", folder.path().join("out")).unwrap();
        assert!(root.resolve("/out/passwd".into()).is_err());
    }

    #[test]
    fn on_a_real_host_true_paths_are_the_paths() {
        let root = Root::new("/".into());
        assert_eq!(root.resolve("/etc/x/y".into()).unwrap(), "/etc/x/y");
        for bad in ["etc/x", "/../etc/x", ""] {
            assert!(root.resolve(bad.into()).is_err(), "{bad}");
        }
    }
}

//! Resources that a lab creates on this machine, and how to remove each.
//!
//! Guarantees: removing something that does not exist is no error, so `down` can be repeated and can remove things that the state file only
//! announces.

use std::{fs, io, process::Command};

use anyhow::{Context, bail, ensure};
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};

use super::{cgroups, hosts_file, mounts, network, place};
use crate::shell;

/// One resource. Variants are in the order of removal: nothing uses a resource any more when it is removed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Resource {
    /// Processes of a cgroup that start other processes; they are removed first.
    Supervisors(String),
    /// Processes of any other cgroup of the lab.
    Processes(String),
    /// A firewall rule, as the arguments that delete it.
    Rule(Vec<String>),
    /// The lab's lines in `/etc/hosts`.
    HostsFile,
    /// Mounts on a folder and below it.
    Mounts(Utf8PathBuf),
    /// A network link of this machine; its peer disappears with it.
    Link(String),
    /// A cgroup and everything below it.
    Cgroup(String),
    /// A folder with its content, below [`place::RUN`] or [`place::DATA`], or an incomplete root file system.
    Tree(Utf8PathBuf),
    /// A folder that did not exist before the lab; removed only if empty.
    Folder(Utf8PathBuf),
}

impl Resource {
    /// Removes the resource, if it exists.
    pub(super) fn remove(&self) -> anyhow::Result<()> {
        match self {
            Self::Supervisors(group) | Self::Processes(group) => cgroups::end(group),
            Self::Rule(words) => network::firewall::delete(words),
            Self::HostsFile => hosts_file::remove(),
            Self::Mounts(folder) => mounts::unmount_below(folder),
            Self::Link(name) => network::delete_link(name),
            Self::Cgroup(group) => cgroups::remove(group),
            Self::Tree(folder) => remove_tree(folder),
            Self::Folder(folder) => match fs::remove_dir(folder) {
                Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => {
                    Err(error).with_context(|| format!("removing {folder}"))
                }
                _ => Ok(()),
            },
        }
    }

    /// Reports whether a folder exists or has mounts; always true for all other kinds.
    pub(super) fn exists(&self) -> bool {
        match self {
            Self::Mounts(folder) => mounts::below(folder).is_ok_and(|mounts| !mounts.is_empty()),
            Self::Tree(folder) | Self::Folder(folder) => folder.exists(),
            Self::Supervisors(_)
            | Self::Processes(_)
            | Self::Rule(_)
            | Self::HostsFile
            | Self::Link(_)
            | Self::Cgroup(_) => true,
        }
    }

    /// Description for people.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Supervisors(group) | Self::Processes(group) => format!("processes of cgroup {group}"),
            Self::Rule(words) => format!("firewall rule {}", words.join(" ")),
            Self::HostsFile => "lines in /etc/hosts".to_owned(),
            Self::Mounts(folder) => format!("mounts below {folder}"),
            Self::Link(name) => format!("link {name}"),
            Self::Cgroup(group) => format!("cgroup {group}"),
            Self::Tree(folder) | Self::Folder(folder) => format!("folder {folder}"),
        }
    }
}

/// Removes a folder with its content; refuses to touch anything mounted there.
fn remove_tree(folder: &Utf8Path) -> anyhow::Result<()> {
    let is_own = folder.starts_with(place::RUN) || folder.starts_with(place::DATA) || place::is_unfinished(folder);
    ensure!(is_own, "{folder} does not belong to the lab and is not removed");
    if let Some(mount) = mounts::below(folder)?.first() {
        bail!("{folder} is not removed: {} is still mounted", mount.point);
    }
    let remove = || {
        let mut remove = Command::new("rm");
        remove.args(["--recursive", "--force", "--one-file-system", "--", folder.as_str()]);
        shell::capture(&mut remove).map(drop)
    };
    // Root in a node may have made a file immutable. Only after a failure are the attributes of all files cleared.
    remove().or_else(|_| {
        let mut soften = Command::new("chattr");
        soften.args(["-R", "-f", "-i", "-a", "--", folder.as_str()]);
        // `chattr` fails on symbolic links, which have no attributes.
        let _ = soften.status();
        remove()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn processes_are_removed_first_and_folders_last() {
        let group = || place::CGROUP.to_owned();
        let folder = || Utf8PathBuf::from(place::RUN);
        let things = [
            Resource::Folder(folder()),
            Resource::Tree(folder()),
            Resource::Cgroup(group()),
            Resource::Link(place::BRIDGE.to_owned()),
            Resource::Mounts(folder()),
            Resource::HostsFile,
            Resource::Processes(group()),
            Resource::Supervisors(group()),
        ];
        let sorted: Vec<Resource> = BTreeSet::from(things.clone()).into_iter().collect();
        assert_eq!(sorted, things.into_iter().rev().collect::<Vec<_>>());
    }

    #[test]
    fn folders_of_others_are_not_removed() {
        let others = tempfile::tempdir().expect("a temporary folder");
        let path = Utf8Path::from_path(others.path()).expect("the path is UTF-8");
        assert!(Resource::Tree(path.to_owned()).remove().is_err());
        assert!(path.exists());
    }

    #[test]
    fn removing_a_missing_resource_succeeds() {
        for resource in [
            Resource::Supervisors("gpuaas-lab-never".to_owned()),
            Resource::Cgroup("gpuaas-lab-never".to_owned()),
            Resource::Mounts("/run/gpuaas-lab-never".into()),
            Resource::Folder("/run/gpuaas-lab-never".into()),
            Resource::Tree("/run/gpuaas-lab/never".into()),
        ] {
            resource.remove().unwrap_or_else(|error| panic!("{}: {error:#}", resource.describe()));
        }
    }
}

//! The mounts of an app, found by path.

use std::{collections::BTreeSet, sync::Arc};

use camino::Utf8Path;
use gpuaas_host::{Host, HostError};

/// The folder that a new file system has.
const LOST_AND_FOUND: &str = "lost+found";

/// Returns those of the paths at which an empty file system is mounted: a disk that was mounted there for an app. An uninstall empties it,
/// and cannot remove it.
pub(crate) async fn empty_disks(host: &Arc<dyn Host>, paths: &[String]) -> Result<BTreeSet<String>, HostError> {
    let mut empty = BTreeSet::new();
    for mount in under(host, paths).await?.into_iter().filter(|mount| paths.contains(mount)) {
        // What cannot be listed, for example a mounted file, is not known to be empty.
        let names = host.files().list(Utf8Path::new(&mount)).await;
        if names.is_ok_and(|names| names.iter().all(|name| name == LOST_AND_FOUND)) {
            empty.insert(mount);
        }
    }
    Ok(empty)
}

/// Returns the mounts at or below these paths. A path that ends with `-` is the beginning of a name: `/run/netns/cni-` matches no other
/// network namespace of the host.
pub(crate) async fn under(host: &Arc<dyn Host>, prefixes: &[String]) -> Result<Vec<String>, HostError> {
    if prefixes.is_empty() {
        return Ok(Vec::new());
    }
    let folder = |prefix: &String| match prefix.strip_suffix('-') {
        Some(name_prefix) => {
            Utf8Path::new(name_prefix).parent().map_or_else(|| "/".to_owned(), |folder| folder.to_string())
        }
        None => prefix.clone(),
    };
    let mounts = host.inventory().mounts(&prefixes.iter().map(folder).collect::<Vec<_>>()).await?;
    Ok(mounts.into_iter().filter(|mount| prefixes.iter().any(|prefix| is_under(mount, prefix))).collect())
}

fn is_under(mount: &str, prefix: &str) -> bool {
    if prefix.ends_with('-') { mount.starts_with(prefix) } else { Utf8Path::new(mount).starts_with(prefix) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_with_a_trailing_dash_matches_names_and_others_match_folders() {
        assert!(is_under("/run/netns/cni-0a1b", "/run/netns/cni-") && !is_under("/run/netns/mine", "/run/netns/cni-"));
        assert!(
            is_under("/var/lib/kubelet", "/var/lib/kubelet") && is_under("/var/lib/kubelet/pods/x", "/var/lib/kubelet")
        );
        assert!(!is_under("/var/lib/kubelet2", "/var/lib/kubelet"));
    }
}

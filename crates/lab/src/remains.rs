//! What any lab left on this machine, found by its names, without a state file.

use std::collections::BTreeSet;

use camino::Utf8PathBuf;

use super::{cgroups, hosts_file, kind, network, place, resource::Resource, rootfs};

/// Finds the resources of any lab.
pub(super) fn find() -> anyhow::Result<BTreeSet<Resource>> {
    let mut found = BTreeSet::new();
    if cgroups::present()? {
        found.insert(Resource::Cgroup(place::CGROUP.to_owned()));
    }
    if !cgroups::members(place::CGROUP)?.is_empty() {
        found.insert(Resource::Supervisors(place::group(place::SUPERVISORS)));
        found.insert(Resource::Processes(place::CGROUP.to_owned()));
    }
    found.extend(network::firewall::found()?.into_iter().map(Resource::Rule));
    if hosts_file::is_marked()? {
        found.insert(Resource::HostsFile);
    }
    found.extend(network::links()?.into_iter().map(Resource::Link));
    found.extend(kind::traces());
    let folders = [place::RUN, place::DATA].map(Utf8PathBuf::from).into_iter().chain(rootfs::unfinished()?);
    for folder in folders {
        let resources = [Resource::Mounts(folder.clone()), Resource::Tree(folder)];
        found.extend(resources.into_iter().filter(Resource::exists));
    }
    Ok(found)
}

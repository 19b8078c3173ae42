//! The release's manifests, which a server writes at every start with the cluster's values filled in.

use std::fs;
use std::process::Stdio;

use camino::{Utf8Path, Utf8PathBuf};

use super::cluster::Cluster;
use super::runtime_image::charts;
use crate::log;
use crate::paths;
use crate::settings::Settings;

/// Writes the release's manifests with the cluster's values filled in. Removes those that `disable`, another `cni` or `without_cni`
/// switches off, and leaves those with a `.skip` file unchanged.
pub(super) fn write_all(
    settings: &Settings,
    cluster: &Cluster,
    bin: &Utf8Path,
    without_cni: bool,
) -> anyhow::Result<()> {
    let folder = settings.paths.data("server/manifests");
    let disabled = settings.options.list("disable");
    let cni = settings.options.list("cni").last().cloned().unwrap_or_else(|| "canal".to_owned());
    let vxlan = has_vxlan();
    for (name, text) in charts(bin)? {
        let file = folder.join(format!("{name}.yaml"));
        let is_cni = name == "rke2-canal";
        let other_cni = is_cni && (without_cni || !["canal", "flannel"].contains(&cni.as_str()));
        if other_cni || disabled.contains(&name) {
            if file.exists() {
                fs::remove_file(&file)?;
            }
        } else if !skipped(&file) {
            paths::write(&file, 0o600, filled_in(&text, cluster, vxlan))?;
        }
    }
    Ok(())
}

/// Whether a file `NAME.yaml.skip` exists, which prevents `NAME.yaml` from being written or applied.
pub(super) fn skipped(file: &Utf8Path) -> bool {
    Utf8PathBuf::from(format!("{file}.skip")).exists()
}

fn filled_in(text: &str, cluster: &Cluster, vxlan: bool) -> String {
    [
        ("%{CLUSTER_CIDR}%", cluster.cidr.as_str()),
        ("%{CLUSTER_DNS}%", cluster.dns.as_str()),
        ("%{CLUSTER_DOMAIN}%", cluster.domain.as_str()),
        ("%{IMAGE_TAG}%", crate::version::RELEASE_TAG),
        ("%{FLANNEL_BACKEND}%", if vxlan { "vxlan" } else { "host-gw" }),
    ]
    .into_iter()
    .fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// Whether this machine's kernel supports VXLAN. Without it, nodes of one network can use routes (`host-gw`).
fn has_vxlan() -> bool {
    let ip = |arguments: &[&str]| {
        let mut command = std::process::Command::new("ip");
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    // The highest VNI, which none of our networks uses.
    let found = ip(&["link", "add", "vxlan-probe", "type", "vxlan", "id", "16777215", "dstport", "0"]);
    if found {
        ip(&["link", "delete", "vxlan-probe"]);
    } else {
        log::info!("Stand-in concession to this machine: its kernel has no vxlan, so flannel's backend is host-gw");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_filled_in_with_the_clusters_values() {
        let cluster = Cluster { cidr: "10.42.0.0/16".into(), domain: "cluster.local".into(), dns: "10.43.0.10".into() };
        let text = "a: %{CLUSTER_CIDR}% b: %{CLUSTER_DNS}% c: %{FLANNEL_BACKEND}%";
        assert_eq!(filled_in(text, &cluster, false), "a: 10.42.0.0/16 b: 10.43.0.10 c: host-gw");
    }
}

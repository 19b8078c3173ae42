//! Checks of other software on the host that controls containers and their network.

use gpuaas_model::Check;
use gpuaas_wire::task::Finding;

use super::{
    HostSnapshot,
    report::{Report, warning, with_evidence},
};

/// Possible paths of the packet filter's program.
const IPTABLES: [&str; 4] = ["/usr/sbin/iptables", "/sbin/iptables", "/usr/bin/iptables", "/usr/local/sbin/iptables"];
/// Folders of NetworkManager's settings.
const NETWORK_MANAGER: [&str; 2] = ["/etc/NetworkManager/conf.d", "/usr/lib/NetworkManager/conf.d"];
/// Files that show that RKE2's SELinux policy is installed.
const SELINUX_POLICIES: [&str; 2] =
    ["/usr/share/selinux/packages/rke2.pp", "/var/lib/selinux/targeted/active/modules/200/rke2"];
/// Path of RKE2's rules for fapolicyd.
const FAPOLICYD_RULES: &str = "/etc/fapolicyd/rules.d/80-rke2.rules";

pub(super) fn check(snapshot: &HostSnapshot<'_>, report: &mut Report) {
    report.record(Check::FirewallActive, firewalls(snapshot));
    report.record(Check::NetworkManager, network_manager(snapshot));
    if !snapshot.tree.is_sandbox() {
        report.record(Check::IptablesMissing, iptables(snapshot));
    }
    if snapshot.has_own("/sys/fs/selinux/enforce") {
        report.record(Check::SelinuxPolicy, selinux(snapshot));
    }
    report.record(Check::Fapolicyd, fapolicyd(snapshot));
}

fn firewalls(snapshot: &HostSnapshot<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut runs = |name: &str, stop: &str, evidence: &str| {
        let detail =
            format!("{name} is active and can drop packets between nodes and pods in addition to the cluster's rules");
        let fix = format!("{stop}, or open the cluster's ports in it, including UDP 8472 between nodes");
        found.push(with_evidence(warning(Check::FirewallActive, detail, fix), evidence));
    };
    if snapshot.runs("firewalld.service") {
        runs("firewalld", "systemctl disable --now firewalld", "firewalld.service is active");
    }
    // The unit of ufw is active even if ufw is disabled.
    let ufw = snapshot.tree.own_text("/etc/ufw/ufw.conf").unwrap_or_default();
    if ufw.lines().any(|line| line.trim().eq_ignore_ascii_case("ENABLED=yes")) {
        runs("ufw", "ufw disable", "/etc/ufw/ufw.conf: ENABLED=yes");
    }
    found
}

fn network_manager(snapshot: &HostSnapshot<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    if snapshot.runs("NetworkManager.service") && !ignores_pod_interfaces(snapshot) {
        let detail = "NetworkManager manages the links and routes of pods and removes them";
        let fix = "write /etc/NetworkManager/conf.d/rke2-canal.conf: [keyfile] and unmanaged-devices=interface-name:flannel*;interface-name:cali*";
        found.push(with_evidence(warning(Check::NetworkManager, detail, fix), "NetworkManager.service is active"));
    }
    let clouds = ["nm-cloud-setup.service", "nm-cloud-setup.timer"];
    if let Some(unit) = clouds.into_iter().find(|unit| snapshot.runs(unit)) {
        let detail = "nm-cloud-setup repeatedly sets its own routes, which disconnects pods";
        let fix = "systemctl disable --now nm-cloud-setup.service nm-cloud-setup.timer, and reboot";
        found.push(with_evidence(warning(Check::NetworkManager, detail, fix), format!("{unit} is active")));
    }
    found
}

fn ignores_pod_interfaces(snapshot: &HostSnapshot<'_>) -> bool {
    NETWORK_MANAGER.iter().any(|folder| {
        snapshot.tree.own_names(folder).iter().any(|name| {
            let text = snapshot.tree.own_text(&format!("{folder}/{name}")).unwrap_or_default();
            text.lines().any(|line| line.trim_start().starts_with("unmanaged-devices") && line.contains("cali"))
        })
    })
}

fn iptables(snapshot: &HostSnapshot<'_>) -> Option<Finding> {
    let fix = "install iptables";
    if !IPTABLES.iter().any(|path| snapshot.tree.own_exists(path)) {
        return Some(warning(
            Check::IptablesMissing,
            "the program iptables, which sets the cluster's rules, is missing",
            fix,
        ));
    }
    let why = snapshot.rules.as_ref().err()?;
    Some(with_evidence(warning(Check::IptablesMissing, "the firewall rules cannot be listed", fix), why))
}

fn selinux(snapshot: &HostSnapshot<'_>) -> Option<Finding> {
    let enforces = snapshot.tree.own_text("/sys/fs/selinux/enforce").is_some_and(|text| text.trim() == "1");
    let has_policy = SELINUX_POLICIES.iter().any(|path| snapshot.tree.own_exists(path));
    let finding = || {
        let detail = "SELinux is enforcing, and the policy for RKE2's containers is missing";
        with_evidence(
            warning(Check::SelinuxPolicy, detail, "install the package rke2-selinux"),
            "/sys/fs/selinux/enforce: 1",
        )
    };
    (enforces && !has_policy).then(finding)
}

fn fapolicyd(snapshot: &HostSnapshot<'_>) -> Option<Finding> {
    let forbids = snapshot.runs("fapolicyd.service") && !snapshot.tree.own_exists(FAPOLICYD_RULES);
    let finding = || {
        let detail = "fapolicyd runs only known programs, and RKE2's programs are not among them";
        let fix = format!("write {FAPOLICYD_RULES}: allow perm=any all : dir=/var/lib/rancher/; restart fapolicyd");
        with_evidence(warning(Check::Fapolicyd, detail, fix), "fapolicyd.service is active")
    };
    forbids.then(finding)
}

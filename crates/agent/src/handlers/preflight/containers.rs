//! Checks of other software on the host that controls containers and their network.

use gpuaas_model::Check;
use gpuaas_wire::task::Finding;

use super::{
    Look,
    report::{Report, seen, warning},
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

pub(super) fn judge(look: &Look<'_>, report: &mut Report) {
    report.take(firewalls(look));
    report.take(network_manager(look));
    if !look.tree.is_sandbox() {
        report.take(iptables(look));
    }
    if look.has_own("/sys/fs/selinux/enforce") {
        report.take(selinux(look));
    }
    report.take(fapolicyd(look));
}

fn firewalls(look: &Look<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut runs = |name: &str, stop: &str, evidence: &str| {
        let detail = format!(
            "{name} is active and decides about packets between nodes and pods besides the cluster's own rules"
        );
        let fix = format!("{stop}, or open the cluster's ports in it, UDP 8472 between nodes among them");
        found.push(seen(warning(Check::FirewallActive, detail, fix), evidence));
    };
    if look.runs("firewalld.service") {
        runs("firewalld", "systemctl disable --now firewalld", "firewalld.service is active");
    }
    // The unit of ufw is active even if ufw is disabled.
    let ufw = look.tree.own("/etc/ufw/ufw.conf").unwrap_or_default();
    if ufw.lines().any(|line| line.trim().eq_ignore_ascii_case("ENABLED=yes")) {
        runs("ufw", "ufw disable", "/etc/ufw/ufw.conf: ENABLED=yes");
    }
    found
}

fn network_manager(look: &Look<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    if look.runs("NetworkManager.service") && !leaves_pods_alone(look) {
        let detail = "NetworkManager takes links and routes of pods for its own and removes them";
        let fix = "write /etc/NetworkManager/conf.d/rke2-canal.conf: [keyfile] and unmanaged-devices=interface-name:flannel*;interface-name:cali*";
        found.push(seen(warning(Check::NetworkManager, detail, fix), "NetworkManager.service is active"));
    }
    let clouds = ["nm-cloud-setup.service", "nm-cloud-setup.timer"];
    if let Some(unit) = clouds.into_iter().find(|unit| look.runs(unit)) {
        let detail = "nm-cloud-setup sets routes of its own again and again, which cut pods off";
        let fix = "systemctl disable --now nm-cloud-setup.service nm-cloud-setup.timer, and reboot";
        found.push(seen(warning(Check::NetworkManager, detail, fix), format!("{unit} is active")));
    }
    found
}

fn leaves_pods_alone(look: &Look<'_>) -> bool {
    NETWORK_MANAGER.iter().any(|folder| {
        look.tree.own_names(folder).iter().any(|name| {
            let text = look.tree.own(&format!("{folder}/{name}")).unwrap_or_default();
            text.lines().any(|line| line.trim_start().starts_with("unmanaged-devices") && line.contains("cali"))
        })
    })
}

fn iptables(look: &Look<'_>) -> Option<Finding> {
    let fix = "install iptables";
    if !IPTABLES.iter().any(|path| look.tree.own_exists(path)) {
        return Some(warning(
            Check::IptablesMissing,
            "the program iptables is not there, which sets the cluster's rules",
            fix,
        ));
    }
    let why = look.rules.as_ref().err()?;
    Some(seen(warning(Check::IptablesMissing, "the packet filter's rules cannot be listed", fix), why))
}

fn selinux(look: &Look<'_>) -> Option<Finding> {
    let enforces = look.tree.own("/sys/fs/selinux/enforce").is_some_and(|text| text.trim() == "1");
    let has_policy = SELINUX_POLICIES.iter().any(|path| look.tree.own_exists(path));
    let finding = || {
        let detail = "SELinux enforces, and the policy that lets containers of RKE2 run is not there";
        seen(warning(Check::SelinuxPolicy, detail, "install the package rke2-selinux"), "/sys/fs/selinux/enforce: 1")
    };
    (enforces && !has_policy).then(finding)
}

fn fapolicyd(look: &Look<'_>) -> Option<Finding> {
    let forbids = look.runs("fapolicyd.service") && !look.tree.own_exists(FAPOLICYD_RULES);
    let finding = || {
        let detail = "fapolicyd lets run only what it knows, and RKE2's programs are none of that";
        let fix = format!("write {FAPOLICYD_RULES}: allow perm=any all : dir=/var/lib/rancher/; restart fapolicyd");
        seen(warning(Check::Fapolicyd, detail, fix), "fapolicyd.service is active")
    };
    forbids.then(finding)
}

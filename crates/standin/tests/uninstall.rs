//! Files that the uninstall script removes and keeps, as RKE2's script does.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod node;

use std::fs;
use std::process::Output;

use node::Node;

/// A node with the package, its units and these files.
fn node_with(files: &[&str]) -> Node {
    let node = Node::new("s1", &node::no_components());
    for file in files.iter().chain(&UNITS) {
        let path = node.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // `create_new` does not follow links: the node's scripts are links into the package's source.
        fs::File::create_new(path).unwrap();
    }
    node
}

fn uninstalled(node: &Node, variables: &[(&str, &str)]) -> Output {
    node.command("rke2-uninstall.sh").envs(variables.iter().copied()).output().unwrap()
}

/// The package's unit files and their environment files.
const UNITS: [&str; 4] = [
    "usr/local/lib/systemd/system/rke2-server.service",
    "usr/local/lib/systemd/system/rke2-server.env",
    "usr/local/lib/systemd/system/rke2-agent.service",
    "usr/local/lib/systemd/system/rke2-agent.env",
];

const REMOVED: [&str; 12] = [
    "usr/local/share/rke2/LICENSE.txt",
    "etc/systemd/system/rke2-server.service",
    "etc/systemd/system/rke2-mine.service",
    "etc/systemd/system/multi-user.target.wants/rke2-agent.service",
    "etc/rancher/rke2/config.yaml",
    "etc/rancher/node/password",
    "etc/cni/net.d/mine.conflist",
    "opt/cni/bin/mine",
    "var/lib/cni/networks/x",
    "var/lib/kubelet/config",
    "var/log/pods/x",
    "var/lib/rancher/rke2/server/token",
];

const KEPT: [&str; 7] = [
    "etc/systemd/system/rke2-server.service.d/mine.conf",
    "etc/systemd/system/mine.service",
    "etc/systemd/system/rke2-mine.timer",
    "usr/lib/systemd/system/rke2-server.service",
    "etc/default/rke2-server",
    "etc/sysconfig/rke2-agent",
    "opt/cni/mine",
];

#[test]
fn uninstall_removes_rke2_services_and_keeps_timers_drop_ins_and_the_administrators_environment_files() {
    let node = node_with(&[&REMOVED[..], &KEPT].concat());
    node::succeeded(&uninstalled(&node, &[]));
    let programs = ["usr/local/bin/rke2", "usr/local/bin/rke2-killall.sh", "usr/local/bin/rke2-uninstall.sh"];
    for gone in REMOVED.iter().chain(&UNITS).chain(&programs).chain(&["etc/rancher"]) {
        assert!(!node.path(gone).exists(), "{gone} still exists");
    }
    for kept in KEPT {
        assert!(node.path(kept).exists(), "{kept} was removed");
    }
}

/// On SUSE with /usr/local as a separate mount, RKE2's script uses /opt/rke2, even if RKE2 is installed in /usr/local.
#[test]
fn uninstall_on_suse_with_usr_local_mounted_needs_install_root() {
    let node = node_with(&["etc/systemd/system/rke2-server.service", "var/lib/rancher/rke2/server/token"]);
    // This `mountpoint` reports every path as a mount.
    let programs = node.path("programs");
    fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink("/bin/true", programs.join("mountpoint")).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    fs::write(node.path("etc/os-release"), "ID=opensuse-leap\nID_LIKE=\"suse opensuse\"\n").unwrap();
    let ended = uninstalled(&node, &[("PATH", &path)]);
    assert!(!ended.status.success());
    assert!(String::from_utf8_lossy(&ended.stdout).contains("Cleanup didn't complete successfully"), "{ended:?}");
    for left in ["usr/local/bin/rke2", "usr/local/bin/rke2-uninstall.sh", "var/lib/rancher/rke2/server/token"] {
        assert!(node.path(left).exists(), "{left} was removed");
    }
    node::succeeded(&uninstalled(&node, &[("PATH", &path), ("INSTALL_RKE2_ROOT", "/usr/local")]));
    assert!(!node.path("usr/local/bin/rke2").exists() && !node.path("var/lib/rancher").exists());
}

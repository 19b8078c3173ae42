//! The scenario of the lab itself: nodes are separate machines and fit for a kubelet.

use std::{
    fs,
    process::{Command, Output, Stdio},
};

use anyhow::{Context, ensure};

use super::{check::check, parts::Prepared};
use crate::{
    node::{Lab, Node},
    place::DOMAIN,
    shell,
};

/// A path that no file of the system has.
const PLANTED: &str = "/var/lib/gpuaas-lab-planted";

/// Runs the scenario.
pub(super) fn run_scenario(lab: &Lab, _: &Prepared) -> anyhow::Result<()> {
    let nodes = lab.nodes()?;
    let [first, second, ..] = nodes.as_slice() else { anyhow::bail!("the lab has fewer than two nodes") };
    check("every node's systemd runs without a failed unit", || each(&nodes, check_systemd))?;
    check("all nodes and this machine reach each other by address", || reach(lab, &nodes))?;
    check("every node and this machine resolve the names of all nodes", || names(&nodes))?;
    check("files written in a node appear in its own tree only", || trees(first, second))?;
    check("overlays can be mounted where containerd keeps them", || each(&nodes, overlays))?;
    check("cgroups can be created in every hierarchy, below the node's own", || each(&nodes, groups))?;
    check("sysctls that a kubelet sets change nothing outside the node", || sysctls(first, second))?;
    check("the kernel's log can be opened", || {
        each(&nodes, |node| node.capture(&["sh", "-c", ": < /dev/kmsg"]).map(drop))
    })?;
    check("a reboot is a new boot of the same machine", || reboot(first))?;
    check("a power cut ends every process, and the node boots again", || power_cut(second))?;
    check("a node that powered itself off stays off until it is started", || switched_off(first))?;
    check("commands on a missing node and on one that is off fail with their exit codes", || refusals(first))?;
    check("all nodes and this machine still reach each other by address", || reach(lab, &nodes))
}

fn each(nodes: &[Node], holds: impl Fn(&Node) -> anyhow::Result<()>) -> anyhow::Result<()> {
    nodes.iter().try_for_each(|node| holds(node).with_context(|| node.name().to_string()))
}

fn check_systemd(node: &Node) -> anyhow::Result<()> {
    let state = node.capture(&["systemctl", "is-system-running", "--wait"])?;
    ensure!(state == "running", "systemd is {state}");
    ensure!(node.capture(&["cat", "/proc/1/comm"])? == "systemd", "PID 1 is not systemd");
    Ok(())
}

fn reach(lab: &Lab, nodes: &[Node]) -> anyhow::Result<()> {
    for from in nodes {
        from.capture(&["ping", "-n", "-q", "-c", "1", "-W", "5", &lab.gateway().to_string()])?;
        for to in nodes {
            from.capture(&["ping", "-n", "-q", "-c", "1", "-W", "5", &to.address().to_string()])?;
        }
    }
    // From this machine over TCP: the port is closed, so the node's kernel refuses at once.
    each(nodes, |node| {
        let refused =
            std::net::TcpStream::connect_timeout(&(node.address(), 9).into(), std::time::Duration::from_secs(5));
        let kind = refused.err().map(|error| error.kind());
        ensure!(kind == Some(std::io::ErrorKind::ConnectionRefused), "the connection was not refused: {kind:?}");
        Ok(())
    })
}

fn names(nodes: &[Node]) -> anyhow::Result<()> {
    let knows = |output: &str, node: &Node| {
        let address = node.address().to_string();
        ensure!(output.split_whitespace().next() == Some(&address), "{}: {output}", node.dns_name());
        Ok(())
    };
    each(nodes, |node| {
        knows(&shell::capture(Command::new("getent").args(["ahostsv4", &node.dns_name()]))?, node)?;
        for other in nodes.iter().filter(|other| other.name() != node.name()) {
            knows(&node.capture(&["getent", "ahostsv4", &other.dns_name()])?, other)?;
            knows(&node.capture(&["getent", "ahostsv4", other.name().as_str()])?, other)?;
        }
        let unknown = node.run(&["getent", "hosts", &format!("nobody.{DOMAIN}")])?;
        ensure!(!unknown.status.success(), "an unknown name resolves");
        Ok(())
    })
}

fn trees(first: &Node, second: &Node) -> anyhow::Result<()> {
    for path in ["/etc/planted", PLANTED] {
        first.capture(&["sh", "-c", "echo here >$0", path])?;
        let seen = |node: &Node| fs::read_to_string(node.root().join(path.trim_start_matches('/'))).ok();
        ensure!(seen(first).as_deref() == Some("here\n"), "{path} is not in its tree");
        ensure!(seen(second).is_none(), "{path} is in the tree of another node");
    }
    let id = |node: &Node| node.capture(&["cat", "/etc/machine-id"]);
    ensure!(id(first)?.len() == 32 && id(first)? != id(second)?, "the machine IDs are invalid or equal");
    Ok(())
}

fn overlays(node: &Node) -> anyhow::Result<()> {
    let script = "set -e; d=/var/lib/rancher/overlay; mkdir -p $d/a $d/b $d/work $d/merged
        mount -t overlay overlay -o lowerdir=$d/a,upperdir=$d/b,workdir=$d/work $d/merged
        echo there >$d/merged/file; umount $d/merged; cat $d/b/file; rm -r /var/lib/rancher";
    ensure!(node.capture(&["sh", "-c", script])? == "there", "the overlay's upper folder has other content");
    Ok(())
}

fn groups(node: &Node) -> anyhow::Result<()> {
    let script = "set -e; n=0; while read -r _ point kind _; do
        case $kind in cgroup | cgroup2) mkdir $point/planted; echo $point; esac
        done </proc/self/mounts";
    let made = node.capture(&["sh", "-c", script])?;
    ensure!(!made.is_empty(), "the node has no cgroup hierarchy");
    for point in made.lines() {
        let own = format!("gpuaas-lab/{}", node.name());
        // Some versions of systemd-nspawn insert a level.
        let found = [format!("{point}/{own}/planted"), format!("{point}/{own}/payload/planted")];
        ensure!(found.iter().any(|folder| fs::exists(folder).unwrap_or(false)), "{point}/planted is not below {own}");
        node.capture(&["rmdir", &format!("{point}/planted")])?;
    }
    Ok(())
}

fn sysctls(first: &Node, second: &Node) -> anyhow::Result<()> {
    for name in ["kernel/panic", "kernel/keys/root_maxkeys", "fs/inotify/max_user_instances"] {
        let path = format!("/proc/sys/{name}");
        let before = fs::read_to_string(&path)?;
        let value = (before.trim().parse::<u64>().with_context(|| path.clone())? + 1).to_string();
        first.capture(&["sysctl", "-w", &format!("{}={value}", name.replace('/', "."))])?;
        ensure!(first.capture(&["cat", &path])? == value, "{name} was not kept");
        ensure!(fs::read_to_string(&path)? == before, "{name} of this machine was changed");
        ensure!(second.capture(&["cat", &path])? == before.trim(), "{name} of another node was changed");
    }
    // Sysctls of a network namespace are real.
    first.capture(&["sysctl", "-w", "net.ipv4.ip_forward=1"])?;
    ensure!(
        second.capture(&["cat", "/proc/sys/net/ipv4/ip_forward"])? == "0",
        "forwarding of another node was changed"
    );
    Ok(())
}

fn reboot(node: &Node) -> anyhow::Result<()> {
    let boot_id = || node.capture(&["cat", "/proc/sys/kernel/random/boot_id"]);
    let (before, boot, machine) = (node.condition()?, boot_id()?, node.capture(&["cat", "/etc/machine-id"])?);
    node.capture(&["sh", "-c", "ip link add planted type dummy; iptables -A INPUT -j ACCEPT; touch /run/planted"])?;
    let after = node.reboot()?;
    ensure!(after.boots == before.boots + 1 && after.leader != before.leader, "{before:?} became {after:?}");
    ensure!(boot_id()? != boot, "the boot ID did not change");
    ensure!(
        node.capture(&["cat", "/etc/machine-id", PLANTED])? == format!("{machine}\nhere"),
        "the disk has other content"
    );
    let lost = "ip link show planted || iptables -C INPUT -j ACCEPT || test -e /run/planted";
    ensure!(
        !node.run(&["sh", "-c", lost])?.status.success(),
        "a link, a firewall rule or a file in /run outlived the boot"
    );
    check_systemd(node)
}

fn power_cut(node: &Node) -> anyhow::Result<()> {
    let group = format!("gpuaas-lab/{}", node.name());
    node.capture(&["sh", "-c", "sync; setsid sleep 4711 >/dev/null 2>&1 &"])?;
    node.power_cut()?;
    for hierarchy in fs::read_dir("/sys/fs/cgroup")? {
        let group = hierarchy?.path().join(&group);
        ensure!(!group.exists(), "{} still exists", group.display());
    }
    let sleeps = shell::capture(Command::new("ps").args(["-eo", "args"]))?;
    ensure!(!sleeps.lines().any(|line| line.trim() == "sleep 4711"), "a process outlived the power cut");
    ensure!(node.condition()?.describe() == "off (power cut)", "the node is {}", node.condition()?.describe());
    node.start()?;
    check_systemd(node)
}

fn switched_off(node: &Node) -> anyhow::Result<()> {
    node.switch_off()?;
    ensure!(node.condition()?.describe() == "off (switched off)", "the node is {}", node.condition()?.describe());
    Ok(())
}

/// Leaves the node running.
fn refusals(off: &Node) -> anyhow::Result<()> {
    let lab = |words: &[&str]| -> anyhow::Result<Output> {
        Ok(Command::new(shell::own_program()).arg("lab").args(words).stdin(Stdio::null()).output()?)
    };
    for (words, code, message) in [
        (&["shell", off.name().as_str(), "--", "true"][..], 6, "switched off"),
        (&["shell", "nobody", "--", "true"][..], 6, "has no node nobody"),
        (&["shell", "No_Body", "--", "true"][..], 2, "lowercase"),
        // The test holds the lock.
        (&["up"][..], 4, "is running"),
        (&["down"][..], 4, "is running"),
    ] {
        let output = lab(words)?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.code() == Some(code) && stderr.contains(message),
            "{words:?}: {}: {stderr}",
            output.status
        );
    }
    off.start()?;
    let output = lab(&["shell", off.name().as_str(), "--", "sh", "-c", "echo inside; exit 7"])?;
    ensure!(
        output.status.code() == Some(7) && output.stdout == b"inside\n",
        "lab shell did not return the command's exit code: {output:?}"
    );
    check_systemd(off)
}

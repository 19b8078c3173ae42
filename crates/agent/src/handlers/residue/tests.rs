use std::net::SocketAddr;

use super::*;
use gpuaas_handler::test_host::{self, sandbox};

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn task() -> Residue {
    Residue {
        paths: texts(&["/etc/cni", "/var/lib/rancher/rke2"]),
        mount_prefixes: texts(&["/run/k3s"]),
        ports: vec![6_443],
        units: Vec::new(),
        process_prefixes: Vec::new(),
        udp_ports: vec![8_472],
        link_prefixes: texts(&["cni0", "cali"]),
        firewall_marks: texts(&["KUBE-"]),
        group_prefixes: texts(&["kubepods"]),
    }
}

#[tokio::test]
async fn only_requested_paths_are_reported_and_a_sandbox_hides_its_machine() {
    let (_folder, host) = sandbox(&[("/var/lib/rancher/rke2/server/token", ""), ("/var/lib/other", "")]);
    let report = find_residue(&task(), &test_host::context(&host)).await.unwrap();
    let item = ResidueItem { kind: ResidueKind::Path, what: "/var/lib/rancher/rke2".to_owned() };
    assert_eq!(report, ResidueReport { items: vec![item], unseen: Vec::new() });
}

#[tokio::test]
async fn staged_artifacts_and_a_symlink_in_a_listed_path_are_residue() {
    let staging = "/var/lib/gpuaas-agent/artifacts";
    let (folder, host) = sandbox(&[("/var/lib/gpuaas-agent/artifacts/0a1b", "x"), ("/mnt/disk/x", "")]);
    std::os::unix::fs::symlink("../../mnt/disk", folder.path().join("var/lib/rancher")).unwrap();
    let report = find_residue(&task(), &test_host::context(&host)).await.unwrap();
    let found: Vec<&str> = report.items.iter().map(|item| item.what.as_str()).collect();
    assert_eq!(found, ["/var/lib/rancher", staging]);
}

#[test]
fn empty_disk_of_the_machine_is_no_residue() {
    let task = Residue { paths: texts(&["/var/lib/kubelet", "/var/lib/rancher/rke2"]), ..task() };
    let disks = BTreeSet::from(["/var/lib/kubelet".to_owned()]);
    assert_eq!(absent_paths(&task, &disks).collect::<Vec<_>>(), ["/var/lib/rancher/rke2", STAGING]);
    let mut found = Found::default();
    for mount in ["/var/lib/kubelet", "/var/lib/kubelet/pods/1"] {
        found.mount(mount.to_owned(), &disks);
    }
    let item = ResidueItem { kind: ResidueKind::Mount, what: "/var/lib/kubelet/pods/1".to_owned() };
    assert_eq!(found.report.items, [item]);
}

#[test]
fn only_matching_links_rules_and_listeners_are_reported() {
    let mut found = Found::default();
    found.links(texts(&["cali12ab", "cni0", "eth0", "lo"]), &task().link_prefixes);
    found.rules(Ok(Some(texts(&["filter: :KUBE-FIREWALL - [0:0]"]))));
    let found_names: Vec<&str> = found.report.items.iter().map(|item| item.what.as_str()).collect();
    assert_eq!(found_names, ["cali12ab", "cni0", "filter: :KUBE-FIREWALL - [0:0]"]);
    let listener = |protocol, address: &str, process| Listener { protocol, address: address.parse().unwrap(), process };
    let is_reported =
        |protocol, address| is_on_one_of(&task().ports, &task().udp_ports, &listener(protocol, address, None));
    assert!(is_reported(Protocol::Tcp, "0.0.0.0:6443") && is_reported(Protocol::Udp, "10.4.0.7:8472"));
    assert!(!is_reported(Protocol::Udp, "0.0.0.0:6443") && !is_reported(Protocol::Tcp, "0.0.0.0:22"));
    let process = test_host::process_of("/usr/bin/socat");
    let at: SocketAddr = "10.4.0.7:6443".parse().unwrap();
    let held = listener(Protocol::Tcp, &at.to_string(), Some(process));
    assert_eq!(held.to_string(), "6443/tcp at 10.4.0.7 (/usr/bin/socat, 812)");
}

#[test]
fn processes_are_matched_by_program_or_control_group() {
    let process = |program: &str, cgroup: &str| Process { cgroup: cgroup.to_owned(), ..test_host::process_of(program) };
    let mut found = Found::default();
    let task = Residue { process_prefixes: texts(&["/var/lib/rancher/rke2"]), ..task() };
    let all = vec![
        process("/var/lib/rancher/rke2/data/x/bin/containerd-shim-runc-v2", "/system.slice/rke2-agent.service"),
        process("/var/lib/rancher/rke2-not/x", "/system.slice/other.service"),
        process("/pause", "/kubepods.slice/kubepods-besteffort.slice/cri-containerd-0a1b.scope"),
        process("/coredns", "/kubepods/burstable/pod1/c1"),
        process("/usr/bin/gpuaas-agent", "/system.slice/gpuaas-agent.service"),
        process("/usr/bin/dash", ""),
    ];
    found.processes(all, &task);
    let found_names: Vec<&str> = found.report.items.iter().map(|item| item.what.as_str()).collect();
    let shim = "/var/lib/rancher/rke2/data/x/bin/containerd-shim-runc-v2 (812)";
    assert_eq!(found_names, [shim, "/pause (812)", "/coredns (812)"]);
}

#[test]
fn rules_that_cannot_be_listed_are_reported_as_unchecked() {
    let failed = HostError::Program { program: "/usr/sbin/nft".into(), message: "it broke".to_owned() };
    for (rules, why) in [(Ok(None), "no program"), (Err(failed), "it broke")] {
        let mut found = Found::default();
        found.rules(rules);
        assert!(found.report.items.is_empty() && found.report.unseen[0].contains(why), "{:?}", found.report);
    }
}

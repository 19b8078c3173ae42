//! Each check on a host without findings, and on one with exactly the defect that the check finds.

use camino::Utf8PathBuf;
use gpuaas_host::Protocol;
use gpuaas_model::{Check, FixKind};
use gpuaas_wire::task::{ClockKeeping, DataDisk, Finding, RouteFacts, Severity, WriteLatency};

use super::*;
use crate::handlers::test_host::held_by;

const UNIT: &str = "rke2-server.service";
const DATA_DIR: &str = "/var/lib/rancher/rke2";
const RESOLVER: &str = "/etc/resolv.conf";
const MOUNTS: &str = "/proc/self/mounts";

/// A host without findings; each test introduces one defect.
struct World {
    folder: tempfile::TempDir,
    task: Preflight,
    facts: HostFacts,
    machine: MachineFacts,
    taken: Vec<u16>,
    listeners: Vec<Listener>,
    mounts: Vec<String>,
    links: Vec<String>,
    rules: Result<Option<Vec<String>>, String>,
    active: BTreeSet<&'static str>,
}

impl World {
    fn in_order() -> Self {
        let wants = HostWants {
            who: "RKE2".to_owned(),
            data_dir: DATA_DIR.to_owned(),
            program_dirs: vec!["/usr/local/bin".to_owned()],
            cpus_min: 2,
            memory_bytes_min: 4 << 30,
            write_p99_us_max: 10_000,
            mtu_min: 1_330,
            udp_ports: vec![8_472],
            link_prefixes: vec!["cni0".to_owned(), "cali".to_owned()],
            firewall_marks: vec!["KUBE-".to_owned()],
            mount_prefixes: vec!["/var/lib/kubelet".to_owned()],
            units: vec![UNIT.to_owned()],
            reserved_variables: vec!["RKE2_DATASTORE_ENDPOINT".to_owned(), "RKE2_URL".to_owned()],
            containers: true,
        };
        let task = Preflight {
            ports: vec![6_443],
            absent_paths: vec!["/var/lib/rancher/rke2/server/db".to_owned()],
            endangered_paths: vec!["/opt/cni/bin".to_owned()],
            free_bytes_min: 1 << 30,
            wants: Some(wants),
        };
        let facts = HostFacts {
            hostname: "gpu-07.fra1.example".to_owned(),
            machine_id: "ab".repeat(16),
            boot_id: "cd".repeat(16),
            os: "Debian GNU/Linux 12 (bookworm)".to_owned(),
            kernel: "6.1.0-18-amd64".to_owned(),
            arch: "x86_64".to_owned(),
            cpus: 4,
            memory_bytes: 8 << 30,
            addresses: vec!["10.4.0.7".to_owned()],
            disks: Vec::new(),
            sandbox: false,
        };
        let mut disk = DataDisk { folder: DATA_DIR.to_owned(), ..DataDisk::default() };
        (disk.on.free_bytes, disk.on.device) = (1 << 40, "/dev/sda1".to_owned());
        disk.writes = Some(WriteLatency { writes: 64, p50_us: 900, p99_us: 2_000, max_us: 2_100 });
        let machine = MachineFacts {
            product: "Dell Inc. PowerEdge XE9680".to_owned(),
            data_disk: Some(disk),
            default_route: Some(RouteFacts { gateway: None, link: "eth0".to_owned(), mtu: 1_500 }),
            clock: ClockKeeping::Synchronized { by: Some("chrony".to_owned()) },
            ..MachineFacts::default()
        };
        let world = Self {
            folder: tempfile::tempdir().unwrap(),
            task,
            facts,
            machine,
            taken: Vec::new(),
            listeners: Vec::new(),
            mounts: Vec::new(),
            links: vec!["eth0".to_owned(), "lo".to_owned()],
            rules: Ok(Some(Vec::new())),
            active: BTreeSet::new(),
        };
        world.file(RESOLVER, "nameserver 10.0.0.2\nsearch example\n");
        world.file(MOUNTS, "/dev/sda1 / ext4 rw,relatime 0 0\n");
        world.file("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
        world.file("/usr/sbin/iptables", "");
        world.file("/proc/modules", "overlay 1 0\nbr_netfilter 1 0\nnf_conntrack 1 0\nvxlan 1 0\n");
        for fix in FixKind::ALL {
            for (name, least) in fix.sysctls() {
                world.file(&format!("/proc/sys/{}", name.replace('.', "/")), &format!("{least}\n"));
            }
        }
        world
    }

    fn place(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    fn file(&self, path: &str, text: &str) {
        let place = self.place(path);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(place, text).unwrap();
    }

    fn judged_at(&self, tree: Tree) -> PreflightReport {
        judged(&Look {
            task: &self.task,
            wants: self.task.wants.clone().unwrap_or_default(),
            facts: &self.facts,
            machine: &self.machine,
            tree,
            taken: self.taken.clone(),
            listeners: self.listeners.clone(),
            mounts: self.mounts.clone(),
            links: self.links.clone(),
            rules: self.rules.clone(),
            active: self.active.clone(),
        })
    }

    fn root(&self) -> Utf8PathBuf {
        Utf8PathBuf::from_path_buf(self.folder.path().canonicalize().unwrap()).unwrap()
    }

    fn judged(&self) -> PreflightReport {
        self.judged_at(Tree::at(self.root()))
    }

    /// Returns the only finding.
    fn only(&self) -> Finding {
        let report = self.judged();
        let [finding] = &report.findings[..] else { panic!("{:#?}", report.findings) };
        assert!(!finding.detail.is_empty() && !finding.fix.is_empty(), "{finding:?}");
        finding.clone()
    }

    /// Asserts that this is the only finding, and that its detail, evidence or fix contains these words.
    #[track_caller]
    fn finds(&self, check: Check, severity: Severity, words: &[&str]) {
        let finding = self.only();
        assert_eq!((finding.check.as_str(), finding.severity), (check.as_str(), severity), "{finding:?}");
        let said = format!("{} {} {}", finding.detail, finding.evidence.clone().unwrap_or_default(), finding.fix);
        for word in words {
            assert!(said.contains(word), "{word:?} is not in {finding:?}");
        }
    }

    #[track_caller]
    fn finds_nothing(&self) {
        assert_eq!(self.judged().findings, []);
    }
}

const WARNING: Severity = Severity::Warning;
const BLOCKING: Severity = Severity::Blocking;

#[test]
fn a_host_in_order_passes_every_check() {
    let report = World::in_order().judged();
    assert_eq!((report.findings, report.passed), (Vec::new(), u32::try_from(Check::ALL.len()).unwrap()));
}

#[test]
fn an_app_that_wants_nothing_is_told_of_what_it_asks_for_alone() {
    let mut world = World::in_order();
    world.task.wants = None;
    world.file("/proc/sys/fs/inotify/max_user_instances", "1\n");
    let report = world.judged();
    // The checks of ports, of two kinds of paths, and of disk space.
    assert_eq!((report.findings, report.passed), (Vec::new(), 4));
}

#[test]
fn ports_that_are_taken_are_told_with_who_holds_them() {
    let mut world = World::in_order();
    let listener = |protocol, address: &str, process| Listener { protocol, address: address.parse().unwrap(), process };
    let process = held_by("/usr/sbin/haproxy");
    world.taken = vec![6_443];
    world.listeners = vec![
        listener(Protocol::Tcp, "0.0.0.0:22", None),
        listener(Protocol::Tcp, "0.0.0.0:6443", Some(process)),
        listener(Protocol::Udp, "0.0.0.0:6443", None),
    ];
    world.finds(
        Check::PortTaken,
        BLOCKING,
        &["6443 (tcp)", "0.0.0.0:6443, held by /usr/sbin/haproxy (812)", "ss -lntp"],
    );
    world.listeners.clear();
    world.finds(Check::PortTaken, BLOCKING, &["6443 (tcp)"]);
    world.taken.clear();
    world.listeners = vec![listener(Protocol::Tcp, "127.0.0.1:6443", None)];
    world.finds(Check::PortTaken, BLOCKING, &["6443 (tcp)", "127.0.0.1:6443"]);
    world.listeners = vec![listener(Protocol::Udp, "0.0.0.0:8472", None), listener(Protocol::Udp, "[::]:8472", None)];
    world.finds(Check::PortTaken, BLOCKING, &["8472 (udp)", "ss -lnup", "[::]:8472"]);
}

#[test]
fn what_an_earlier_cluster_left_is_told_by_name() {
    let world = World::in_order();
    world.file("/var/lib/rancher/rke2/server/db/etcd/member/wal", "");
    world.finds(Check::Leftover, BLOCKING, &["/var/lib/rancher/rke2/server/db", "holds etcd"]);

    let mut world = World::in_order();
    world.links = ["cali12ab", "cni0", "eth0"].map(str::to_owned).into();
    world.finds(Check::LinksLeft, BLOCKING, &["cali12ab, cni0", "ip link delete cali12ab"]);

    let mut world = World::in_order();
    world.mounts = vec!["/var/lib/kubelet/pods/x/volumes/y".to_owned()];
    world.finds(Check::MountsLeft, BLOCKING, &["/var/lib/kubelet/pods/x"]);
    world.mounts = vec!["/var/lib/kubelet".to_owned()];
    world.finds(Check::MountsLeft, WARNING, &["/var/lib/kubelet is a mount of its own"]);

    let mut world = World::in_order();
    world.rules = Ok(Some(vec![":KUBE-FIREWALL -".to_owned()]));
    world.finds(Check::RulesLeft, WARNING, &["holds 1 of", ":KUBE-FIREWALL"]);
}

#[test]
fn what_an_uninstall_would_take_along_is_told_with_what_it_holds() {
    let world = World::in_order();
    for name in ["bandwidth", "bridge", "dhcp", "firewall", "host-local", "ipvlan", "loopback", "portmap"] {
        world.file(&format!("/opt/cni/bin/{name}"), "");
    }
    world.finds(Check::Endangered, WARNING, &["uninstall of RKE2 deletes it whole", "bandwidth, bridge", "2 more"]);
}

#[test]
fn too_little_room_blocks_and_a_slow_disk_warns() {
    let mut world = World::in_order();
    world.machine.data_disk.as_mut().unwrap().on.free_bytes = 5 << 20;
    world.finds(Check::DiskSpace, BLOCKING, &["5 MiB free of the 1024 MiB"]);

    let mut world = World::in_order();
    let slow = WriteLatency { writes: 21, p50_us: 23_100, p99_us: 41_200, max_us: 41_300 };
    world.machine.data_disk.as_mut().unwrap().writes = Some(slow);
    world.finds(Check::DiskSlow, WARNING, &["up to 41.2 ms", "wants 10 ms", "21 writes on /dev/sda1"]);
    world.machine.data_disk.as_mut().unwrap().writes = None;
    let passed = world.judged().passed;
    assert_eq!(passed + 1, World::in_order().judged().passed, "what was not measured did not pass either");
}

#[test]
fn mounts_that_forbid_what_the_app_does_block() {
    let world = World::in_order();
    world.file(MOUNTS, "/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 /var/lib ext4 rw,noexec 0 0\n");
    world.finds(Check::NoExec, BLOCKING, &["/var/lib/rancher/rke2", "/dev/sdb1 /var/lib ext4 rw,noexec"]);
    world.file(MOUNTS, "/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 /usr ext4 ro 0 0\n");
    world.finds(Check::ReadOnly, BLOCKING, &["under /usr/local/bin", "/usr is mounted ro"]);
}

#[test]
fn folder_behind_a_link_blocks() {
    let world = World::in_order();
    let link = world.place("/var/lib/rancher");
    std::fs::create_dir_all(link.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/mnt/disk", &link).unwrap();
    world.finds(Check::FolderLinked, BLOCKING, &["/var/lib/rancher is a link", "/var/lib/rancher leads to /mnt/disk"]);
    // Links of the distribution are no finding.
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("usr/bin", world.place("/bin")).unwrap();
    assert!(!world.judged().findings.iter().any(|found| found.check == Check::FolderLinked.as_str()));
}

#[test]
fn a_small_machine_is_told() {
    let mut world = World::in_order();
    world.facts.cpus = 1;
    world.finds(Check::CpuFew, WARNING, &["1 CPUs", "wants 2"]);
    world.facts.cpus = 2;
    world.facts.memory_bytes = 2 << 30;
    world.finds(Check::MemoryLittle, WARNING, &["2048 MiB", "wants 4096 MiB"]);
}

#[test]
fn kernel_parameters_that_are_low_are_told_with_the_fix_that_raises_them() {
    let world = World::in_order();
    world.file("/proc/sys/fs/inotify/max_user_instances", "128\n");
    world.finds(
        Check::InotifyLow,
        WARNING,
        &["inotify.max_user_instances is 128; RKE2 wants 8192", "60-gpuaas-inotify"],
    );
    assert_eq!(Check::InotifyLow.fix(), Some(FixKind::Inotify));
    world.file("/proc/sys/fs/inotify/max_user_instances", "65536\n");
    world.finds_nothing();
    world.file("/proc/sys/net/bridge/bridge-nf-call-iptables", "0\n");
    world.finds(
        Check::ForwardingOff,
        WARNING,
        &["bridge-nf-call-iptables is 0", "/proc/sys/net/bridge/bridge-nf-call-iptables: 0"],
    );
    std::fs::remove_dir_all(world.place("/proc/sys/net/bridge")).unwrap();
    world.finds_nothing();
}

#[test]
fn modules_that_can_be_loaded_and_those_that_cannot_are_told_apart() {
    let world = World::in_order();
    world.file("/proc/modules", "overlay 1 0\nbr_netfilter 1 0\nnf_conntrack 1 0\n");
    world.file("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
    world.finds(Check::ModulesMissing, WARNING, &["vxlan", "/lib/modules/6.1.0-18-amd64 is not there"]);
    world.file("/lib/modules/6.1.0-18-amd64/modules.dep", "kernel/drivers/net/vxlan/vxlan.ko.xz:\n");
    world.finds(Check::ModulesUnloaded, WARNING, &["not loaded: vxlan", "60-gpuaas.conf"]);
    world.file("/lib/modules/6.1.0-18-amd64/modules.dep", "kernel/fs/xfs/xfs.ko.xz:\n");
    world.finds(Check::ModulesMissing, WARNING, &["vxlan; they are not installed", "kernel-modules-extra"]);
}

#[test]
fn swap_and_control_groups_of_the_first_version_are_told() {
    let mut world = World::in_order();
    world.machine.swap_bytes = 2 << 30;
    world.finds(Check::SwapOn, WARNING, &["2048 MiB of swap", "swapoff -a"]);
    world.machine.swap_bytes = 0;
    std::fs::remove_file(world.place("/sys/fs/cgroup/cgroup.controllers")).unwrap();
    world.finds(Check::CgroupV1, WARNING, &["version 1"]);
}

#[test]
fn a_clock_that_nobody_keeps_is_told_and_one_that_cannot_be_judged_is_not_counted() {
    let mut world = World::in_order();
    world.machine.clock = ClockKeeping::ByNobody;
    world.finds(Check::ClockUnsynchronized, WARNING, &["nothing keeps the clock"]);
    world.machine.clock = ClockKeeping::NotYet { by: "chrony".to_owned() };
    world.finds(Check::ClockUnsynchronized, WARNING, &["chrony runs"]);
    let all = World::in_order().judged().passed;
    for clock in [ClockKeeping::ByMachine, ClockKeeping::Unknown] {
        world.machine.clock = clock;
        assert_eq!((world.judged().findings, world.judged().passed), (Vec::new(), all - 1));
    }
}

#[test]
fn a_network_that_would_not_carry_pods_is_told() {
    let mut world = World::in_order();
    world.machine.default_route = None;
    world.finds(Check::RouteMissing, WARNING, &["no default route"]);
    world.machine.default_route = Some(RouteFacts { gateway: None, link: "wg0".to_owned(), mtu: 1_280 });
    world.finds(Check::MtuSmall, WARNING, &["packets of wg0 have 1280 bytes", "needs 1330"]);

    let mut world = World::in_order();
    world.machine.product = "VMware, Inc. VMware Virtual Platform".to_owned();
    world.finds(Check::ChecksumOffload, WARNING, &["ethtool -K flannel.1", "VMware Virtual Platform"]);
}

#[test]
fn names_that_kubernetes_does_not_take_are_told() {
    let mut world = World::in_order();
    for odd in ["gpu_07", "GPU-07", "gpu-07.", "-gpu", "gpu 07", "", &"g".repeat(64)] {
        world.facts.hostname = odd.to_owned();
        world.finds(Check::HostName, WARNING, &[&format!("{odd:?}"), "hostnamectl"]);
    }
}

#[test]
fn name_servers_that_pods_do_not_reach_are_told_unless_others_are_behind_them() {
    let world = World::in_order();
    world.file(RESOLVER, "nameserver 127.0.0.53\n");
    world.finds(Check::ResolverLocal, WARNING, &["127.0.0.53 is reached from this host alone", "8.8.8.8"]);
    world.file("/run/systemd/resolve/resolv.conf", "nameserver 10.0.0.2\n");
    world.finds_nothing();
    std::fs::remove_file(world.place("/run/systemd/resolve/resolv.conf")).unwrap();
    world.file(RESOLVER, "# empty\n");
    world.finds(Check::ResolverLocal, WARNING, &["no name server is set"]);
    world.file(RESOLVER, &"nameserver 10.0.0.2\n".repeat(4));
    world.finds(Check::ResolverLong, WARNING, &["names 4 name servers", "first 3"]);
    let search: Vec<String> = (0..30).map(|number| format!("d{number}.example")).collect();
    world.file(RESOLVER, &format!("nameserver 10.0.0.2\nsearch {}\n", search.join(" ")));
    world.finds(Check::ResolverLong, WARNING, &["names 30 search domains", "first 29"]);
}

#[test]
fn whoever_else_decides_about_packets_and_links_is_told() {
    let mut world = World::in_order();
    world.active.insert("firewalld.service");
    world.finds(Check::FirewallActive, WARNING, &["firewalld is active", "UDP 8472"]);
    world.active.clear();
    world.file("/etc/ufw/ufw.conf", "# x\nENABLED=yes\n");
    world.finds(Check::FirewallActive, WARNING, &["ufw", "ENABLED=yes"]);
    world.file("/etc/ufw/ufw.conf", "ENABLED=no\n");
    world.finds_nothing();
    world.active.insert("NetworkManager.service");
    world.finds(Check::NetworkManager, WARNING, &["NetworkManager takes links", "rke2-canal.conf"]);
    let conf = "[keyfile]\nunmanaged-devices=interface-name:flannel*;interface-name:cali*\n";
    world.file("/etc/NetworkManager/conf.d/rke2-canal.conf", conf);
    world.finds_nothing();
    world.active.insert("nm-cloud-setup.timer");
    world.finds(Check::NetworkManager, WARNING, &["nm-cloud-setup.timer is active"]);
}

#[test]
fn a_host_whose_packet_filter_cannot_be_set_is_told() {
    let mut world = World::in_order();
    std::fs::remove_file(world.place("/usr/sbin/iptables")).unwrap();
    world.finds(Check::IptablesMissing, WARNING, &["iptables is not there"]);
    world.file("/usr/sbin/iptables", "");
    world.rules = Err("/usr/sbin/iptables-save: it ended with exit status: 1".to_owned());
    world.finds(Check::IptablesMissing, WARNING, &["cannot be listed", "exit status: 1"]);
}

#[test]
fn modules_of_security_without_rules_for_rke2_are_told() {
    let mut world = World::in_order();
    world.file("/sys/fs/selinux/enforce", "1\n");
    world.finds(Check::SelinuxPolicy, WARNING, &["rke2-selinux"]);
    world.file("/usr/share/selinux/packages/rke2.pp", "");
    world.active.insert("fapolicyd.service");
    world.finds(Check::Fapolicyd, WARNING, &["80-rke2.rules"]);
    world.file("/etc/fapolicyd/rules.d/80-rke2.rules", "");
    world.finds_nothing();
}

#[test]
fn units_that_somebody_masked_replaced_or_changed_are_told() {
    let world = World::in_order();
    let masked = world.place(&format!("/etc/systemd/system/{UNIT}"));
    std::fs::create_dir_all(masked.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/null", &masked).unwrap();
    world.finds(Check::UnitMasked, BLOCKING, &["rke2-server.service is masked", "systemctl unmask"]);
    std::fs::remove_file(&masked).unwrap();
    std::os::unix::fs::symlink(format!("/usr/local/lib/systemd/system/{UNIT}"), &masked).unwrap();
    world.finds_nothing();
    std::fs::remove_file(&masked).unwrap();
    world.file(&format!("/run/systemd/system/{UNIT}"), "");
    world.finds(Check::UnitMasked, BLOCKING, &["masked by an empty file"]);
    world.file(&format!("/run/systemd/system/{UNIT}"), "[Service]\n");
    world.finds(Check::UnitMasked, BLOCKING, &["replaced"]);
    std::fs::remove_file(world.place(&format!("/run/systemd/system/{UNIT}"))).unwrap();
    world.file(&format!("/etc/systemd/system/{UNIT}.d/override.conf"), "[Service]\n");
    world.finds(Check::UnitOverridden, WARNING, &["rke2-server.service.d/override.conf"]);
}

#[test]
fn reserved_variables_of_the_units_block_and_their_values_stay_out_of_the_report() {
    for (path, text) in [
        ("/etc/default/rke2-server", "# mine\nRKE2_DATASTORE_ENDPOINT=hunter2\nRKE2_SELINUX=true\n"),
        ("/etc/sysconfig/rke2-server", "RKE2_SELINUX=true\n RKE2_DATASTORE_ENDPOINT=\"hunter2\"\n"),
        (
            "/etc/systemd/system/rke2-server.service.d/mine.conf",
            "[Service]\nEnvironment=A=1 \"RKE2_DATASTORE_ENDPOINT=hunter2\" RKE2_SELINUX=1\n",
        ),
        ("/etc/default/rke2-server", "RKE2_DATASTORE_ENDPOINT = hunter2\n"),
        (
            "/run/systemd/system/rke2-server.service.d/mine.conf",
            "[Service]\nEnvironment = A=1 \\\n  'RKE2_DATASTORE_ENDPOINT=hunter2'\n",
        ),
    ] {
        let world = World::in_order();
        world.file(path, text);
        let found = world.judged().findings;
        let checks: Vec<&str> = found.iter().map(|finding| finding.check.as_str()).collect();
        assert_eq!(checks, [Check::SettingsOverridden.as_str(), Check::UnitOverridden.as_str()], "{path}");
        let finding = &found[0];
        assert_eq!(finding.severity, BLOCKING);
        assert_eq!(
            finding.detail,
            format!("{path} sets RKE2_DATASTORE_ENDPOINT, which changes what the platform sets for RKE2")
        );
        assert_eq!(finding.fix, format!("remove RKE2_DATASTORE_ENDPOINT from {path}"));
        assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
    }
    let world = World::in_order();
    world.file(
        "/etc/default/rke2-server",
        "RKE2_SELINUX=true\n#RKE2_DATASTORE_ENDPOINT=x\nRKE2_DATASTORE_ENDPOINTS=/x\nMY_RKE2_URL=x\nA=see RKE2_URL=x\n",
    );
    world.finds(Check::UnitOverridden, WARNING, &["/etc/default/rke2-server"]);
}

#[test]
fn a_proxy_that_nodes_would_reach_each_other_through_is_told() {
    let world = World::in_order();
    let told = |text: &str| {
        world.file("/etc/default/rke2-server", text);
        let found = world.judged().findings;
        let checks: Vec<String> = found.into_iter().map(|finding| finding.check).collect();
        assert_eq!(checks[0], Check::UnitOverridden.as_str());
        checks.contains(&Check::ProxyIncomplete.to_string())
    };
    assert!(told("HTTPS_PROXY=http://proxy.example:3128\n"));
    assert!(told("HTTPS_PROXY=http://proxy.example:3128\nNO_PROXY=127.0.0.1,10.5.0.0/16\n"));
    assert!(!told("HTTPS_PROXY=http://proxy.example:3128\nNO_PROXY=\"127.0.0.1,10.4.0.0/16\"\n"));
    assert!(!told("HTTPS_PROXY=\n") && !told("OTHER=1\n"));
}

#[test]
fn what_blocks_is_told_first() {
    let mut world = World::in_order();
    world.facts.hostname = "gpu_07".to_owned();
    world.machine.data_disk.as_mut().unwrap().on.free_bytes = 0;
    let checks: Vec<String> = world.judged().findings.into_iter().map(|finding| finding.check).collect();
    assert_eq!(checks, [Check::DiskSpace.as_str(), Check::HostName.as_str()]);
}

/// The machine of the sandbox has swap and lacks a default route: neither belongs to the sandbox.
#[test]
fn a_sandbox_is_not_judged_by_its_machine() {
    let mut world = World::in_order();
    world.facts.sandbox = true;
    (world.machine.default_route, world.machine.clock) = (None, ClockKeeping::ByMachine);
    for own in [RESOLVER, MOUNTS, "/sys/fs/cgroup/cgroup.controllers", "/usr/sbin/iptables"] {
        std::fs::remove_file(world.place(own)).unwrap();
    }
    std::fs::remove_dir_all(world.place("/sys")).unwrap();
    let report = world.judged_at(Tree::of_sandbox(world.root()));
    let found: Vec<&str> = report.findings.iter().map(|finding| finding.check.as_str()).collect();
    assert_eq!(found, Vec::<&str>::new());
    assert!(report.passed > 15, "{}", report.passed);
    world.file("/proc/sys/fs/inotify/max_user_instances", "128\n");
    let report = world.judged_at(Tree::of_sandbox(world.root()));
    assert_eq!(report.findings[0].check, Check::InotifyLow.as_str(), "what lies in its own folder is its own");
}

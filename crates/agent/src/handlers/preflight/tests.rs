//! Each check on a host without findings, and on one with exactly the defect that the check finds.

use camino::Utf8PathBuf;
use gpuaas_host::Protocol;
use gpuaas_model::{Check, FixKind};
use gpuaas_wire::task::{ClockSync, DataDisk, Finding, RouteFacts, Severity, WriteLatency};

use super::*;
use gpuaas_handler::test_host::process_of;

const UNIT: &str = "rke2-server.service";
const DATA_DIR: &str = "/var/lib/rancher/rke2";
const RESOLVER: &str = "/etc/resolv.conf";
const MOUNTS: &str = "/proc/self/mounts";

/// A host without findings; each test introduces one defect.
struct Machine {
    folder: tempfile::TempDir,
    task: Preflight,
    facts: HostFacts,
    machine: MachineFacts,
    taken: Vec<u16>,
    listeners: Vec<Listener>,
    mounts: Vec<String>,
    empty_disks: BTreeSet<String>,
    links: Vec<String>,
    rules: Result<Option<Vec<String>>, String>,
    active: BTreeSet<&'static str>,
}

impl Machine {
    fn healthy() -> Self {
        let wants = HostRequirements {
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
            clock: ClockSync::Synchronized { by: Some("chrony".to_owned()) },
            ..MachineFacts::default()
        };
        let machine = Self {
            folder: tempfile::tempdir().unwrap(),
            task,
            facts,
            machine,
            taken: Vec::new(),
            listeners: Vec::new(),
            mounts: Vec::new(),
            empty_disks: BTreeSet::new(),
            links: vec!["eth0".to_owned(), "lo".to_owned()],
            rules: Ok(Some(Vec::new())),
            active: BTreeSet::new(),
        };
        machine.file(RESOLVER, "nameserver 10.0.0.2\nsearch example\n");
        machine.file(MOUNTS, "/dev/sda1 / ext4 rw,relatime 0 0\n");
        machine.file("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
        machine.file("/usr/sbin/iptables", "");
        machine.file("/proc/modules", "overlay 1 0\nbr_netfilter 1 0\nnf_conntrack 1 0\nvxlan 1 0\n");
        for fix in FixKind::ALL {
            for (name, least) in fix.sysctls() {
                machine.file(&format!("/proc/sys/{}", name.replace('.', "/")), &format!("{least}\n"));
            }
        }
        machine
    }

    fn host_path(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    fn file(&self, path: &str, text: &str) {
        let place = self.host_path(path);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(place, text).unwrap();
    }

    fn report_for(&self, tree: Tree) -> PreflightReport {
        run_checks(&HostSnapshot {
            task: &self.task,
            wants: self.task.wants.clone().unwrap_or_default(),
            facts: &self.facts,
            machine: &self.machine,
            tree,
            taken: self.taken.clone(),
            listeners: self.listeners.clone(),
            mounts: self.mounts.clone(),
            empty_disks: self.empty_disks.clone(),
            links: self.links.clone(),
            rules: self.rules.clone(),
            active: self.active.clone(),
        })
    }

    fn root(&self) -> Utf8PathBuf {
        Utf8PathBuf::from_path_buf(self.folder.path().canonicalize().unwrap()).unwrap()
    }

    fn report(&self) -> PreflightReport {
        self.report_for(Tree::at(self.root()))
    }

    /// Returns the only finding.
    fn only_finding(&self) -> Finding {
        let report = self.report();
        let [finding] = &report.findings[..] else { panic!("{:#?}", report.findings) };
        assert!(!finding.detail.is_empty() && !finding.fix.is_empty(), "{finding:?}");
        finding.clone()
    }

    /// Asserts that this is the only finding, and that its detail, evidence or fix contains these words.
    #[track_caller]
    fn assert_finding(&self, check: Check, severity: Severity, words: &[&str]) {
        let finding = self.only_finding();
        assert_eq!((finding.check.as_str(), finding.severity), (check.as_str(), severity), "{finding:?}");
        let text = format!("{} {} {}", finding.detail, finding.evidence.clone().unwrap_or_default(), finding.fix);
        for word in words {
            assert!(text.contains(word), "{finding:?} does not contain {word:?}");
        }
    }

    #[track_caller]
    fn assert_no_findings(&self) {
        assert_eq!(self.report().findings, []);
    }
}

const WARNING: Severity = Severity::Warning;
const BLOCKING: Severity = Severity::Blocking;

#[test]
fn healthy_host_passes_every_check() {
    let report = Machine::healthy().report();
    // The control plane alone knows whether a removal is proven.
    let of_agent = Check::ALL.iter().filter(|check| **check != Check::RemovalUnproven).count();
    assert_eq!((report.findings, report.passed), (Vec::new(), u32::try_from(of_agent).unwrap()));
}

#[test]
fn task_without_requirements_runs_only_its_own_checks() {
    let mut machine = Machine::healthy();
    machine.task.wants = None;
    machine.file("/proc/sys/fs/inotify/max_user_instances", "1\n");
    let report = machine.report();
    // The checks of ports, of two kinds of paths, and of disk space.
    assert_eq!((report.findings, report.passed), (Vec::new(), 4));
}

#[test]
fn taken_ports_are_reported_with_their_processes() {
    let mut machine = Machine::healthy();
    let listener = |protocol, address: &str, process| Listener { protocol, address: address.parse().unwrap(), process };
    let process = process_of("/usr/sbin/haproxy");
    machine.taken = vec![6_443];
    machine.listeners = vec![
        listener(Protocol::Tcp, "0.0.0.0:22", None),
        listener(Protocol::Tcp, "0.0.0.0:6443", Some(process)),
        listener(Protocol::Udp, "0.0.0.0:6443", None),
    ];
    machine.assert_finding(
        Check::PortTaken,
        BLOCKING,
        &["6443 (tcp)", "0.0.0.0:6443, held by /usr/sbin/haproxy (812)", "ss -lntp"],
    );
    machine.listeners.clear();
    machine.assert_finding(Check::PortTaken, BLOCKING, &["6443 (tcp)"]);
    machine.taken.clear();
    machine.listeners = vec![listener(Protocol::Tcp, "127.0.0.1:6443", None)];
    machine.assert_finding(Check::PortTaken, BLOCKING, &["6443 (tcp)", "127.0.0.1:6443"]);
    machine.listeners = vec![listener(Protocol::Udp, "0.0.0.0:8472", None), listener(Protocol::Udp, "[::]:8472", None)];
    machine.assert_finding(Check::PortTaken, BLOCKING, &["8472 (udp)", "ss -lnup", "[::]:8472"]);
}

#[test]
fn leftovers_of_an_earlier_cluster_are_reported_by_name() {
    let machine = Machine::healthy();
    machine.file("/var/lib/rancher/rke2/server/db/etcd/member/wal", "");
    let path = "/var/lib/rancher/rke2/server/db";
    machine.assert_finding(
        Check::Leftover,
        BLOCKING,
        &[path, "contains etcd", "(rm -r /var/lib/rancher/rke2/server/db)"],
    );
    machine.file("/usr/local/bin/k3s-uninstall.sh", "");
    machine.file("/usr/local/bin/k3s; reboot-uninstall.sh", "");
    machine.assert_finding(Check::Leftover, BLOCKING, &[path, "script (/usr/local/bin/k3s-uninstall.sh), or"]);

    let mut machine = Machine::healthy();
    machine.task.absent_paths = vec!["/var/lib/rancher/rke2".to_owned()];
    machine.file("/var/lib/rancher/rke2/agent/kept", "");
    machine.assert_finding(Check::Leftover, BLOCKING, &["/var/lib/rancher/rke2 is left", "contains agent"]);
    machine.empty_disks = BTreeSet::from(["/var/lib/rancher/rke2".to_owned()]);
    machine.assert_no_findings();

    let mut machine = Machine::healthy();
    machine.links = ["cali12ab", "cni0", "eth0"].map(str::to_owned).into();
    machine.assert_finding(Check::LeftoverLinks, BLOCKING, &["cali12ab, cni0", "ip link delete cali12ab"]);

    let mut machine = Machine::healthy();
    machine.mounts = vec!["/var/lib/kubelet/pods/x/volumes/y".to_owned()];
    machine.assert_finding(Check::LeftoverMounts, BLOCKING, &["/var/lib/kubelet/pods/x"]);
    machine.mounts = vec!["/var/lib/kubelet".to_owned()];
    machine.assert_finding(Check::LeftoverMounts, WARNING, &["/var/lib/kubelet is a mount point"]);

    let mut machine = Machine::healthy();
    machine.rules = Ok(Some(vec![":KUBE-FIREWALL -".to_owned()]));
    machine.assert_finding(Check::LeftoverFirewallRules, WARNING, &["has 1 chains and rules", ":KUBE-FIREWALL"]);
}

#[test]
fn folders_that_an_uninstall_would_delete_are_reported_with_their_content() {
    let machine = Machine::healthy();
    for name in ["bandwidth", "bridge", "dhcp", "firewall", "host-local", "ipvlan", "loopback", "portmap"] {
        machine.file(&format!("/opt/cni/bin/{name}"), "");
    }
    machine.assert_finding(
        Check::UninstallWouldDelete,
        WARNING,
        &["uninstall of RKE2 deletes it with its content", "bandwidth, bridge", "2 more"],
    );
}

#[test]
fn low_disk_space_blocks_and_a_slow_disk_warns() {
    let mut machine = Machine::healthy();
    machine.machine.data_disk.as_mut().unwrap().on.free_bytes = 5 << 20;
    machine.assert_finding(Check::DiskSpace, BLOCKING, &["5 MiB free of the 1024 MiB"]);

    let mut machine = Machine::healthy();
    let slow = WriteLatency { writes: 21, p50_us: 23_100, p99_us: 41_200, max_us: 41_300 };
    machine.machine.data_disk.as_mut().unwrap().writes = Some(slow);
    machine.assert_finding(
        Check::DiskSlow,
        WARNING,
        &["p99 latency of 41.2 ms", "needs at most 10 ms", "21 writes on /dev/sda1"],
    );
    machine.machine.data_disk.as_mut().unwrap().writes = None;
    let passed = machine.report().passed;
    assert_eq!(
        passed + 1,
        Machine::healthy().report().passed,
        "a check without a measurement is not counted as passed"
    );
    let checked = |machine: &Machine| machine.report().checked.iter().any(|check| check == Check::DiskSlow.as_str());
    assert!(checked(&Machine::healthy()) && !checked(&machine), "a check without a measurement did not run");
}

#[test]
fn noexec_and_read_only_mounts_block() {
    let machine = Machine::healthy();
    machine.file(MOUNTS, "/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 /var/lib ext4 rw,noexec 0 0\n");
    machine.assert_finding(Check::NoExec, BLOCKING, &["/var/lib/rancher/rke2", "/dev/sdb1 /var/lib ext4 rw,noexec"]);
    machine.file(MOUNTS, "/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 /usr ext4 ro 0 0\n");
    machine.assert_finding(Check::ReadOnly, BLOCKING, &["under /usr/local/bin", "/usr is mounted ro"]);
}

#[test]
fn symlinked_folder_blocks() {
    let machine = Machine::healthy();
    let link = machine.host_path("/var/lib/rancher");
    std::fs::create_dir_all(link.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/mnt/disk", &link).unwrap();
    machine.assert_finding(
        Check::FolderIsSymlink,
        BLOCKING,
        &["/var/lib/rancher is a symbolic link", "/var/lib/rancher points to /mnt/disk"],
    );
    // Links of the distribution are no finding.
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("usr/bin", machine.host_path("/bin")).unwrap();
    assert!(!machine.report().findings.iter().any(|found| found.check == Check::FolderIsSymlink.as_str()));
}

#[test]
fn insufficient_cpu_and_memory_warn() {
    let mut machine = Machine::healthy();
    machine.facts.cpus = 1;
    machine.assert_finding(Check::InsufficientCpu, WARNING, &["1 CPUs", "needs 2"]);
    machine.facts.cpus = 2;
    machine.facts.memory_bytes = 2 << 30;
    machine.assert_finding(Check::InsufficientMemory, WARNING, &["2048 MiB", "needs 4096 MiB"]);
}

#[test]
fn low_kernel_parameters_are_reported_with_their_fix() {
    let machine = Machine::healthy();
    machine.file("/proc/sys/fs/inotify/max_user_instances", "128\n");
    machine.assert_finding(
        Check::InotifyLow,
        WARNING,
        &["RKE2 needs inotify.max_user_instances = 8192 (now 128)", "60-gpuaas-inotify"],
    );
    assert_eq!(Check::InotifyLow.fix(), Some(FixKind::Inotify));
    machine.file("/proc/sys/fs/inotify/max_user_instances", "65536\n");
    machine.assert_no_findings();
    machine.file("/proc/sys/net/bridge/bridge-nf-call-iptables", "0\n");
    machine.assert_finding(
        Check::ForwardingOff,
        WARNING,
        &["bridge-nf-call-iptables = 1 (now 0)", "/proc/sys/net/bridge/bridge-nf-call-iptables: 0"],
    );
    std::fs::remove_dir_all(machine.host_path("/proc/sys/net/bridge")).unwrap();
    machine.assert_no_findings();
}

#[test]
fn loadable_and_missing_modules_are_distinguished() {
    let machine = Machine::healthy();
    machine.file("/proc/modules", "overlay 1 0\nbr_netfilter 1 0\nnf_conntrack 1 0\n");
    machine.file("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
    machine.assert_finding(Check::ModulesMissing, WARNING, &["vxlan", "/lib/modules/6.1.0-18-amd64 is missing"]);
    machine.file("/lib/modules/6.1.0-18-amd64/modules.dep", "kernel/drivers/net/vxlan/vxlan.ko.xz:\n");
    machine.assert_finding(Check::ModulesUnloaded, WARNING, &["not loaded: vxlan", "60-gpuaas.conf"]);
    machine.file("/lib/modules/6.1.0-18-amd64/modules.dep", "kernel/fs/xfs/xfs.ko.xz:\n");
    machine.assert_finding(Check::ModulesMissing, WARNING, &["vxlan; they are not installed", "kernel-modules-extra"]);
}

#[test]
fn swap_and_cgroup_v1_are_reported() {
    let mut machine = Machine::healthy();
    machine.machine.swap_bytes = 2 << 30;
    machine.assert_finding(Check::SwapOn, WARNING, &["2048 MiB of swap", "swapoff -a"]);
    machine.machine.swap_bytes = 0;
    std::fs::remove_file(machine.host_path("/sys/fs/cgroup/cgroup.controllers")).unwrap();
    machine.assert_finding(Check::CgroupV1, WARNING, &["cgroup v1"]);
}

#[test]
fn unsynchronized_clock_is_reported_and_an_unknown_one_is_not_counted() {
    let mut machine = Machine::healthy();
    machine.machine.clock = ClockSync::NoTimeService;
    machine.assert_finding(Check::ClockUnsynchronized, WARNING, &["no time service synchronizes the clock"]);
    machine.machine.clock = ClockSync::NotYet { by: "chrony".to_owned() };
    machine.assert_finding(Check::ClockUnsynchronized, WARNING, &["chrony runs"]);
    let all = Machine::healthy().report().passed;
    for clock in [ClockSync::ByMachine, ClockSync::Unknown] {
        machine.machine.clock = clock;
        assert_eq!((machine.report().findings, machine.report().passed), (Vec::new(), all - 1));
    }
}

#[test]
fn unsuitable_network_is_reported() {
    let mut machine = Machine::healthy();
    machine.machine.default_route = None;
    machine.assert_finding(Check::RouteMissing, WARNING, &["no default route"]);
    machine.machine.default_route = Some(RouteFacts { gateway: None, link: "wg0".to_owned(), mtu: 1_280 });
    machine.assert_finding(Check::MtuSmall, WARNING, &["the MTU of wg0 is 1280 bytes", "needs 1330"]);

    let mut machine = Machine::healthy();
    machine.machine.product = "VMware, Inc. VMware Virtual Platform".to_owned();
    machine.assert_finding(Check::ChecksumOffload, WARNING, &["ethtool -K flannel.1", "VMware Virtual Platform"]);
}

#[test]
fn invalid_host_names_are_reported() {
    let mut machine = Machine::healthy();
    for odd in ["gpu_07", "GPU-07", "gpu-07.", "-gpu", "gpu 07", "", &"g".repeat(64)] {
        machine.facts.hostname = odd.to_owned();
        machine.assert_finding(Check::HostName, WARNING, &[&format!("{odd:?}"), "hostnamectl"]);
    }
}

#[test]
fn name_servers_that_pods_cannot_reach_are_reported() {
    let machine = Machine::healthy();
    machine.file(RESOLVER, "nameserver 127.0.0.53\n");
    machine.assert_finding(Check::ResolverLocal, WARNING, &["127.0.0.53 is reachable only from this host", "8.8.8.8"]);
    machine.file("/run/systemd/resolve/resolv.conf", "nameserver 10.0.0.2\n");
    machine.assert_no_findings();
    std::fs::remove_file(machine.host_path("/run/systemd/resolve/resolv.conf")).unwrap();
    machine.file(RESOLVER, "# empty\n");
    machine.assert_finding(Check::ResolverLocal, WARNING, &["no name server is configured"]);
    machine.file(RESOLVER, &"nameserver 10.0.0.2\n".repeat(4));
    machine.assert_finding(Check::ResolverLimitsExceeded, WARNING, &["has 4 name servers", "first 3"]);
    let search: Vec<String> = (0..30).map(|number| format!("d{number}.example")).collect();
    machine.file(RESOLVER, &format!("nameserver 10.0.0.2\nsearch {}\n", search.join(" ")));
    machine.assert_finding(Check::ResolverLimitsExceeded, WARNING, &["has 30 search domains", "first 29"]);
}

#[test]
fn active_firewalls_and_network_managers_are_reported() {
    let mut machine = Machine::healthy();
    machine.active.insert("firewalld.service");
    machine.assert_finding(Check::FirewallActive, WARNING, &["firewalld is active", "UDP 8472"]);
    machine.active.clear();
    machine.file("/etc/ufw/ufw.conf", "# x\nENABLED=yes\n");
    machine.assert_finding(Check::FirewallActive, WARNING, &["ufw", "ENABLED=yes"]);
    machine.file("/etc/ufw/ufw.conf", "ENABLED=no\n");
    machine.assert_no_findings();
    machine.active.insert("NetworkManager.service");
    machine.assert_finding(Check::NetworkManager, WARNING, &["NetworkManager manages the links", "rke2-canal.conf"]);
    let conf = "[keyfile]\nunmanaged-devices=interface-name:flannel*;interface-name:cali*\n";
    machine.file("/etc/NetworkManager/conf.d/rke2-canal.conf", conf);
    machine.assert_no_findings();
    machine.active.insert("nm-cloud-setup.timer");
    machine.assert_finding(Check::NetworkManager, WARNING, &["nm-cloud-setup.timer is active"]);
}

#[test]
fn missing_iptables_is_reported() {
    let mut machine = Machine::healthy();
    std::fs::remove_file(machine.host_path("/usr/sbin/iptables")).unwrap();
    machine.assert_finding(Check::IptablesMissing, WARNING, &["iptables, which sets the cluster's rules, is missing"]);
    machine.file("/usr/sbin/iptables", "");
    machine.rules = Err("/usr/sbin/iptables-save: it ended with exit status: 1".to_owned());
    machine.assert_finding(Check::IptablesMissing, WARNING, &["cannot be listed", "exit status: 1"]);
}

#[test]
fn missing_selinux_and_fapolicyd_rules_are_reported() {
    let mut machine = Machine::healthy();
    machine.file("/sys/fs/selinux/enforce", "1\n");
    machine.assert_finding(Check::SelinuxPolicy, WARNING, &["rke2-selinux"]);
    machine.file("/usr/share/selinux/packages/rke2.pp", "");
    machine.active.insert("fapolicyd.service");
    machine.assert_finding(Check::Fapolicyd, WARNING, &["80-rke2.rules"]);
    machine.file("/etc/fapolicyd/rules.d/80-rke2.rules", "");
    machine.assert_no_findings();
}

#[test]
fn masked_replaced_and_overridden_units_are_reported() {
    let machine = Machine::healthy();
    let masked = machine.host_path(&format!("/etc/systemd/system/{UNIT}"));
    std::fs::create_dir_all(masked.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/null", &masked).unwrap();
    machine.assert_finding(Check::UnitMasked, BLOCKING, &["rke2-server.service is masked", "systemctl unmask"]);
    std::fs::remove_file(&masked).unwrap();
    std::os::unix::fs::symlink(format!("/usr/local/lib/systemd/system/{UNIT}"), &masked).unwrap();
    machine.assert_no_findings();
    std::fs::remove_file(&masked).unwrap();
    machine.file(&format!("/run/systemd/system/{UNIT}"), "");
    machine.assert_finding(Check::UnitMasked, BLOCKING, &["masked by an empty file"]);
    machine.file(&format!("/run/systemd/system/{UNIT}"), "[Service]\n");
    machine.assert_finding(Check::UnitMasked, BLOCKING, &["replaced"]);
    std::fs::remove_file(machine.host_path(&format!("/run/systemd/system/{UNIT}"))).unwrap();
    machine.file(&format!("/etc/systemd/system/{UNIT}.d/override.conf"), "[Service]\n");
    machine.assert_finding(Check::UnitOverridden, WARNING, &["rke2-server.service.d/override.conf"]);
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
        let machine = Machine::healthy();
        machine.file(path, text);
        let found = machine.report().findings;
        let checks: Vec<&str> = found.iter().map(|finding| finding.check.as_str()).collect();
        assert_eq!(checks, [Check::SettingsOverridden.as_str(), Check::UnitOverridden.as_str()], "{path}");
        let finding = &found[0];
        assert_eq!(finding.severity, BLOCKING);
        assert_eq!(
            finding.detail,
            format!("{path} sets RKE2_DATASTORE_ENDPOINT, which overrides a setting of the platform for RKE2")
        );
        assert_eq!(finding.fix, format!("remove RKE2_DATASTORE_ENDPOINT from {path}"));
        assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
    }
    let machine = Machine::healthy();
    machine.file(
        "/etc/default/rke2-server",
        "RKE2_SELINUX=true\n#RKE2_DATASTORE_ENDPOINT=x\nRKE2_DATASTORE_ENDPOINTS=/x\nMY_RKE2_URL=x\nA=see RKE2_URL=x\n",
    );
    machine.assert_finding(Check::UnitOverridden, WARNING, &["/etc/default/rke2-server"]);
}

#[test]
fn proxy_without_an_exemption_for_nodes_is_reported() {
    let machine = Machine::healthy();
    let is_reported = |text: &str| {
        machine.file("/etc/default/rke2-server", text);
        let found = machine.report().findings;
        let checks: Vec<String> = found.into_iter().map(|finding| finding.check).collect();
        assert_eq!(checks[0], Check::UnitOverridden.as_str());
        checks.contains(&Check::ProxyIncomplete.to_string())
    };
    assert!(is_reported("HTTPS_PROXY=http://proxy.example:3128\n"));
    assert!(is_reported("HTTPS_PROXY=http://proxy.example:3128\nNO_PROXY=127.0.0.1,10.5.0.0/16\n"));
    assert!(!is_reported("HTTPS_PROXY=http://proxy.example:3128\nNO_PROXY=\"127.0.0.1,10.4.0.0/16\"\n"));
    assert!(!is_reported("HTTPS_PROXY=\n") && !is_reported("OTHER=1\n"));
}

#[test]
fn blocking_findings_come_first() {
    let mut machine = Machine::healthy();
    machine.facts.hostname = "gpu_07".to_owned();
    machine.machine.data_disk.as_mut().unwrap().on.free_bytes = 0;
    let checks: Vec<String> = machine.report().findings.into_iter().map(|finding| finding.check).collect();
    assert_eq!(checks, [Check::DiskSpace.as_str(), Check::HostName.as_str()]);
}

/// The machine of the sandbox has swap and lacks a default route: neither belongs to the sandbox.
#[test]
fn sandbox_skips_checks_of_its_machine() {
    let mut machine = Machine::healthy();
    machine.facts.sandbox = true;
    (machine.machine.default_route, machine.machine.clock) = (None, ClockSync::ByMachine);
    for own in [RESOLVER, MOUNTS, "/sys/fs/cgroup/cgroup.controllers", "/usr/sbin/iptables"] {
        std::fs::remove_file(machine.host_path(own)).unwrap();
    }
    std::fs::remove_dir_all(machine.host_path("/sys")).unwrap();
    let report = machine.report_for(Tree::of_sandbox(machine.root()));
    let found: Vec<&str> = report.findings.iter().map(|finding| finding.check.as_str()).collect();
    assert_eq!(found, Vec::<&str>::new());
    assert!(report.passed > 15, "{}", report.passed);
    machine.file("/proc/sys/fs/inotify/max_user_instances", "128\n");
    let report = machine.report_for(Tree::of_sandbox(machine.root()));
    assert_eq!(report.findings[0].check, Check::InotifyLow.as_str(), "files in the sandbox's folder are checked");
}

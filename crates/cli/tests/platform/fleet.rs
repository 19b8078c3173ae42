//! A control plane and nodes as processes of their own, each of which a test may kill and start again.

use std::{
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use gpuaas_api_types::RegisterNode;
use gpuaas_client::Client;
use serde_json::Value;

use crate::{
    addresses::AddressBlock,
    first_admin::{exchanged, one_time_admin},
    small_disk::SmallDisk,
    world::{GPUAAS, PATIENCE, build_programs, eventually},
};

/// Where a replica listens for clients, for nodes and for other replicas: below the ports that the kernel hands out by itself, so that
/// nobody has taken one while it was dead.
const PORTS: [u16; 3] = [7443, 7444, 7445];

/// Longest that a process may take to end once its lifeline is gone.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// A control plane with its nodes.
pub(crate) struct Fleet {
    /// Before the folder in which they are: they go first.
    disks: Vec<SmallDisk>,
    folder: tempfile::TempDir,
    addresses: AddressBlock,
    replicas: Vec<Replica>,
    inits: Vec<Option<Child>>,
    environment: Vec<(&'static str, String)>,
    /// The token of the first administrator.
    admin: String,
    /// By how many seconds the clocks of nodes that start now are off.
    pub(crate) clock_skew_seconds: i64,
}

/// One process of the control plane; its address stays its own when it starts again.
struct Replica {
    name: String,
    address: Ipv4Addr,
    process: Option<Child>,
}

impl Fleet {
    /// A running control plane with so many enrolled nodes, `gpu-1` and on.
    pub(crate) async fn start(nodes: u8) -> Self {
        Self::start_on(nodes, 1, None).await
    }

    /// The same with settings from the environment.
    pub(crate) async fn start_with_settings(nodes: u8, settings: &[(&'static str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let environment = settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self::start_with(folder, Vec::new(), nodes, 1, environment).await
    }

    /// The same of several replicas on a store of PostgreSQL's, by its address. The nodes' channels are the first replica's.
    pub(crate) async fn start_on(nodes: u8, replicas: usize, store_url: Option<String>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self::start_in(folder, Vec::new(), nodes, replicas, store_url).await
    }

    /// The same of one control plane, with a small disk of its own under each of these folders; `None` where none can be made. What the control
    /// plane logs lies on its disk too.
    pub(crate) async fn start_with_disks(nodes: u8, folders: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let disks = folders.iter().map(|disk| SmallDisk::at(&folder.path().join(disk))).collect::<Option<Vec<_>>>()?;
        std::os::unix::fs::symlink("server-0/server.log", folder.path().join("server-0.log")).expect("a link");
        std::fs::create_dir_all(folder.path().join("server-0")).expect("made");
        Some(Self::start_in(folder, disks, nodes, 1, None).await)
    }

    /// The same of one control plane whose reimage hook is a shell script with that text; the fleet's folder is the script's working directory.
    pub(crate) async fn start_with_reimage_hook(nodes: u8, script: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let hook = folder.path().join("reimage-hook");
        let text = format!("#!/bin/sh\ncd {}\n{script}\n", folder.path().display());
        std::fs::write(&hook, text).expect("written");
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("made a program");
        let environment = vec![("GPUAAS_REIMAGE_HOOK", hook.to_str().expect("a text").to_owned())];
        Self::start_with(folder, Vec::new(), nodes, 1, environment).await
    }

    async fn start_in(
        folder: tempfile::TempDir,
        disks: Vec<SmallDisk>,
        nodes: u8,
        replicas: usize,
        store_url: Option<String>,
    ) -> Self {
        std::fs::write(folder.path().join("sealing.key"), [7; 32]).expect("written");
        let environment = store_url.map(|url| shared_environment(folder.path(), url)).unwrap_or_default();
        Self::start_with(folder, disks, nodes, replicas, environment).await
    }

    async fn start_with(
        folder: tempfile::TempDir,
        disks: Vec<SmallDisk>,
        nodes: u8,
        replicas: usize,
        environment: Vec<(&'static str, String)>,
    ) -> Self {
        build_programs();
        let mut fleet = Self {
            disks,
            folder,
            environment,
            admin: String::new(),
            clock_skew_seconds: 0,
            addresses: AddressBlock::take(),
            replicas: Vec::new(),
            inits: Vec::new(),
        };
        for number in 0..replicas {
            let address = fleet.addresses.of_replica(u8::try_from(number).expect("few replicas"));
            fleet.replicas.push(Replica { name: format!("server-{number}"), address, process: None });
        }
        fleet.start_server();
        fleet.exchange_one_time_admin().await;
        let client = fleet.client();
        for number in 1..=nodes {
            fleet.start_node(&client, number).await;
        }
        eventually("the nodes do not become active", async || {
            let active = client.list_nodes(Some("active".into()), Some("connected".into())).await;
            active.is_ok_and(|list| list.items.len() == usize::from(nodes))
        })
        .await;
        for number in 1..replicas {
            fleet.start_replica(number);
        }
        fleet
    }

    /// Starts the first replica and returns when it serves.
    pub(crate) fn start_server(&mut self) {
        self.start_replica(0);
    }

    /// Starts a replica and returns when it serves.
    pub(crate) fn start_replica(&mut self, number: usize) {
        let ready = self.ready_file(number);
        let _ = std::fs::remove_file(&ready);
        let replica = &mut self.replicas[number];
        let log_file = self.folder.path().join(format!("{}.log", replica.name));
        let log = std::fs::File::options().append(true).create(true).open(&log_file);
        let [listen, channel, peers] = PORTS.map(|port| format!("{}:{port}", replica.address));
        let mut server = Command::new(GPUAAS);
        server
            .args([
                "server",
                "--lifeline",
                "--listen",
                &listen,
                "--channel-listen",
                &channel,
                "--replica-listen",
                &peers,
            ])
            .args(["--data-dir".as_ref(), self.folder.path().join(&replica.name).as_os_str()])
            .args(["--ready-file".as_ref(), ready.as_os_str()])
            .env("GPUAAS_RELEASE_IMPORT_DIR", "/")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env(gpuaas_crash_points::FOLDER, self.folder.path().join("crash-points"))
            .stdin(Stdio::piped())
            .stderr(log.expect("a log"));
        let mut server = server.spawn().expect("gpuaas server starts");
        let began = Instant::now();
        while !ready.exists() {
            let said = || std::fs::read_to_string(&log_file).unwrap_or_default();
            assert!(began.elapsed() < PATIENCE, "gpuaas server does not become ready; it said:\n{}", said());
            let ended = server.try_wait().expect("a child");
            assert!(ended.is_none(), "gpuaas server ended, {ended:?}; it said:\n{}", said());
            std::thread::sleep(Duration::from_millis(2));
        }
        replica.process = Some(server);
    }

    /// A small disk, in the order in which they were asked for.
    pub(crate) fn disk(&self, number: usize) -> &SmallDisk {
        &self.disks[number]
    }

    /// What the first replica said when it was ready.
    pub(crate) fn ready(&self) -> Value {
        self.ready_of(0)
    }

    /// Whether a replica runs.
    pub(crate) fn is_running(&mut self, number: usize) -> bool {
        let process = self.replicas[number].process.as_mut();
        process.is_some_and(|process| process.try_wait().is_ok_and(|ended| ended.is_none()))
    }

    /// Runs a verb of `gpuaas server` with the settings of the first replica.
    pub(crate) fn server_verb(&self, verb: &[&str]) -> Output {
        let mut command = Command::new(GPUAAS);
        command.arg("server").args(["--data-dir".as_ref(), self.data_dir().as_os_str()]).args(verb);
        command.envs(self.environment.iter().map(|(name, value)| (name, value))).output().expect("gpuaas runs")
    }

    /// The same, ended with SIGKILL where it comes to that point.
    pub(crate) fn kill_server_verb(&self, verb: &[&str], point: &str) {
        let reached = self.crash_points(None).join(format!("{point}.reached"));
        let _ = std::fs::remove_file(&reached);
        self.arm(None, point);
        let mut command = Command::new(GPUAAS);
        command.arg("server").args(["--data-dir".as_ref(), self.data_dir().as_os_str()]).args(verb);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env(gpuaas_crash_points::FOLDER, self.crash_points(None)).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("gpuaas runs");
        let began = Instant::now();
        while !reached.exists() {
            assert!(began.elapsed() < PATIENCE, "{verb:?} does not come to {point}");
            assert!(child.try_wait().expect("a child").is_none(), "{verb:?} ended before {point}");
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().expect("killed");
        child.wait().expect("ended");
    }

    /// Another store for the first replica, from its next start on.
    pub(crate) fn move_to(&mut self, store_url: String) {
        self.point_at(store_url);
        let kept = self.path("lost").join("sealing.key");
        std::fs::copy(kept, self.path("sealing.key")).expect("the key that sealed the rows");
    }

    /// The same of one whose sealing key lies where that of a shared store must.
    pub(crate) fn point_at(&mut self, store_url: String) {
        self.environment = shared_environment(self.folder.path(), store_url);
    }

    /// Where the first replica keeps its own.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.folder.path().join(&self.replicas[0].name)
    }

    /// A path of the test's own.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Ends the first replica with SIGKILL.
    pub(crate) fn kill_server(&mut self) {
        self.kill_replica(0);
    }

    /// Ends a replica with SIGKILL.
    pub(crate) fn kill_replica(&mut self, number: usize) {
        let mut server = self.replicas[number].process.take().expect("a running server");
        server.kill().expect("killed");
        server.wait().expect("ended");
    }

    /// Sends a signal to a replica.
    pub(crate) fn signal_replica(&self, number: usize, signal: &str) {
        let process = self.replicas[number].process.as_ref().expect("a running server");
        let status = Command::new("kill").args([&format!("-{signal}"), &process.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// The most memory that a replica has had at once, in bytes.
    pub(crate) fn memory(&self, number: usize) -> u64 {
        let process = self.replicas[number].process.as_ref().expect("a running server");
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).expect("a process");
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        most.and_then(|kib| kib.trim().parse::<u64>().ok()).expect("a number") << 10
    }

    /// Waits for a replica that was asked to end.
    pub(crate) fn replica_ended(&mut self, number: usize) {
        let mut process = self.replicas[number].process.take().expect("a running server");
        process.wait().expect("ended");
    }

    /// Ends a node's agent with SIGKILL; its init starts it again.
    pub(crate) fn kill_agent(&self, node: u8) {
        self.signal_agent(node, "KILL");
    }

    /// Sends a signal to a node's agent.
    pub(crate) fn signal_agent(&self, node: u8, signal: &str) {
        let status = Command::new("kill").args([&format!("-{signal}"), &self.agent(node).to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    fn agent(&self, node: u8) -> i32 {
        let root = self.root(node);
        let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
        let mut agents = entries.filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let read =
                |name: &str| Some(String::from_utf8_lossy(&std::fs::read(entry.path().join(name)).ok()?).into_owned());
            let is_agent = read("cmdline")?.split('\0').next()?.ends_with("gpuaas-agent");
            (is_agent && read("environ")?.contains(&*root.to_string_lossy())).then_some(pid)
        });
        agents.next().expect("an agent")
    }

    /// The admin's client of the first replica.
    pub(crate) fn client(&self) -> Client {
        self.client_of(0)
    }

    /// The admin's client of a replica.
    pub(crate) fn client_of(&self, number: usize) -> Client {
        self.client_with(number, &self.admin)
    }

    /// Becomes the first administrator by the one-time token in the data directory of the first replica.
    pub(crate) async fn exchange_one_time_admin(&mut self) {
        self.admin = exchanged(&self.client_with(0, &one_time_admin(&self.data_dir()))).await.expect("exchanged");
    }

    /// The client of a replica, with that token.
    pub(crate) fn client_with(&self, number: usize, token: &str) -> Client {
        let ready = self.ready_of(number);
        let authority = std::fs::read(ready["ca_file"].as_str().expect("a path")).expect("the authority");
        Client::new(ready["url"].as_str().expect("a text"), &authority, token).expect("a client")
    }

    /// What a replica told when it was ready, with the admin's token.
    fn ready_of(&self, number: usize) -> Value {
        let told = std::fs::read(self.ready_file(number)).expect("ready");
        let mut ready: Value = serde_json::from_slice(&told).expect("JSON");
        ready["token"] = self.admin.clone().into();
        ready
    }

    /// Events that the stand-in itself counted on a node, for example `start`.
    pub(crate) fn counted(&self, node: u8, event: &str) -> usize {
        let counters = std::fs::read_to_string(self.root(node).join("var/lib/stand-in/counters.jsonl"));
        let counters = counters.unwrap_or_default();
        let lines = counters.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["event"] == event).count()
    }

    /// Where a node's agent knows that it may connect.
    pub(crate) fn endpoints_of(&self, node: u8) -> Vec<String> {
        let identity = std::fs::read(self.root(node).join("var/lib/gpuaas-agent/identity.json")).expect("enrolled");
        let identity: Value = serde_json::from_slice(&identity).expect("JSON");
        let channels = identity["channels"].as_array().expect("a list").iter();
        channels.map(|channel| channel.as_str().expect("a text").to_owned()).collect()
    }

    /// A file of a node, under the folder that stands for its root.
    pub(crate) fn node_file(&self, node: u8, path: &str) -> PathBuf {
        self.root(node).join(path)
    }

    fn root(&self, node: u8) -> PathBuf {
        self.folder.path().join(format!("nodes/gpu-{node}"))
    }

    fn ready_file(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("ready-{number}.json"))
    }

    /// Registers one more node and starts its machine.
    pub(crate) async fn start_node(&mut self, client: &Client, number: u8) {
        let (name, root) = (format!("gpu-{number}"), self.root(number));
        let ask = RegisterNode { name: name.clone(), ..RegisterNode::default() };
        let registered = client.register_node(&ask).await.expect("registered");
        lay_out(&root, &registered.enrollment.string);
        self.inits.push(None);
        self.start_init(number);
    }

    /// Starts a node's init: the machine boots.
    pub(crate) fn start_init(&mut self, number: u8) {
        let (name, root) = (format!("gpu-{number}"), self.root(number));
        let address = self.addresses.of_node(number);
        let init = Command::new(GPUAAS)
            .args(["sandbox-init", "--lifeline", "--hostname", &name, "--address", &address.to_string()])
            .args(["--root".as_ref(), root.as_os_str()])
            .env(gpuaas_crash_points::FOLDER, self.crash_points(Some(number)))
            .env(gpuaas_host::sandbox::CLOCK_SKEW, self.clock_skew_seconds.to_string())
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        self.inits[usize::from(number) - 1] = Some(init.expect("an init"));
    }

    /// Gives a node's agent a new enrollment string and starts it anew, as whoever sets a machine up again does.
    pub(crate) fn enroll_again(&self, number: u8, string: &str) {
        let file = self.node_file(number, "var/lib/gpuaas-agent/enroll");
        std::fs::write(file, string).expect("written");
        self.kill_agent(number);
    }

    /// A node loses its power: its init ends with SIGKILL, and then whatever else ran there, with nobody left who would notice.
    pub(crate) fn kill_init(&mut self, number: u8) {
        let mut init = self.inits[usize::from(number) - 1].take().expect("a running init");
        init.kill().expect("killed");
        init.wait().expect("ended");
        let began = Instant::now();
        loop {
            let left = self.processes_of(number);
            if left.is_empty() {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{left:?} do not end");
            for pid in left {
                let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
            }
        }
    }

    /// Every process that carries the node's folder in its arguments or environment.
    fn processes_of(&self, node: u8) -> Vec<i32> {
        let mark = self.root(node).to_string_lossy().into_owned();
        let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
        let of_node = entries.filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse::<i32>().ok()?;
            let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
            let texts = [read("cmdline"), read("environ")];
            texts.iter().any(|text| String::from_utf8_lossy(text).contains(&mark)).then_some(pid)
        });
        of_node.collect()
    }

    /// Has the process that comes to that point next stand still there: of the control plane, or of a node.
    pub(crate) fn arm(&self, node: Option<u8>, point: &str) {
        let folder = self.crash_points(node);
        std::fs::create_dir_all(&folder).expect("made");
        std::fs::write(folder.join(point), "").expect("written");
    }

    /// Whether it has come there.
    pub(crate) fn stands_at(&self, node: Option<u8>, point: &str) -> bool {
        self.crash_points(node).join(format!("{point}.reached")).exists()
    }

    fn crash_points(&self, node: Option<u8>) -> PathBuf {
        match node {
            None => self.folder.path().join("crash-points"),
            Some(node) => self.root(node).join(gpuaas_crash_points::FOLDER_OF_SANDBOX),
        }
    }

    /// Tells every process of a node that stands still to go on.
    pub(crate) fn let_go_on(&self, node: u8) {
        for pid in self.processes_of(node) {
            let _ = Command::new("kill").args(["-CONT", &pid.to_string()]).status();
        }
    }

    /// Tasks of that type that a node's ledger holds without an end.
    pub(crate) fn interrupted(&self, node: u8, tasks_of_type: &[String]) -> usize {
        let ledger = std::fs::read_to_string(self.root(node).join("var/lib/gpuaas-agent/ledger.jsonl"));
        let ledger = ledger.expect("a ledger");
        let lines: Vec<Value> = ledger.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let has = |kind: &str, task: &str| lines.iter().any(|line| line["line"] == kind && line["task"] == task);
        tasks_of_type.iter().filter(|task| has("begin", task) && !has("end", task)).count()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // Their lifelines end with their standard inputs: each takes its sandbox along.
        let servers = self.replicas.iter_mut().filter_map(|replica| replica.process.take());
        for child in self.inits.iter_mut().filter_map(Option::take).chain(servers) {
            end(child);
        }
    }
}

/// Lets a process end by its lifeline. One that a failed test left stopped could not: it is killed in time.
fn end(mut child: Child) {
    drop(child.stdin.take());
    let began = Instant::now();
    while child.try_wait().is_ok_and(|ended| ended.is_none()) {
        if began.elapsed() > ENDS_WITHIN {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What replicas on a shared store are told.
fn shared_environment(folder: &Path, store_url: String) -> Vec<(&'static str, String)> {
    let path = |name: &str| folder.join(name).to_str().expect("a text").to_owned();
    vec![
        ("GPUAAS_STORE_URL", store_url),
        ("GPUAAS_SEALING_KEY_FILE", path("sealing.key")),
        ("GPUAAS_ARTIFACTS_DIR", path("artifacts")),
    ]
}

/// What a node's init finds: the agent's unit, and its enrollment string once.
fn lay_out(root: &Path, string: &str) {
    let agent = Path::new(GPUAAS).with_file_name("gpuaas-agent");
    let unit = format!(
        "[Service]\nType=notify\nExecStart={}\nRestart=always\nRestartSec=1s\nTimeoutStartSec=0\n",
        agent.display()
    );
    let files = [
        ("etc/systemd/system/gpuaas-agent.service", unit.as_str()),
        (".sandbox/enabled", "gpuaas-agent.service"),
        ("var/lib/gpuaas-agent/enroll", string),
    ];
    for (path, content) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, content).expect("written");
    }
}

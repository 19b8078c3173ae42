//! Runs a control plane and nodes as separate processes, each of which a test can kill and restart.

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
    first_admin::{exchange_token, one_time_admin},
    small_disk::SmallDisk,
    world::{GPUAAS, WAIT_MAX, build_programs, eventually},
};

/// Ports on which a replica listens for clients, for nodes and for other replicas. They lie below the kernel's ephemeral ports, so that no
/// other process takes them while the replica is dead.
const PORTS: [u16; 3] = [7443, 7444, 7445];

/// Longest that a process may take to exit after its lifeline closes.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// A control plane with its nodes.
pub(crate) struct Fleet {
    /// Declared before `folder`, in which they are mounted, so that they are dropped first.
    disks: Vec<SmallDisk>,
    folder: tempfile::TempDir,
    addresses: AddressBlock,
    replicas: Vec<Replica>,
    inits: Vec<Option<Child>>,
    environment: Vec<(&'static str, String)>,
    /// The access token of the first administrator.
    admin: String,
    /// Clock offset, in seconds, of nodes that start from now on.
    pub(crate) clock_skew_seconds: i64,
}

/// One process of the control plane; it keeps its address across restarts.
struct Replica {
    name: String,
    address: Ipv4Addr,
    process: Option<Child>,
}

impl Fleet {
    /// Starts a control plane and enrolls `nodes` nodes, named `gpu-1` and up.
    pub(crate) async fn start(nodes: u8) -> Self {
        Self::start_on(nodes, 1, None).await
    }

    /// Like [`Self::start`], with settings from the environment.
    pub(crate) async fn start_with_settings(nodes: u8, settings: &[(&'static str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let environment = settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self::start_with(folder, Vec::new(), nodes, 1, environment).await
    }

    /// Like [`Self::start`], with several replicas; `store_url` is the address of their PostgreSQL store. The nodes enroll at the first
    /// replica, before the others start.
    pub(crate) async fn start_on(nodes: u8, replicas: usize, store_url: Option<String>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self::start_in(folder, Vec::new(), nodes, replicas, store_url).await
    }

    /// Like [`Self::start`], with a small disk mounted at each of these folders; `None` where none can be mounted. The control plane's log
    /// lies in `server-0`, so a disk there holds it too.
    pub(crate) async fn start_with_disks(nodes: u8, folders: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let disks = folders.iter().map(|disk| SmallDisk::at(&folder.path().join(disk))).collect::<Option<Vec<_>>>()?;
        std::os::unix::fs::symlink("server-0/server.log", folder.path().join("server-0.log")).expect("a link");
        std::fs::create_dir_all(folder.path().join("server-0")).expect("made");
        Some(Self::start_in(folder, disks, nodes, 1, None).await)
    }

    /// Like [`Self::start`], with `script` as the reimage hook; the shell script runs in the fleet's folder.
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

    /// Starts the first replica and returns when it is ready.
    pub(crate) fn start_server(&mut self) {
        self.start_replica(0);
    }

    /// Starts a replica and returns when it is ready.
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
            let log_text = || std::fs::read_to_string(&log_file).unwrap_or_default();
            assert!(began.elapsed() < WAIT_MAX, "gpuaas server does not become ready; its log:\n{}", log_text());
            let ended = server.try_wait().expect("a child");
            assert!(ended.is_none(), "gpuaas server exited, {ended:?}; its log:\n{}", log_text());
            std::thread::sleep(Duration::from_millis(2));
        }
        replica.process = Some(server);
    }

    /// Returns a small disk by its index in the list given to [`Self::start_with_disks`].
    pub(crate) fn disk(&self, number: usize) -> &SmallDisk {
        &self.disks[number]
    }

    /// Returns the first replica's ready file, with the admin's token added.
    pub(crate) fn ready(&self) -> Value {
        self.ready_of(0)
    }

    /// Returns whether the replica's process runs.
    pub(crate) fn is_running(&mut self, number: usize) -> bool {
        let process = self.replicas[number].process.as_mut();
        process.is_some_and(|process| process.try_wait().is_ok_and(|ended| ended.is_none()))
    }

    /// Runs a subcommand of `gpuaas server` with the settings of the first replica.
    pub(crate) fn server_verb(&self, verb: &[&str]) -> Output {
        let mut command = Command::new(GPUAAS);
        command.arg("server").args(["--data-dir".as_ref(), self.data_dir().as_os_str()]).args(verb);
        command.envs(self.environment.iter().map(|(name, value)| (name, value))).output().expect("gpuaas runs")
    }

    /// Like [`Self::server_verb`], but kills the process with SIGKILL at the crash point `point`.
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
            assert!(began.elapsed() < WAIT_MAX, "{verb:?} does not reach {point}");
            assert!(child.try_wait().expect("a child").is_none(), "{verb:?} exited before {point}");
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().expect("killed");
        child.wait().expect("ended");
    }

    /// Points the first replica, from its next start on, at another store, and copies its sealing key from the data directory moved to
    /// `lost`.
    pub(crate) fn move_to(&mut self, store_url: String) {
        self.point_at(store_url);
        let kept = self.path("lost").join("sealing.key");
        std::fs::copy(kept, self.path("sealing.key")).expect("the key that sealed the rows");
    }

    /// Like [`Self::move_to`], for a replica whose sealing key is already at the path that a shared store needs.
    pub(crate) fn point_at(&mut self, store_url: String) {
        self.environment = shared_environment(self.folder.path(), store_url);
    }

    /// Returns the data directory of the first replica.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.folder.path().join(&self.replicas[0].name)
    }

    /// Returns a path in the fleet's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Kills the first replica with SIGKILL.
    pub(crate) fn kill_server(&mut self) {
        self.kill_replica(0);
    }

    /// Kills a replica with SIGKILL.
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

    /// Returns a replica's peak resident memory, in bytes.
    pub(crate) fn memory(&self, number: usize) -> u64 {
        let process = self.replicas[number].process.as_ref().expect("a running server");
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).expect("a process");
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        most.and_then(|kib| kib.trim().parse::<u64>().ok()).expect("a number") << 10
    }

    /// Waits for a replica to exit after a test asked it to stop.
    pub(crate) fn await_replica_exit(&mut self, number: usize) {
        let mut process = self.replicas[number].process.take().expect("a running server");
        process.wait().expect("ended");
    }

    /// Kills a node's agent with SIGKILL; the node's init restarts it.
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

    /// Returns the admin's client for the first replica.
    pub(crate) fn client(&self) -> Client {
        self.client_of(0)
    }

    /// Returns the admin's client for a replica.
    pub(crate) fn client_of(&self, number: usize) -> Client {
        self.client_with(number, &self.admin)
    }

    /// Exchanges the one-time token in the first replica's data directory for the first administrator's token.
    pub(crate) async fn exchange_one_time_admin(&mut self) {
        self.admin = exchange_token(&self.client_with(0, &one_time_admin(&self.data_dir()))).await.expect("exchanged");
    }

    /// Returns a client for a replica with that token.
    pub(crate) fn client_with(&self, number: usize, token: &str) -> Client {
        let ready = self.ready_of(number);
        let authority = std::fs::read(ready["ca_file"].as_str().expect("a path")).expect("the authority");
        Client::new(ready["url"].as_str().expect("a text"), &authority, token).expect("a client")
    }

    /// Reads a replica's ready file and adds the admin's token.
    fn ready_of(&self, number: usize) -> Value {
        let bytes = std::fs::read(self.ready_file(number)).expect("ready");
        let mut ready: Value = serde_json::from_slice(&bytes).expect("JSON");
        ready["token"] = self.admin.clone().into();
        ready
    }

    /// Counts the events of this kind, for example `start`, that the stand-in recorded on a node.
    pub(crate) fn count_events(&self, node: u8, event: &str) -> usize {
        let counters = std::fs::read_to_string(self.root(node).join("var/lib/stand-in/counters.jsonl"));
        let counters = counters.unwrap_or_default();
        let lines = counters.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["event"] == event).count()
    }

    /// Returns the channel endpoints in the identity file of a node's agent.
    pub(crate) fn endpoints_of(&self, node: u8) -> Vec<String> {
        let identity = std::fs::read(self.root(node).join("var/lib/gpuaas-agent/identity.json")).expect("enrolled");
        let identity: Value = serde_json::from_slice(&identity).expect("JSON");
        let channels = identity["channels"].as_array().expect("a list").iter();
        channels.map(|channel| channel.as_str().expect("a text").to_owned()).collect()
    }

    /// Returns a file of a node; `path` is relative to the node's root folder.
    pub(crate) fn node_file(&self, node: u8, path: &str) -> PathBuf {
        self.root(node).join(path)
    }

    fn root(&self, node: u8) -> PathBuf {
        self.folder.path().join(format!("nodes/gpu-{node}"))
    }

    fn ready_file(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("ready-{number}.json"))
    }

    /// Registers one more node and boots its machine.
    pub(crate) async fn start_node(&mut self, client: &Client, number: u8) {
        let (name, root) = (format!("gpu-{number}"), self.root(number));
        let ask = RegisterNode { name: name.clone(), ..RegisterNode::default() };
        let registered = client.register_node(&ask).await.expect("registered");
        write_node_files(&root, &registered.enrollment.string);
        self.inits.push(None);
        self.start_init(number);
    }

    /// Boots a node: starts its init.
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

    /// Gives a node's agent a new enrollment string and restarts it, as an operator does who sets up a machine again.
    pub(crate) fn enroll_again(&self, number: u8, string: &str) {
        let file = self.node_file(number, "var/lib/gpuaas-agent/enroll");
        std::fs::write(file, string).expect("written");
        self.kill_agent(number);
    }

    /// Cuts a node's power: kills its init with SIGKILL, then every process left on the node, so that no supervisor sees them end.
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
            assert!(began.elapsed() < WAIT_MAX, "the processes {left:?} do not exit");
            for pid in left {
                let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
            }
        }
    }

    /// Lists the processes that have the node's folder in their arguments or environment.
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

    /// Stops the next process that reaches the crash point: on the control plane if `node` is `None`, else on that node.
    pub(crate) fn arm(&self, node: Option<u8>, point: &str) {
        let folder = self.crash_points(node);
        std::fs::create_dir_all(&folder).expect("made");
        std::fs::write(folder.join(point), "").expect("written");
    }

    /// Returns whether a process has reached the crash point.
    pub(crate) fn is_stopped_at(&self, node: Option<u8>, point: &str) -> bool {
        self.crash_points(node).join(format!("{point}.reached")).exists()
    }

    fn crash_points(&self, node: Option<u8>) -> PathBuf {
        match node {
            None => self.folder.path().join("crash-points"),
            Some(node) => self.root(node).join(gpuaas_crash_points::FOLDER_OF_SANDBOX),
        }
    }

    /// Resumes every stopped process of a node with SIGCONT.
    pub(crate) fn resume_processes(&self, node: u8) {
        for pid in self.processes_of(node) {
            let _ = Command::new("kill").args(["-CONT", &pid.to_string()]).status();
        }
    }

    /// Counts the tasks in `tasks_of_type` that a node's ledger has begun and not ended.
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
        // Closing standard input ends a child's lifeline; each init ends its sandbox with it.
        let servers = self.replicas.iter_mut().filter_map(|replica| replica.process.take());
        for child in self.inits.iter_mut().filter_map(Option::take).chain(servers) {
            end(child);
        }
    }
}

/// Closes a process's lifeline and waits for it to exit. A process that a failed test left stopped cannot exit, so it is killed after
/// [`STOP_TIMEOUT`].
fn end(mut child: Child) {
    drop(child.stdin.take());
    let began = Instant::now();
    while child.try_wait().is_ok_and(|ended| ended.is_none()) {
        if began.elapsed() > STOP_TIMEOUT {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the environment variables of replicas on a shared store.
fn shared_environment(folder: &Path, store_url: String) -> Vec<(&'static str, String)> {
    let path = |name: &str| folder.join(name).to_str().expect("a text").to_owned();
    vec![
        ("GPUAAS_STORE_URL", store_url),
        ("GPUAAS_SEALING_KEY_FILE", path("sealing.key")),
        ("GPUAAS_ARTIFACTS_DIR", path("artifacts")),
    ]
}

/// Writes the files that a node's init finds: the agent's unit, enabled, and its one-time enrollment string.
fn write_node_files(root: &Path, string: &str) {
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

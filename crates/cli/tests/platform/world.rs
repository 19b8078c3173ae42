//! A running `gpuaas dev`, with the helpers that the tests share.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use gpuaas_api_types::{
    AddMembers, CreateAllocation, CreateProject, CreateToken, Deploy, ImportRelease, OperationDetail, Started,
};
use gpuaas_client::Client;
pub(crate) use gpuaas_test_support::eventually;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

pub(crate) const GPUAAS: &str = env!("CARGO_BIN_EXE_gpuaas");

/// Returns `gpuaas` with the default action for SIGINT. A shell starts background jobs with SIGINT ignored, and their children inherit that.
pub(crate) fn interruptible_gpuaas() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", GPUAAS]);
    command
}

/// Timeout of every wait; the awaited event normally takes a fraction of it.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(90);
/// Name of the project that owns the allocations and deploys.
pub(crate) const PROJECT: &str = "research";
/// Limits the clusters that run at once, because each holds about 450 MB.
pub(crate) static CLUSTERS: Semaphore = Semaphore::const_new(2);

/// A running `gpuaas dev`; dropping it kills the process and waits until all its descendants have ended.
pub(crate) struct Platform {
    pub(crate) child: Child,
    pub(crate) ready_file: PathBuf,
    pub(crate) folder: PathBuf,
    _folder: tempfile::TempDir,
    _cluster: Option<SemaphorePermit<'static>>,
}

impl Platform {
    /// Starts `gpuaas dev` with `nodes` sandbox nodes, named `demo-1` and up.
    pub(crate) fn start(nodes: u8) -> Self {
        Self::start_with(nodes, &[])
    }

    /// Starts it with `nodes` sandbox nodes and additional environment variables.
    pub(crate) fn start_with(nodes: u8, environment: &[(&str, &str)]) -> Self {
        build_programs();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_owned();
        let mut platform = Self {
            child: spawn(&path, nodes, environment),
            ready_file: path.join("ready.json"),
            folder: path,
            _folder: folder,
            _cluster: None,
        };
        platform.await_ready();
        platform
    }

    /// Starts it, allocates every node to [`PROJECT`] and imports the stand-in's release, so that a test can deploy a cluster.
    /// Waits for one of the [`CLUSTERS`] permits.
    pub(crate) async fn with_release(nodes: u8, environment: &[(&str, &str)]) -> Self {
        let permit = CLUSTERS.acquire().await.expect("never closed");
        let mut platform = tokio::task::block_in_place(|| Self::start_with(nodes, environment));
        platform._cluster = Some(permit);
        let client = platform.client();
        client.import_artifacts(&import_request(release())).await.expect("the release is imported");
        client.create_project(&CreateProject { name: PROJECT.to_owned() }).await.expect("made");
        for node in 1..=nodes {
            let ask = CreateAllocation { project: PROJECT.to_owned(), node: format!("demo-{node}") };
            client.create_allocation(&ask).await.expect("made");
        }
        eventually("the allocations do not become active", async || {
            let list = client.list_allocations(Some(PROJECT.to_owned()), None).await.expect("listed");
            list.items.iter().all(|allocation| allocation.state == "active")
        })
        .await;
        platform
    }

    /// Kills the process, waits for its descendants to end, and starts it again on the same data directory.
    pub(crate) fn restart(&mut self, nodes: u8) {
        self.end();
        std::fs::remove_file(&self.ready_file).expect("it was ready");
        self.child = spawn(&self.folder, nodes, &[]);
        self.await_ready();
    }

    /// Ends the process with SIGTERM: it stops the nodes, then the control plane.
    pub(crate) fn terminate(&mut self) {
        let status = Command::new("kill").arg(self.child.id().to_string()).status();
        assert!(status.expect("kill runs").success());
        self.child.wait().expect("a child");
    }

    /// Kills the process, waits for its descendants to end, and returns those that did not. They are killed, because they would outlive the
    /// tests.
    pub(crate) fn end(&mut self) -> Vec<String> {
        // Sends SIGKILL to the parent only: the lifelines must end its descendants.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let began = Instant::now();
        while !self.processes().is_empty() && began.elapsed() < WAIT_MAX {
            std::thread::sleep(Duration::from_millis(10));
        }
        let left = self.processes();
        for (pid, _) in &left {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
        left.into_iter().map(|(_, text)| text).collect()
    }

    fn await_ready(&mut self) {
        let began = Instant::now();
        while !self.ready_file.exists() {
            assert!(began.elapsed() < WAIT_MAX, "gpuaas dev does not become ready");
            assert!(self.child.try_wait().expect("a child").is_none(), "gpuaas dev ended");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn gpuaas(&self, arguments: &[&str]) -> Output {
        Command::new(GPUAAS)
            .args(arguments)
            .env("GPUAAS_READY_FILE", &self.ready_file)
            .env("XDG_CONFIG_HOME", &self.folder)
            .output()
            .expect("gpuaas runs")
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.gpuaas(&[arguments, &["-o", "json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON on stdout")
    }

    /// Returns the path of a file in the test's own folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn ready(&self) -> Value {
        serde_json::from_slice(&std::fs::read(&self.ready_file).expect("a ready file")).expect("JSON")
    }

    /// Returns a client with the platform admin's token.
    pub(crate) fn client(&self) -> Client {
        let ready = self.ready();
        self.client_with(ready["token"].as_str().expect("a token"))
    }

    /// Returns a client with the given token.
    pub(crate) fn client_with(&self, token: &str) -> Client {
        let ready = self.ready();
        let authority = std::fs::read(ready["ca_file"].as_str().expect("a path")).expect("the authority");
        Client::new(ready["url"].as_str().expect("a URL"), &authority, token).expect("a client")
    }

    /// Returns the path of a node's file under the folder that serves as the node's root.
    pub(crate) fn node_file(&self, node: u8, path: &str) -> PathBuf {
        self.folder.join(format!("data/nodes/demo-{node}")).join(path)
    }

    /// Enables the named faults of the stand-in on one node.
    pub(crate) fn inject_faults(&self, node: u8, names: &str) {
        let file = self.node_file(node, "etc/rancher/rke2/stand-in-faults");
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        std::fs::write(file, names).expect("written");
    }

    /// Returns the id of the allocation of `demo-{node}` in [`PROJECT`].
    pub(crate) async fn allocation(&self, node: u8) -> String {
        let list = self.client().list_allocations(Some(PROJECT.to_owned()), None).await.expect("listed");
        let name = format!("demo-{node}");
        list.items.into_iter().find(|allocation| allocation.node_name == name).expect("allocated").id
    }

    /// Returns a request that deploys `name` with the server on `demo-1` and agents on the given nodes.
    pub(crate) async fn deployment(&self, name: &str, agents: &[u8]) -> Deploy {
        let placement = json!({
            "server_allocation_id": self.allocation(1).await, "agent_allocation_ids": self.allocations(agents).await,
        });
        Deploy {
            project: Some(PROJECT.to_owned()),
            app: "rke2".to_owned(),
            version: None,
            name: name.to_owned(),
            placement,
            config: Value::Null,
        }
    }

    /// Returns a request that adds agents on the given nodes.
    pub(crate) async fn additions(&self, agents: &[u8]) -> AddMembers {
        let placement = json!({ "agent_allocation_ids": self.allocations(agents).await });
        AddMembers { app: "rke2".to_owned(), placement }
    }

    async fn allocations(&self, nodes: &[u8]) -> Vec<String> {
        let mut ids = Vec::new();
        for node in nodes {
            ids.push(self.allocation(*node).await);
        }
        ids
    }

    /// Waits until the operation has ended, and returns it.
    pub(crate) async fn await_end(&self, started: &Started) -> OperationDetail {
        let client = self.client();
        eventually("the operation does not end", async || {
            client.get_operation(&started.operation.id).await.is_ok_and(|of| of.operation.ended_at.is_some())
        })
        .await;
        client.get_operation(&started.operation.id).await.expect("an operation")
    }

    /// Sends a signal to a node's agent.
    pub(crate) fn signal_agent(&self, node: u8, signal: &str) {
        let (program, root) = ("gpuaas-agent".to_owned(), format!("nodes/demo-{node}"));
        let agent = self.processes().into_iter().find(|(_, text)| {
            text.starts_with('/') && {
                let (command, _) = text.split_once(' ').unwrap_or((text, ""));
                command.ends_with(&program) && text.contains(&root)
            }
        });
        let (pid, _) = agent.expect("an agent");
        let status = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Returns pid and text (arguments and environment) of each process whose text contains the path of this test's folder.
    pub(crate) fn processes(&self) -> Vec<(i32, String)> {
        let mark = self.folder.to_string_lossy().into_owned();
        let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
        let of_ours = entries.filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let read = |name: &str| std::fs::read(entry.path().join(name)).ok();
            let text = [read("cmdline")?, read("environ")?].concat();
            let text = String::from_utf8_lossy(&text).replace('\0', " ");
            text.contains(&mark).then_some((pid, text))
        });
        of_ours.collect()
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        self.end();
    }
}

fn spawn(folder: &Path, nodes: u8, environment: &[(&str, &str)]) -> Child {
    let log = std::fs::File::create(folder.join("output.txt")).expect("a file");
    Command::new(GPUAAS)
        .args(["dev", "--listen", "127.0.0.1:0", "--nodes", &nodes.to_string()])
        .args(["--data-dir".as_ref(), folder.join("data").as_os_str()])
        .args(["--ready-file".as_ref(), folder.join("ready.json").as_os_str()])
        .envs(environment.iter().copied())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("gpuaas dev starts")
}

fn built(program: &str) -> PathBuf {
    Path::new(GPUAAS).with_file_name(program)
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Builds the agent and the stand-in next to `gpuaas`, unless `cargo xtask test` has built them (`GPUAAS_TEST_RELEASE` is set).
/// Without this, `cargo test` alone builds only `gpuaas`, and the test would run an outdated agent.
pub(crate) fn build_programs() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        if std::env::var_os("GPUAAS_TEST_RELEASE").is_some() {
            return;
        }
        let built = cargo().args(["build", "--quiet", "--workspace", "--bins", "--all-features"]).status();
        assert!(built.expect("cargo runs").success(), "the programs do not build");
    });
}

/// Returns the folder of the stand-in's release: the one that `GPUAAS_TEST_RELEASE` names, or one built now.
pub(crate) fn release() -> &'static Path {
    static RELEASE: OnceLock<PathBuf> = OnceLock::new();
    RELEASE.get_or_init(|| {
        if let Some(given) = std::env::var_os("GPUAAS_TEST_RELEASE") {
            return given.into();
        }
        build_programs();
        let mut release = cargo();
        release.args(["run", "--quiet", "--package", "xtask", "--", "release", "--rke2"]).arg(built("rke2"));
        let output = release.stderr(Stdio::inherit()).output().expect("cargo runs");
        assert!(output.status.success(), "the stand-in's release does not build");
        String::from_utf8(output.stdout).expect("a path").trim().into()
    })
}

/// Returns a request for a token with the default lifetime.
pub(crate) fn token_request(name: &str, role: &str, project: Option<&str>) -> CreateToken {
    let project = project.map(str::to_owned);
    CreateToken { name: name.to_owned(), role: role.to_owned(), project, ttl_seconds: None }
}

/// Returns a request that imports the release in that folder, with the SHA-256 of its checksum file.
pub(crate) fn import_request(release: &Path) -> ImportRelease {
    let folder = std::fs::canonicalize(release).expect("a folder");
    let sums = std::fs::read(folder.join("sha256sum-amd64.txt")).expect("a checksum file");
    ImportRelease {
        app: "rke2".to_owned(),
        version: None,
        source: folder.to_string_lossy().into_owned(),
        sums_sha256: Some(gpuaas_trust::sha256_hex(&sums)),
        signature: None,
    }
}

/// Returns the folder of genuine Kubernetes programs: the one that `GPUAAS_COMPONENTS` names, or one built now.
pub(crate) fn components() -> &'static Path {
    static COMPONENTS: OnceLock<PathBuf> = OnceLock::new();
    COMPONENTS.get_or_init(|| {
        if let Some(given) = std::env::var_os("GPUAAS_COMPONENTS") {
            return given.into();
        }
        let mut components = cargo();
        components.args(["run", "--quiet", "--package", "xtask", "--", "components"]);
        let output = components.stderr(Stdio::inherit()).output().expect("cargo runs");
        assert!(output.status.success(), "the components do not build");
        String::from_utf8(output.stdout).expect("a path").trim().into()
    })
}

/// Waits until `holds` returns true. Panics with the message `failure` after [`WAIT_MAX`].
pub(crate) fn until(failure: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < WAIT_MAX, "{failure}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Prints a line to the real standard output: the test harness hides the output of tests that pass.
pub(crate) fn show(figure: &str) {
    // A closed standard output must not fail the test.
    let _ = writeln!(std::io::stdout(), "    {figure}");
}

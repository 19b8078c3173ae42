//! A sandbox node for one test.

use std::{
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::PermissionsExt,
    process::{Child, Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use camino::Utf8PathBuf;
use gpuaas_handler::test_host;
use gpuaas_host::{
    Host,
    sandbox::{SandboxEnvironment, SandboxHost},
};
use gpuaas_wire::task::{TaskFailure, TaskSpec};
use serde_json::Value;

use crate::Case;

/// Longest time for a test, and for a wait in it.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The server's unit, with the settings of RKE2's own that matter here.
const UNIT: &str = "[Service]\nKillMode=process\nRestart=always\nRestartSec=100ms\nExecStart=/usr/local/bin/rke2 server\n\
                    [Install]\nWantedBy=multi-user.target\n";
/// Starts a shim that outlives it.
const RKE2: &str = "if [ \"$1\" = --version ]; then echo 'rke2 version v1 (x)'; exit 0; fi\n\
                    $root/var/lib/rancher/rke2/data/v1/bin/containerd-shim-runc-v2 1000 &\n\
                    exec sleep 1000";

/// A sandbox node with its init.
pub(crate) struct Node {
    pub(crate) root: Utf8PathBuf,
    pub(crate) host: Arc<dyn Host>,
    init: Child,
    _folder: tempfile::TempDir,
}

/// Runs the init of a node until its lifeline ends.
pub(crate) fn init(root: &str, address: &str) -> ExitCode {
    let this = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
    let options = gpuaas_sandbox::InitOptions {
        root: root.into(),
        hostname: "handlers-node".to_owned(),
        address: address.parse().unwrap(),
        systemctl: vec![this, "systemctl".to_owned()],
        lifeline: true,
    };
    runtime().block_on(gpuaas_sandbox::run(options)).unwrap();
    ExitCode::SUCCESS
}

/// Runs the sandbox's `systemctl`.
pub(crate) fn systemctl(arguments: &[String]) -> ExitCode {
    ExitCode::from(runtime().block_on(gpuaas_sandbox::systemctl::run(arguments)))
}

/// Runs a case on a fresh node.
pub(crate) fn run(case: Case) {
    runtime().block_on(async {
        let node = Node::fresh().await;
        tokio::time::timeout(WAIT_MAX, case(&node)).await.expect("the case ends in its time limit");
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

impl Node {
    async fn fresh() -> Self {
        static COUNT: AtomicU8 = AtomicU8::new(1);
        let folder = tempfile::tempdir().unwrap();
        let address = IpAddr::V4(Ipv4Addr::new(127, 79, 0, COUNT.fetch_add(1, Ordering::Relaxed)));
        let root = Utf8PathBuf::from_path_buf(folder.path().canonicalize().unwrap()).unwrap();
        let socket = root.join("run/sandbox-init.sock");
        let mut init = Command::new(std::env::current_exe().unwrap());
        init.args(["init", root.as_str(), &address.to_string()]).stdin(Stdio::piped());
        let mut init = init.spawn().unwrap();
        while tokio::net::UnixStream::connect(socket.as_std_path()).await.is_err() {
            assert!(init.try_wait().unwrap().is_none(), "the init ended");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let environment = SandboxEnvironment { root: root.clone(), address, hostname: "n".to_owned(), socket };
        Self { root, host: Arc::new(SandboxHost::new(environment)), init, _folder: folder }
    }

    /// Installs RKE2's server unit, a program that starts a shim, and the shim's program.
    pub(crate) async fn with_rke2(&self) {
        self.program("rke2", RKE2);
        let shim = self.root.join("var/lib/rancher/rke2/data/v1/bin/containerd-shim-runc-v2");
        std::fs::create_dir_all(shim.parent().unwrap()).unwrap();
        std::fs::copy("/bin/sleep", shim).unwrap();
        self.file("/usr/local/lib/systemd/system/rke2-server.service", 0o644, UNIT);
        self.host.units().daemon_reload().await.unwrap();
    }

    /// Writes a shell program into `/usr/local/bin`; `$root` is the prefix of the node's paths.
    pub(crate) fn program(&self, name: &str, text: &str) {
        let text = format!("#!/bin/sh\nroot=$GPUAAS_SANDBOX_ROOT\n{text}\n");
        self.file(&format!("/usr/local/bin/{name}"), 0o755, &text);
    }

    pub(crate) fn file(&self, path: &str, mode: u32, text: &str) {
        let place = self.path(path);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(&place, text).unwrap();
        std::fs::set_permissions(place, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Returns the place of one of the node's paths on this machine.
    pub(crate) fn path(&self, path: &str) -> Utf8PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Returns the number of running programs in RKE2's data folder.
    pub(crate) async fn shims(&self) -> usize {
        self.host.inventory().processes(&["/var/lib/rancher/rke2".to_owned()]).await.unwrap().len()
    }

    /// Starts the server's unit by hand and waits for its shim.
    pub(crate) async fn start_by_hand(&self) {
        self.host.units().start("rke2-server.service").await.unwrap();
        self.until("the shim runs", async || self.shims().await == 1).await;
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let deadline = Instant::now() + WAIT_MAX / 2;
        while !holds().await {
            assert!(Instant::now() < deadline, "it did not happen in time: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Runs a task like the agent, with its parameters as JSON.
    pub(crate) async fn task<T: TaskSpec>(&self, params: Value) -> Result<T::Result, TaskFailure> {
        let entry = gpuaas_app_rke2_handlers::catalog().into_iter().find(|entry| entry.task_type == T::TYPE);
        let entry = entry.unwrap_or_else(|| panic!("the catalog has no {}", T::TYPE));
        let result = (entry.run)(params, test_host::context(&self.host)).await?;
        Ok(serde_json::from_value(result).unwrap())
    }
}

impl Drop for Node {
    /// Closes the lifeline and waits until the init has ended every process of the node.
    fn drop(&mut self) {
        drop(self.init.stdin.take());
        self.init.wait().unwrap();
    }
}

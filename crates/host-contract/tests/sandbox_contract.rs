//! The suite on a sandbox's init in its own process, and behaviour that only a sandbox has.

#![allow(clippy::unwrap_used, reason = "every function here is part of a test")]

use std::{
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::symlink,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use camino::Utf8PathBuf;
use gpuaas_host::{
    ContentId, Host, HostError, JournalFrom,
    sandbox::{SandboxEnvironment, SandboxHost},
};
use gpuaas_host_contract::{Backend, Bench, host_contract};

host_contract!(Sandbox::fresh);

/// A sandbox node with its init.
struct Sandbox {
    environment: SandboxEnvironment,
    init: Child,
    _root: tempfile::TempDir,
}

impl Sandbox {
    async fn fresh() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let folder = tempfile::tempdir().unwrap();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let address = IpAddr::V4(Ipv4Addr::from(0x7f4d_0000 | count));
        let root = Utf8PathBuf::from_path_buf(folder.path().canonicalize().unwrap()).unwrap();
        let socket = root.join("run/sandbox-init.sock");
        let environment = SandboxEnvironment { root, address, hostname: "contract-node".to_owned(), socket };
        let init = Self::start(&environment).await;
        Self { environment, init, _root: folder }
    }

    async fn start(environment: &SandboxEnvironment) -> Child {
        let mut init = Command::new(env!("CARGO_BIN_EXE_contract-node"));
        init.args(["init", environment.root.as_str(), &environment.address.to_string()]).stdin(Stdio::piped());
        let mut init = init.spawn().unwrap();
        while tokio::net::UnixStream::connect(environment.socket.as_std_path()).await.is_err() {
            assert!(init.try_wait().unwrap().is_none(), "the init ended");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        init
    }

    /// Closes the lifeline and waits until the init has exited.
    fn end(&mut self) {
        drop(self.init.stdin.take());
        self.init.wait().unwrap();
    }
}

impl Backend for Sandbox {
    fn client(&self) -> Arc<dyn Host> {
        Arc::new(SandboxHost::new(self.environment.clone()))
    }

    fn notifier(&self) -> String {
        format!("{} notify", env!("CARGO_BIN_EXE_contract-node"))
    }

    fn program(&self) -> String {
        env!("CARGO_BIN_EXE_contract-node").to_owned()
    }

    fn is_machine(&self) -> bool {
        false
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.end();
    }
}

#[tokio::test]
async fn no_link_leads_out_of_the_root() {
    let sandbox = Sandbox::fresh().await;
    let bench = Bench::of(&sandbox);
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    let root = sandbox.environment.root.join("var/lib");
    symlink(outside.path().join("secret"), root.join("file")).unwrap();
    symlink(outside.path().join("made"), root.join("dangling")).unwrap();
    symlink(outside.path(), root.join("folder")).unwrap();
    let host = &bench.host;
    let refused =
        |refused: Result<(), HostError>| assert!(matches!(refused, Err(HostError::UnsafePath { .. })), "{refused:?}");
    let new = ContentId::of(b"secret");
    refused(host.files().read("/var/lib/file".into(), 100).await.map(drop));
    refused(host.files().open("/var/lib/file".into()).await.map(drop));
    refused(host.files().size("/var/lib/file".into()).await.map(drop));
    refused(host.files().sync("/var/lib/file".into()).await);
    refused(host.files().append("/var/lib/file".into()).await.map(drop));
    refused(host.files().append("/var/lib/dangling".into()).await.map(drop));
    refused(host.files().copy_verified("/var/lib/file".into(), "/var/lib/copy".into(), 0o600, new).await.map(drop));
    refused(host.files().list("/var/lib/folder".into()).await.map(drop));
    refused(host.files().make_folder("/var/lib/folder".into(), 0o711).await.map(drop));
    refused(host.files().make_folder("/var/lib/folder/made".into(), 0o711).await.map(drop));
    refused(host.files().remove("/var/lib/folder/secret".into()).await.map(drop));
    assert_eq!(host.inventory().tree().text("/var/lib/file"), None);
    bench.file("/var/lib/file", 0o600, "new").await;
    assert_eq!(std::fs::read_to_string(outside.path().join("secret")).unwrap(), "secret");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn ended_init_leaves_no_process_and_the_next_starts_enabled_units() {
    let mut sandbox = Sandbox::fresh().await;
    let bench = Bench::of(&sandbox);
    let service = "KillMode=process\n[Install]\nWantedBy=multi-user.target";
    bench.service("stays", service, "setsid sleep 1000 & echo say: child $!; exec sleep 1000").await;
    bench.host.units().enable("stays.service").await.unwrap();
    bench.host.units().start("stays.service").await.unwrap();
    let line = bench.wait_for_line("stays.service", "say: child").await;
    let child = bench.number("stays.service", "say: child").await;
    bench.until_program_is(child, "sleep").await;
    sandbox.end();
    assert!(bench.host.inventory().processes(&[]).await.unwrap().is_empty());
    assert!(
        matches!(bench.host.units().unit("stays.service").await, Err(HostError::InitUnreachable(_))),
        "the init has ended"
    );
    sandbox.init = Sandbox::start(&sandbox.environment).await;
    bench.until_running("stays.service").await;
    let lines = bench.lines("stays.service", JournalFrom::Start).await;
    assert_eq!(lines[0], line, "the journal continues");
}

#[tokio::test]
async fn init_ends_soon_although_a_unit_ignores_sigterm() {
    let mut sandbox = Sandbox::fresh().await;
    let bench = Bench::of(&sandbox);
    bench.service("deaf", "TimeoutStopSec=90", "trap '' TERM; echo say: deaf; while :; do sleep 1000; done").await;
    bench.host.units().start("deaf.service").await.unwrap();
    bench.wait_for_line("deaf.service", "say: deaf").await;
    let began = std::time::Instant::now();
    sandbox.end();
    assert!(began.elapsed() < Duration::from_secs(20), "the init took too long to end");
    assert!(bench.host.inventory().processes(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn ended_orphan_is_reaped() {
    let sandbox = Sandbox::fresh().await;
    let bench = Bench::of(&sandbox);
    let program = "sh -c 'sleep 1000 & echo say: orphan $!'; exec sleep 1000";
    bench.service("parent", "KillMode=process", program).await;
    bench.host.units().start("parent.service").await.unwrap();
    let orphan = bench.number("parent.service", "say: orphan").await;
    bench.run(&format!("kill -9 {orphan}")).await;
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while std::fs::exists(format!("/proc/{orphan}")).unwrap() {
        assert!(std::time::Instant::now() < deadline, "the orphan is still there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

//! One node with its ledger on a real disk, a control plane that signs tasks for it, and handlers whose runs can be counted.

use std::{sync::Arc, time::Duration};

use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_app_rke2_tasks::{
    Rke2KubeconfigRead, Rke2KubeconfigStored, Rke2Stop, Rke2Stopped, Rke2Uninstall, Rke2Uninstalled,
};
use gpuaas_handler::{Context, Entry, entry};
use gpuaas_host::{
    FileSpec, Host,
    sandbox::{SandboxEnvironment, SandboxHost},
};
use gpuaas_model::{Code, KeyState, StepId, TaskId, Timestamp};
use gpuaas_test_support::ManualClock;
use gpuaas_trust::{
    Authority, EnrollmentString, NodeIdentity, NodeKey, SecretText, SignedKeySet, SigningKeySet, TaskSigner,
    TaskStatement, sha256_hex,
};
use gpuaas_wire::{
    session::{Refusal, TaskLine},
    task::{
        ArtifactFetch, ArtifactFetched, Inspect, Inspection, Noop, NoopDone, Residue, ResidueItem, ResidueKind,
        ResidueReport, TaskFailure, TaskOutcome,
    },
};
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::{
    catalog::is_clean,
    clock::{Ports, now},
    control_connection::open_ledger,
    dialer::Dialer,
    endpoints::Endpoints,
    enroll,
    error::AgentError,
    fetch::Fetch,
    ledger::{ExpectedLedger, Ledger, OpenError},
    options::Options,
    runner::{Accepted, Addressee, Runner},
    state::{self, Identity, State},
};

/// A deadline that no test reaches.
pub(crate) const FAR: Timestamp = Timestamp::from_millis(4_000_000_000_000);
const NODE: &str = "0198c0de-7a3b-7c11-9b54-0242ac120001";
/// Time without a line after which a task counts as hung. Longer than any deadline in these tests.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Path of the ledger on the node.
pub(super) const LEDGER: &str = "/var/lib/gpuaas-agent/ledger.jsonl";
/// Path of the ledger's head.
pub(super) const HEAD: &str = "/var/lib/gpuaas-agent/ledger.head";
pub(super) const IDENTITY: &str = "/var/lib/gpuaas-agent/identity.json";
/// Path of the key of an older agent.
pub(super) const KEY: &str = "/var/lib/gpuaas-agent/key.pem";
pub(super) const ENROLL: &str = "/var/lib/gpuaas-agent/enroll";
/// File to which handlers add a line for each run.
const RUNS: &str = "/var/lib/runs";

/// Ports with a clock after every deadline of these tests but [`FAR`].
pub(super) fn late_ports() -> Ports {
    let clock = ManualClock::at(now().plus(Duration::from_secs(3_600)));
    Ports { clock: Arc::new(clock), ..Ports::of_this_machine() }
}

/// A node and its control plane.
pub(super) struct TestNode {
    pub(super) host: Arc<dyn Host>,
    pub(super) authority: Authority,
    pub(super) signer: TaskSigner,
    pub(super) runner: Arc<Runner>,
    /// The ledger that the identity names.
    pub(super) expected: ExpectedLedger,
    root: tempfile::TempDir,
}

impl TestNode {
    pub(super) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = Utf8PathBuf::from_path_buf(folder.path().canonicalize().unwrap()).unwrap();
        let (address, socket) = ("127.0.0.1".parse().unwrap(), root.join("run/none"));
        let environment = SandboxEnvironment { root, address, hostname: "n".to_owned(), socket };
        let host: Arc<dyn Host> = Arc::new(SandboxHost::new(environment));
        let authority = Authority::generate("cp-1", now()).unwrap();
        let signer = TaskSigner::from_seed(&[7; 32]);
        let keys = SigningKeySet {
            version: 5,
            keys: vec![signer.public(KeyState::Active)],
            expires_at: FAR,
            authorities: Vec::new(),
        };
        let expected = ExpectedLedger { id: None, node: NODE.parse().unwrap(), epoch: 3 };
        let ledger = Ledger::prepare(&host, &expected, false, now()).await.unwrap();
        let expected = ExpectedLedger { id: Some(ledger), ..expected };
        let runner = open(&host, &expected, &authority, keys, Ports::of_this_machine()).await.unwrap();
        Self { host, authority, signer, runner, expected, root: folder }
    }

    /// Restarts the agent on the same node.
    pub(super) async fn restart(&mut self) -> Result<(), AgentError> {
        self.restart_with(Ports::of_this_machine()).await
    }

    /// Restarts the agent with other ports, for example another clock.
    pub(super) async fn restart_with(&mut self, ports: Ports) -> Result<(), AgentError> {
        let keys = SigningKeySet {
            version: 5,
            keys: vec![self.signer.public(KeyState::Active)],
            expires_at: FAR,
            authorities: Vec::new(),
        };
        self.runner = open(&self.host, &self.expected, &self.authority, keys, ports).await?;
        Ok(())
    }

    /// Starts the agent as the program does: from the files in its folder.
    pub(super) async fn start(&mut self) -> Result<(), AgentError> {
        let mut state = enroll::load_enroll_or_keep(&self.host, &options()).await?;
        let ledger = open_ledger(&self.host, &mut state).await?;
        let Identity { ref control_plane, node, epoch, .. } = state.identity;
        let addressee = Addressee { control_plane: control_plane.clone(), node, epoch };
        let fetch = Arc::new(Fetch::new(&state, Arc::new(Endpoints::new(Vec::new())))?);
        let keys = state.identity.key_set.open(&state.identity.authorities()?).unwrap();
        let catalog_and_ports = (catalog(), Ports::of_this_machine());
        self.runner = Runner::with_catalog(self.host.clone(), fetch, addressee, keys, ledger, catalog_and_ports);
        Ok(())
    }

    /// Stores an identity with a key set of that version.
    pub(super) async fn enroll(&self, version: u64) {
        self.enroll_with(version, "no string").await;
    }

    /// Stores an identity with a key set of that version, enrolled by that string.
    pub(super) async fn enroll_with(&self, version: u64, string: &str) {
        let identity = Identity { enrolled_by: Some(sha256_hex(string.as_bytes())), ..self.identity(3, version) };
        state::save(&self.host, &identity).await.unwrap();
    }

    /// Returns the identity file of another enrollment of this node.
    pub(super) async fn identity_of(&self, epoch: u64) -> String {
        let present = self.text(IDENTITY).await;
        state::save(&self.host, &self.identity(epoch, 5)).await.unwrap();
        let other = self.text(IDENTITY).await;
        self.write(IDENTITY, present.as_bytes()).await;
        other
    }

    /// Writes identity and ledger as an older agent does, without an id of the ledger; an even older agent keeps the key in a separate
    /// file.
    pub(super) async fn enroll_without_ledger_id(&self, has_key_file: bool) {
        let identity = self.identity(3, 5);
        let (within, key_file) = if has_key_file { (None, identity.key.clone()) } else { (identity.key.clone(), None) };
        let mut older = serde_json::to_value(Identity { key: within, ledger: None, ..identity }).unwrap();
        older.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        self.write(IDENTITY, older.to_string().as_bytes()).await;
        if let Some(key) = key_file {
            self.write(KEY, key.expose().as_bytes()).await;
        }
        let mut lines = String::new();
        for line in self.text(LEDGER).await.lines() {
            let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
            line.as_object_mut().unwrap().retain(|name, _| name != "digest" && name != "ledger");
            lines.push_str(&format!("{line}\n"));
        }
        self.write(LEDGER, lines.as_bytes()).await;
        self.host.files().remove(HEAD.into()).await.unwrap();
    }

    pub(super) fn another_key(&self) -> String {
        NodeKey::generate().unwrap().to_pem().to_string()
    }

    /// Returns an enrollment string for this node with that token.
    pub(super) fn enrollment_string(&self, token: &str) -> String {
        let string = EnrollmentString {
            url: "https://127.0.0.1:1".to_owned(),
            control_plane: "cp-1".to_owned(),
            node: NODE.parse().unwrap(),
            name: "gpu-1".parse().unwrap(),
            token: SecretText::new(token.to_owned()),
            ca_sha256: self.authority.digest(),
            expires_at: FAR,
        };
        string.encode().expose().to_owned()
    }

    fn identity(&self, epoch: u64, version: u64) -> Identity {
        let keys = SigningKeySet {
            version,
            keys: vec![self.signer.public(KeyState::Active)],
            expires_at: FAR,
            authorities: Vec::new(),
        };
        let State { identity, key } = state(&self.authority, keys.sign(&self.authority).unwrap());
        let node = NodeIdentity { control_plane: "cp-1".to_owned(), node: identity.node, epoch };
        let certificate = self.authority.issue_node(&key.request_pem().unwrap(), &node, now()).unwrap();
        let key = Some(SecretText::new(key.to_pem().to_string()));
        Identity { epoch, certificate, key, ledger: self.expected.id.clone(), ..identity }
    }

    /// Returns the part of the agent that accepts key sets.
    pub(super) fn dialer(&self) -> Dialer {
        let keys = SigningKeySet {
            version: 5,
            keys: vec![self.signer.public(KeyState::Active)],
            expires_at: FAR,
            authorities: Vec::new(),
        };
        let state = state(&self.authority, keys.sign(&self.authority).unwrap());
        let endpoints = Arc::new(Endpoints::new(state.identity.channels.clone()));
        Dialer {
            host: self.host.clone(),
            instance: "one".to_owned(),
            fetch: Arc::new(Fetch::new(&state, endpoints.clone()).unwrap()),
            endpoints,
            state: tokio::sync::Mutex::new(state),
            issuer_changed: tokio::sync::Notify::new(),
        }
    }

    /// Signs a task and hands it to the runner.
    pub(super) async fn send(&self, statement: &TaskStatement) -> Result<Accepted, Refusal> {
        self.runner.accept(self.signer.sign(statement).unwrap().to_json().as_bytes()).await
    }

    /// Returns the last line of a task that must be accepted.
    pub(super) async fn end(&self, statement: &TaskStatement) -> TaskLine {
        end(self.send(statement).await.map_err(|refusal| refusal.message).unwrap()).await
    }

    /// Returns the code with which a task is refused; asserts that nothing ran and that the ledger is unchanged.
    pub(super) async fn refusal(&self, statement: &TaskStatement) -> Code {
        let envelope = self.signer.sign(statement).unwrap().to_json();
        self.refusal_of(envelope.as_bytes()).await
    }

    pub(super) async fn refusal_of(&self, envelope: &[u8]) -> Code {
        let before = (self.runs().await, self.text(LEDGER).await);
        let Err(refusal) = self.runner.accept(envelope).await else { panic!("it was accepted") };
        assert_eq!((self.runs().await, self.text(LEDGER).await), before, "a refusal leaves no trace");
        refusal.code
    }

    /// Returns the tasks whose end is in the ledger.
    pub(super) async fn ended(&self) -> Vec<TaskId> {
        self.runner.ledger.as_ref().unwrap().lock().await.ended()
    }

    /// Returns how often a handler ran.
    pub(super) async fn runs(&self) -> usize {
        self.text(RUNS).await.lines().count()
    }

    pub(super) async fn write(&self, path: &str, content: &[u8]) {
        let file = FileSpec { path: path.into(), mode: 0o600, content: content.to_vec() };
        self.host.files().write(&file).await.unwrap();
    }

    /// Returns the path of a file of the node on this machine.
    pub(super) fn file(&self, path: &str) -> std::path::PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    pub(super) async fn text(&self, path: &str) -> String {
        let content = self.host.files().read(Utf8Path::new(path), 1 << 20).await.unwrap().unwrap_or_default();
        String::from_utf8_lossy(&content).into_owned()
    }
}

/// Returns the options of an agent that serves, with the files in the sandbox at their default paths.
pub(super) fn options() -> Options {
    let reimage_file = "/var/lib/gpuaas-agent/reimage".into();
    Options { verb: None, enroll_file: ENROLL.into(), reimage_file }
}

/// Returns a task that this node accepts; its handler counts its runs and returns at once.
pub(super) fn statement(number: u32) -> TaskStatement {
    let id = format!("0198c0de-7a3b-7c11-9b54-0242{number:08x}");
    TaskStatement {
        control_plane: "cp-1".to_owned(),
        node: NODE.parse().unwrap(),
        epoch: 3,
        allocation: None,
        workload: None,
        operation: None,
        step: None,
        attempt: 1,
        task: task(number),
        task_type: "host.noop".to_owned(),
        schema: 1,
        params: json!({}),
        issued_at: now(),
        expires_at: now().plus(Duration::from_secs(60)),
        fence: 4,
        correlation: id.parse().unwrap(),
    }
}

pub(super) fn task(number: u32) -> TaskId {
    format!("0198c0de-7a3b-7c11-9b54-0242{number:08x}").parse().unwrap()
}

pub(super) fn step(number: u32) -> StepId {
    format!("0198c0de-7a3b-7c11-9b54-0243{number:08x}").parse().unwrap()
}

/// Returns a task that reports that it began, and ends when it is cancelled or its deadline passes.
pub(super) fn cancellable(number: u32) -> TaskStatement {
    TaskStatement { task_type: "host.inspect".to_owned(), ..statement(number) }
}

/// Returns a task for a workload with that number.
pub(super) fn of_workload(workload: u32, number: u32, task_type: &str, params: serde_json::Value) -> TaskStatement {
    TaskStatement {
        workload: Some(format!("0198c0de-7a3b-7c11-9b54-0244{workload:08x}").parse().unwrap()),
        allocation: Some(format!("0198c0de-7a3b-7c11-9b54-0245{workload:08x}").parse().unwrap()),
        task_type: task_type.to_owned(),
        params,
        ..statement(number)
    }
}

/// Returns a task that reports that it began and changes the node.
pub(super) fn changing(number: u32) -> TaskStatement {
    of_workload(1, number, "rke2.stop", json!({ "role": "server" }))
}

/// Returns a task that changes the node and succeeds.
pub(super) fn installing(workload: u32, number: u32) -> TaskStatement {
    of_workload(workload, number, "artifact.fetch", json!({ "artifacts": [] }))
}

/// Returns a residue task that reports each of `paths` as left.
pub(super) fn residue(workload: u32, number: u32, paths: &[&str]) -> TaskStatement {
    let params = json!({ "paths": paths, "mount_prefixes": [], "ports": [], "units": [], "process_prefixes": [] });
    of_workload(workload, number, "host.residue", params)
}

/// Returns a task that never ends by itself.
pub(super) fn unresponsive(number: u32) -> TaskStatement {
    of_workload(1, number, "rke2.uninstall", json!({}))
}

/// Returns a task whose handler panics.
pub(super) fn panicking(number: u32) -> TaskStatement {
    let params = json!({ "secret_id": "0198c0de-7a3b-7c11-9b54-0242ac120009" });
    of_workload(1, number, "rke2.kubeconfig.read", params)
}

/// Returns the last line of a task.
pub(super) async fn end(accepted: Accepted) -> TaskLine {
    match accepted {
        Accepted::Known(lines) => lines.into_iter().next_back().unwrap(),
        Accepted::Running(mut lines) => loop {
            match next(&mut lines).await {
                line @ (TaskLine::Ended(_) | TaskLine::Interrupted) => return line,
                TaskLine::Accepted | TaskLine::Progress(_) => {}
            }
        },
    }
}

/// Waits until the task's handler has reported that it began, and returns the lines that follow.
pub(super) async fn begun(accepted: Accepted) -> Accepted {
    let Accepted::Running(mut lines) = accepted else { panic!("the task does not run") };
    while !matches!(next(&mut lines).await, TaskLine::Progress(_)) {}
    Accepted::Running(lines)
}

async fn next(lines: &mut tokio::sync::broadcast::Receiver<TaskLine>) -> TaskLine {
    tokio::time::timeout(WAIT_MAX, lines.recv()).await.expect("the task must report progress in time").unwrap()
}

/// Returns the code with which a task failed.
pub(super) fn failure(line: TaskLine) -> Code {
    match line {
        TaskLine::Ended(TaskOutcome::Failed { failure }) => failure.code,
        other => panic!("it did not fail: {other:?}"),
    }
}

async fn open(
    host: &Arc<dyn Host>,
    expected: &ExpectedLedger,
    authority: &Authority,
    keys: SigningKeySet,
    ports: Ports,
) -> Result<Arc<Runner>, AgentError> {
    let state = state(authority, keys.sign(authority).unwrap());
    let fetch = Arc::new(Fetch::new(&state, Arc::new(Endpoints::new(state.identity.channels.clone()))).unwrap());
    let addressee = Addressee { control_plane: "cp-1".to_owned(), node: NODE.parse().unwrap(), epoch: 3 };
    let ledger = match Ledger::open(host.clone(), expected, ports.clock.now()).await {
        Ok(ledger) => Ok(ledger),
        Err(OpenError::Ledger(problem)) => Err(problem),
        Err(error @ OpenError::Identity { .. }) => return Err(error.into()),
    };
    Ok(Runner::with_catalog(host.clone(), fetch, addressee, keys, ledger, (catalog(), ports)))
}

fn state(authority: &Authority, key_set: SignedKeySet) -> State {
    let key = NodeKey::generate().unwrap();
    let node = NodeIdentity { control_plane: "cp-1".to_owned(), node: NODE.parse().unwrap(), epoch: 3 };
    let certificate = authority.issue_node(&key.request_pem().unwrap(), &node, now()).unwrap();
    let identity = Identity {
        node: node.node,
        control_plane: node.control_plane,
        epoch: node.epoch,
        channels: vec!["127.0.0.1:1".to_owned()],
        authority: authority.certificate_pem().to_owned(),
        certificate,
        key_set,
        name: None,
        url: None,
        enrolled_by: None,
        key: None,
        ledger: None,
    };
    State { identity, key }
}

/// Returns test handlers under task types of the real catalog, so that runs can be counted and held.
fn catalog() -> Vec<Entry> {
    vec![
        entry(false, |_: Noop, context| async move {
            mark(&context).await;
            Ok(NoopDone {})
        }),
        entry(false, |_: Inspect, context| async move {
            let failure = wait(&context).await;
            Err::<Inspection, _>(failure)
        }),
        entry(true, |_: Rke2Stop, context| async move {
            let failure = wait(&context).await;
            Err::<Rke2Stopped, _>(failure)
        }),
        entry(true, |_: Rke2Uninstall, context| async move {
            mark(&context).await;
            context.report_progress("begun");
            std::future::pending::<Result<Rke2Uninstalled, TaskFailure>>().await
        }),
        entry(false, |_: Rke2KubeconfigRead, _| async move { panics() }),
        entry(true, |_: ArtifactFetch, context| async move {
            mark(&context).await;
            Ok(ArtifactFetched { fetched_bytes: 0, reused_bytes: 0 })
        }),
        entry(false, |task: Residue, _| async move {
            let item = |path| ResidueItem { kind: ResidueKind::Path, what: path };
            Ok(ResidueReport { items: task.paths.into_iter().map(item).collect(), unseen: Vec::new() })
        })
        .frees_host_if(is_clean),
    ]
}

fn panics() -> Result<Rke2KubeconfigStored, TaskFailure> {
    panic!("a handler with a defect")
}

async fn wait(context: &Context) -> TaskFailure {
    mark(context).await;
    context.report_progress("begun");
    tokio::select! {
        () = context.cancel.cancelled() => TaskFailure::new(Code::TaskCancelled, "cancelled, with evidence"),
        () = tokio::time::sleep(context.time_left()) => TaskFailure::new(Code::TaskTimedOut, "late, with evidence"),
    }
}

async fn mark(context: &Context) {
    let mut runs = context.host.files().append(Utf8Path::new(RUNS)).await.unwrap();
    runs.write_all(b"ran\n").await.unwrap();
    runs.flush().await.unwrap();
}

/// Returns the time `by` before now.
pub(super) fn earlier(by: Duration) -> Timestamp {
    Timestamp::from_millis(now().as_millis() - i64::try_from(by.as_millis()).unwrap())
}

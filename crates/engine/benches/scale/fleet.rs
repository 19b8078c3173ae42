//! Control planes that share a store, and simulated nodes that succeed at every task.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use async_trait::async_trait;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use gpuaas_app_rke2::Rke2;
use gpuaas_engine::{
    AppEntry, Caller, Catalog, Endpoints, Engine, EngineParts, Keys, Precondition, Retention,
    commands::{self, workload::Deploy},
    effects::{AccessRequest, AppEffects, CallContext, Delivered, Tunnel},
    ownership::NodeAccess,
    port::{ArchiveFile, ArchiveFiles, ArchiveReadError, DispatchError, NodeTunnels},
};
use gpuaas_model::{
    AllocationState, Code, CorrelationId, EnrolledNode, KeyState, Name, NodeId, OperationState, Principal, ProjectId,
    ReplicaId, Role, SecretId, TaskId, TaskType, TokenId,
};
use gpuaas_planner::ClusterCall;
use gpuaas_store::{AllocationFilter, Eviction, OperationFilter, Store, StoreOptions, WorkloadFilter};
use gpuaas_trust::{
    Authority, EnrollmentString, Envelope, NodeKey, SealingKey, SigningKeySet, TaskSigner, TaskStatement, TokenKey,
    sha256_hex,
};
use gpuaas_wire::{
    session::{ConnectionKind, EnrollRequest, Hello, PROTOCOL, TaskLine},
    task::{TaskFailure, TaskOutcome, TaskSupport},
};
use serde_json::{Value, json};
use tokio::sync::watch;
use uuid::Uuid;

use crate::ports::ports;

const CONTROL_PLANE: &str = "bench";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Simulated nodes. They answer every task after a fixed time, or hold the tasks of operations until they are released.
pub(crate) struct Nodes {
    task: Duration,
    is_holding: watch::Sender<bool>,
    /// Nodes that received a task of an operation.
    dispatched: watch::Sender<BTreeSet<NodeId>>,
    engine: OnceLock<Weak<Engine>>,
}

impl Nodes {
    pub(crate) fn new(task: Duration) -> Self {
        Self {
            task,
            is_holding: watch::Sender::default(),
            dispatched: watch::Sender::default(),
            engine: OnceLock::new(),
        }
    }

    /// Starts or stops holding: a held task of an operation is accepted and does not end.
    pub(crate) fn hold(&self, is_holding: bool) {
        self.is_holding.send_replace(is_holding);
    }

    pub(crate) fn clear_dispatched(&self) {
        self.dispatched.send_modify(BTreeSet::clear);
    }

    pub(crate) async fn until_dispatched(&self, count: usize) {
        let mut dispatched = self.dispatched.subscribe();
        dispatched.wait_for(|nodes| nodes.len() >= count).await.expect("the simulated nodes still exist");
    }

    async fn result(engine: &Weak<Engine>, statement: &TaskStatement, task: TaskType) -> Value {
        let unit = json!({
            "unit": "rke2.service", "active": "active", "sub": "running", "result": "success", "n_restarts": 0,
            "exec_main_status": 0, "since": statement.issued_at,
        });
        match task {
            TaskType::Inspect => json!({
                "hostname": "node", "machine_id": "ab".repeat(16), "boot_id": "cd".repeat(16), "os": "Debian", "kernel": "6.1",
                "arch": "x86_64", "cpus": 8, "memory_bytes": 1_u64 << 36, "addresses": ["10.0.0.1"], "sandbox": true, "disks": [],
            }),
            TaskType::Preflight => json!({ "passed": 9, "findings": [] }),
            TaskType::ArtifactFetch => json!({ "fetched_bytes": 1, "reused_bytes": 0 }),
            TaskType::Rke2Install => json!({ "version_line": "rke2 v1", "files_written": 1 }),
            TaskType::Rke2Configure => json!({ "changed": true }),
            TaskType::Rke2Start => json!({ "unit": unit, "ready_after_ms": 1, "ca_sha256": sha256_hex(b"authority") }),
            TaskType::Rke2Stop | TaskType::Rke2Enable => json!({ "changed": true }),
            TaskType::Rke2Uninstall => json!({ "exit_status": 0 }),
            TaskType::Residue => json!({ "items": [] }),
            TaskType::Rke2KubeconfigRead => {
                let secret: SecretId = serde_json::from_value(statement.params["secret_id"].clone()).expect("an id");
                let engine = engine.upgrade().expect("an engine");
                let node = EnrolledNode { node: statement.node, epoch: statement.epoch };
                engine.deposit_for_node(node, secret, b"kubeconfig").await.expect("deposited");
                json!({ "secret": { "secret_id": secret, "sha256": sha256_hex(b"kubeconfig") } })
            }
            _ => json!({}),
        }
    }
}

/// One replica's access to all nodes.
struct NodeLink(Arc<Nodes>);

#[async_trait]
impl gpuaas_engine::port::Nodes for NodeLink {
    async fn dispatch(
        &self,
        access: &NodeAccess,
        envelope: &str,
    ) -> Result<BoxStream<'static, Result<TaskLine, DispatchError>>, DispatchError> {
        let statement = Envelope::open(envelope.as_bytes(), &keys_in_use()).expect("a task");
        let task: TaskType = statement.task_type.parse().expect("a type");
        let nodes = self.0.clone();
        if statement.operation.is_some() {
            nodes.dispatched.send_if_modified(|all| all.insert(access.node().node));
        }
        let ended = async move {
            if statement.operation.is_some() {
                let is_released = nodes.is_holding.subscribe().wait_for(|is_holding| !is_holding).await.is_ok();
                assert!(is_released, "the simulated nodes still exist");
            }
            tokio::time::sleep(nodes.task).await;
            let engine = nodes.engine.get().expect("set at the start");
            let result = Nodes::result(engine, &statement, task).await;
            Ok(TaskLine::Ended(TaskOutcome::Succeeded { result }))
        };
        Ok(stream::iter([Ok(TaskLine::Accepted)]).chain(stream::once(ended)).boxed())
    }
    async fn cancel(&self, _: NodeId, _: TaskId) {}
    async fn observe(&self, _: NodeId, _: Vec<String>) {}
    async fn send_keys(&self, _: NodeId, _: &str) -> bool {
        true
    }
    fn recheck(&self, _: NodeId) {}
    fn recheck_all(&self) {}
    fn expect_reconnect(&self, _: NodeId) {}
    fn broadcast_endpoints(&self) {}
    fn close_channels(&self) {}
}

/// A cluster whose calls succeed. It delivers no access and has no tunnels.
struct HealthyCluster;

#[async_trait]
impl AppEffects for HealthyCluster {
    async fn call(&self, call: ClusterCall, _: CallContext) -> Result<Value, TaskFailure> {
        Ok(json!({ "call": call.call }))
    }
    async fn deliver_access(&self, _: AccessRequest, _: CallContext) -> Result<Delivered, TaskFailure> {
        Err(TaskFailure::new(Code::TaskUnknown, "access is not simulated"))
    }
    async fn revoke_access(&self, _: &str, _: CallContext) -> Result<(), TaskFailure> {
        Err(TaskFailure::new(Code::TaskUnknown, "access is not simulated"))
    }
    async fn observe(&self, _: CallContext) -> Result<Value, TaskFailure> {
        Err(TaskFailure::new(Code::TaskUnknown, "comparisons are not simulated"))
    }
}

#[async_trait]
impl NodeTunnels for HealthyCluster {
    async fn open(&self, _: &NodeAccess, _: u16) -> std::io::Result<Box<dyn Tunnel>> {
        Err(std::io::Error::other("there are no tunnels"))
    }
}

fn signer() -> TaskSigner {
    TaskSigner::from_seed(&[7; 32])
}

fn keys_in_use() -> SigningKeySet {
    SigningKeySet {
        version: 1,
        keys: vec![signer().public(KeyState::Active)],
        expires_at: gpuaas_model::Timestamp::from_millis(i64::MAX),
        authorities: Vec::new(),
    }
}

fn keys() -> Keys {
    static AUTHORITY: OnceLock<(String, String)> = OnceLock::new();
    let (certificate, key) = AUTHORITY.get_or_init(|| {
        let made = Authority::generate(CONTROL_PLANE, ports().clock.now()).expect("an authority");
        (made.certificate_pem().to_owned(), made.key_pem().to_string())
    });
    let authority = Authority::from_pem(certificate, key).expect("the generated authority");
    Keys::new(CONTROL_PLANE.to_owned(), authority, SealingKey::new(&[9; 32]).expect("a key"), TokenKey::new(&[9; 32]))
}

/// Engines that share one store.
pub(crate) struct Fleet {
    engines: Vec<Arc<Engine>>,
    project: ProjectId,
    /// One allocation per node, in the order of creation.
    allocations: Vec<String>,
}

impl Fleet {
    /// Starts `replicas` control planes and creates a project with `count` allocated nodes.
    pub(crate) async fn start(url: &str, nodes: Arc<Nodes>, replicas: usize, count: usize) -> Self {
        let mut engines = Vec::new();
        for _ in 0..replicas {
            engines.push(engine(url, &nodes, None).await);
        }
        let _ = nodes.engine.set(Arc::downgrade(&engines[0]));
        let (first, caller) = (&engines[0], caller());
        let project = commands::project::create(first, &caller, name("lab")).await.expect("made").id;
        let files = ["rke2.linux-amd64.tar.gz", "rke2-images.linux-amd64.tar.zst", "sha256sum-amd64.txt"];
        let release = commands::artifact::VerifiedRelease {
            app: "rke2".to_owned(),
            version: "v1.36.3+rke2r1".to_owned(),
            files: files.map(|name| (name.to_owned(), sha256_hex(name.as_bytes()), 1_000)).into(),
            source: "the bench".to_owned(),
            stand_in: true,
        };
        commands::artifact::record(first, &caller, release).await.expect("recorded");
        for number in 0..count {
            let node = Box::pin(enrolled(&engines[number % replicas], number)).await;
            commands::allocation::create(first, &caller, project, node).await.expect("made");
        }
        let allocations = active_allocations(first.store(), count).await;
        Self { engines, project, allocations }
    }

    /// Starts one control plane on the store of a stopped one, evicts that predecessor and continues its operations.
    pub(crate) async fn restart(url: &str, nodes: Arc<Nodes>, predecessor: ReplicaId) -> Self {
        let engine = engine(url, &nodes, Some(predecessor)).await;
        Self { engines: vec![engine], project: ProjectId::from_uuid(Uuid::nil()), allocations: Vec::new() }
    }

    /// Deploys workload `number` to `nodes` nodes of its own. The replicas accept the deployments in turn.
    pub(crate) async fn deploy(&self, number: usize, nodes: usize) {
        let placed = &self.allocations[number * nodes..(number + 1) * nodes];
        let ask = Deploy {
            project: self.project,
            app: "rke2".to_owned(),
            version: None,
            name: name(&format!("w-{number}")),
            intent: json!({ "server_allocation_id": placed[0], "agent_allocation_ids": placed[1..] }),
            config: json!({}),
        };
        let engine = &self.engines[number % self.engines.len()];
        commands::workload::deploy(engine, &caller(), ask).await.expect("accepted");
    }

    /// Decommissions every workload.
    pub(crate) async fn decommission_all(&self) {
        let mut reader = self.store().read().await.expect("a reader");
        let all = reader.workloads(&WorkloadFilter::default()).await.expect("workloads");
        drop(reader);
        for workload in all {
            let seen = Precondition::Any;
            commands::workload::decommission(&self.engines[0], &caller(), workload.id, &seen).await.expect("accepted");
        }
    }

    pub(crate) async fn until_all_succeeded(&self, count: usize) {
        loop {
            let mut reader = self.store().read().await.expect("a reader");
            let all = reader.operations(&OperationFilter::default()).await.expect("operations");
            drop(reader);
            let failed = all.iter().find(|of| of.state.is_final() && of.state != OperationState::Succeeded);
            assert!(failed.is_none(), "{:?}", failed.map(|of| &of.fault));
            if all.iter().filter(|of| of.state == OperationState::Succeeded).count() == count {
                return;
            }
            // Polls instead of reading after each of the thousands of changes, because these reads are not part of the measurement.
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub(crate) fn store(&self) -> &Store {
        self.engines[0].store()
    }

    pub(crate) fn replica(&self) -> ReplicaId {
        self.engines[0].replica()
    }

    /// Stops all engines in the middle of their work, as a crash does. Returns the first replica's id.
    pub(crate) async fn stop(self) -> ReplicaId {
        for engine in &self.engines {
            engine.stop();
            engine.store().close().await;
        }
        self.replica()
    }
}

async fn engine(url: &str, nodes: &Arc<Nodes>, predecessor: Option<ReplicaId>) -> Arc<Engine> {
    let ports = ports();
    let store = Store::open(&StoreOptions { url: url.to_owned() }, ports.clock.clone()).await.expect("a store");
    if let Some(predecessor) = predecessor {
        store.evict_replica(predecessor, Eviction::Unconditional).await.expect("evicted");
    }
    let keys = keys();
    store.set_record_proof(keys.proof());
    let mut tx = store.begin().await.expect("a change");
    if tx.signing_keys().await.expect("keys").is_empty() {
        let stored = keys.stored_signing_key(&signer(), KeyState::Active, 1, ports.clock.now()).expect("sealed");
        tx.insert_signing_key(&stored).await.expect("inserted");
        tx.commit().await.expect("committed");
    } else {
        drop(tx);
    }
    let replica = ReplicaId::generate(&*ports.clock, &*ports.entropy);
    let engine = Engine::new(EngineParts {
        replica,
        store,
        ports,
        catalog: Catalog::default()
            .with(AppEntry { app: Arc::new(Rke2::default()), effects: Arc::new(HealthyCluster) }),
        keys,
        nodes: Arc::new(NodeLink(nodes.clone())),
        tunnels: Arc::new(HealthyCluster),
        endpoints: Endpoints {
            api_url: "https://bench:7443".to_owned(),
            channel: "bench:7444".to_owned(),
            replica: Some("bench:7445".to_owned()),
        },
        reimage_hook: None,
        archives: Arc::new(NoArchives),
        retention: Retention::DEFAULT,
    });
    engine.join().await.expect("joined");
    let (runs, lives) = (engine.clone(), engine.clone());
    tokio::spawn(async move { runs.run().await });
    tokio::spawn(async move { lives.keep_alive().await });
    engine
}

/// Refuses every archive, so history stays in the database.
struct NoArchives;

#[async_trait::async_trait]
impl ArchiveFiles for NoArchives {
    async fn store(&self, _: Vec<u8>) -> Result<ArchiveFile, String> {
        Err("there is no artifact store here".to_owned())
    }

    async fn read(&self, _: &str) -> Result<Vec<u8>, ArchiveReadError> {
        Err(ArchiveReadError::Missing)
    }
}

fn caller() -> Caller {
    let principal = Principal {
        token: TokenId::from_uuid(Uuid::new_v4()),
        name: "ada".to_owned(),
        role: Role::PlatformAdmin,
        project: None,
        service_account: None,
        workload: None,
    };
    Caller {
        principal,
        correlation: CorrelationId::from_uuid(Uuid::new_v4()),
        is_dry_run: false,
        expected_plan: None,
        session: None,
    }
}

async fn enrolled(engine: &Arc<Engine>, number: usize) -> NodeId {
    let csr = NodeKey::generate().and_then(|key| key.request_pem()).expect("a request");
    let machine_id = format!("machine-{number}");
    let caller = caller();
    let registered = commands::node::register(engine, &caller, name(&format!("gpu-{number}")), None, BTreeMap::new());
    let (node, string) = registered.await.expect("registered");
    let token = EnrollmentString::decode(string.expose()).expect("a string").token.expose().to_owned();
    let ask = EnrollRequest {
        node: node.id,
        token,
        csr,
        machine_id,
        agent_version: "1".to_owned(),
        clock: None,
        reimage: None,
    };
    let epoch = commands::node::redeem(engine, caller.correlation, ask).await.expect("redeemed").epoch;
    let support = |task: &TaskType| TaskSupport { task: task.as_str().to_owned(), schemas: vec![1, 2] };
    let hello = Hello {
        agent_version: "1".to_owned(),
        protocols: vec![PROTOCOL],
        connection: ConnectionKind::Control,
        instance: Uuid::new_v4().to_string(),
        machine_id: format!("machine-{number}"),
        boot_id: "first".to_owned(),
        addresses: vec!["10.0.0.1".to_owned()],
        support: TaskType::ALL.iter().map(support).collect(),
        fence: 0,
        key_set_version: 1,
        clock: None,
        problem: None,
        ledger: None,
    };
    let enrolled = EnrolledNode { node: node.id, epoch };
    commands::node::connected(engine, enrolled, Uuid::new_v4(), &hello).await.expect("connected");
    node.id
}

/// Waits until `count` allocations are active and returns their ids in the order of creation.
async fn active_allocations(store: &Store, count: usize) -> Vec<String> {
    loop {
        let mut reader = store.read().await.expect("a reader");
        let all = reader.allocations(&AllocationFilter::default()).await.expect("allocations");
        drop(reader);
        if all.iter().filter(|one| one.state == AllocationState::Active).count() == count {
            return all.into_iter().map(|one| one.id.to_string()).collect();
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

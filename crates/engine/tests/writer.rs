//! Whoever asks in vain is answered without the store's one writer, which others need.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::{future::BoxFuture, stream::BoxStream};
use gpuaas_engine::{
    Catalog, Endpoints, Engine, EngineParts, Keys,
    commands::node,
    effects::{Tunnel, Tunnels},
    port::{DispatchError, Nodes, Ports, Runtime, TaskUpdate},
};
use gpuaas_model::{
    Clock, Code, Coded, Connectivity, CorrelationId, Entropy, NodeId, NodeState, ReplicaId, TaskId, Timestamp,
};
use gpuaas_store::{NodeRecord, Store, StoreError, StoreOptions};
use gpuaas_trust::{Authority, NODE_CERTIFICATE_LIFE, NodeIdentity, NodeKey, SealingKey};
use gpuaas_wire::session::{EnrollRequest, RenewRequest};
use uuid::Uuid;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const NODE: NodeId = NodeId::from_uuid(Uuid::from_u128(1));
/// What an answer takes that waits for nobody.
const SOON: Duration = Duration::from_secs(5);

struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        NOW
    }
}

impl Entropy for Stopped {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

impl Runtime for Stopped {
    fn spawn(&self, _: &'static str, _: BoxFuture<'static, ()>) {}

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep_until(&self, _: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// No node is there.
struct Nobody;

#[async_trait]
impl Nodes for Nobody {
    async fn dispatch(
        &self,
        _: NodeId,
        _: &str,
    ) -> Result<BoxStream<'static, Result<TaskUpdate, DispatchError>>, DispatchError> {
        Err(DispatchError::NotConnected)
    }

    async fn acknowledge(&self, _: NodeId, _: TaskId) {}

    async fn cancel(&self, _: NodeId, _: TaskId) {}

    async fn observe(&self, _: NodeId, _: Vec<String>) {}

    async fn give_keys(&self, _: NodeId, _: &str) -> bool {
        false
    }

    fn readmit(&self, _: NodeId) {}

    fn readmit_all(&self) {}

    fn expect_back(&self, _: NodeId) {}

    async fn spread_endpoints(&self) {}

    fn release_all(&self) {}
}

#[async_trait]
impl Tunnels for Nobody {
    async fn open(&self, _: NodeId, _: u16) -> std::io::Result<Box<dyn Tunnel>> {
        Err(std::io::Error::other("nobody is there"))
    }
}

async fn engine(folder: &std::path::Path) -> Arc<Engine> {
    let options = StoreOptions { url: format!("sqlite://{}", folder.join("store.db").display()) };
    let store = Store::open(&options, Arc::new(Stopped)).await.expect("a store");
    let authority = Authority::generate("cp-1", NOW).expect("an authority");
    Engine::new(EngineParts {
        store,
        replica: ReplicaId::from_uuid(Uuid::from_u128(9)),
        ports: Ports { clock: Arc::new(Stopped), entropy: Arc::new(Stopped), runtime: Arc::new(Stopped) },
        catalog: Catalog::default(),
        keys: Keys::new("cp-1".into(), authority, SealingKey::new(&[9; 32]).expect("it has 32 bytes")),
        nodes: Arc::new(Nobody),
        tunnels: Arc::new(Nobody),
        endpoints: Endpoints { api_url: "https://cp:7443".into(), channel: "cp:7444".into(), replica: None },
    })
}

async fn with_node(engine: &Engine) {
    let node = NodeRecord {
        id: NODE,
        name: "gpu-01".parse().expect("a name"),
        region: None,
        labels: Default::default(),
        state: NodeState::Active,
        epoch: 1,
        connectivity: Connectivity::Never,
        connectivity_since: NOW,
        agent_version: None,
        machine_id: None,
        support: Vec::new(),
        facts: None,
        preflight: None,
        clock_skew_seconds: None,
        created_at: NOW,
        generation: 0,
    };
    let mut tx = engine.store().begin().await.expect("the writer");
    tx.insert_node(&node).await.expect("inserted");
    tx.commit().await.expect("committed");
}

/// What comes of something while the writer is somebody else's.
async fn beside_a_writer<T>(engine: &Engine, asked: impl Future<Output = T>) -> T {
    let _writer = engine.store().begin().await.expect("the writer");
    tokio::time::timeout(SOON, asked).await.expect("it waits for the writer")
}

#[tokio::test]
async fn a_stranger_who_guesses_enrollment_tokens_is_refused_beside_the_writer() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path()).await;
    let guess = EnrollRequest {
        node: NODE,
        token: "gpuaas-enroll-guess".into(),
        csr: String::new(),
        machine_id: String::new(),
        agent_version: String::new(),
        clock: None,
    };
    let redeemed = node::redeem(&engine, CorrelationId::generate(&Stopped, &Stopped), guess);
    let refused = beside_a_writer(&engine, redeemed).await.expect_err("it is no token");
    assert_eq!(refused.code(), Code::EnrollmentInvalid);
}

#[tokio::test]
async fn a_node_that_asks_for_what_it_may_not_have_is_refused_beside_the_writer() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path()).await;
    with_node(&engine).await;
    let secret = "0198c0de-7a3b-7c11-9b54-0242ac120002".parse().unwrap();
    let read = beside_a_writer(&engine, engine.secret_for_node(NODE, secret)).await;
    assert!(matches!(read, Err(StoreError::NotFound { .. })), "{:?}", read.err());
    let deposited = beside_a_writer(&engine, engine.deposit_for_node(NODE, secret, b"bytes")).await;
    assert!(matches!(deposited, Err(StoreError::NotFound { .. })), "{deposited:?}");
}

#[tokio::test]
async fn a_certificate_is_not_renewed_before_half_of_its_life() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path()).await;
    with_node(&engine).await;
    let identity = NodeIdentity { control_plane: "cp-1".into(), node: NODE, epoch: 1 };
    let request = RenewRequest { csr: NodeKey::generate().unwrap().request_pem().unwrap(), clock: None };
    let made = |at| {
        use rustls_pki_types::pem::PemObject;
        let pem = engine.keys().authority().issue_node(&request.csr, &identity, at).unwrap();
        rustls_pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    };
    let young = made(Timestamp::from_millis(NOW.as_millis() - 1_000));
    let refused = beside_a_writer(&engine, node::renew(&engine, &identity, &young, &request)).await;
    assert_eq!(refused.expect_err("it is young").code(), Code::RateLimited);
    let half = i64::try_from(NODE_CERTIFICATE_LIFE.as_millis()).unwrap() / 2;
    let old = made(Timestamp::from_millis(NOW.as_millis() - half - 1_000));
    assert!(node::renew(&engine, &identity, &old, &request).await.is_ok());
}

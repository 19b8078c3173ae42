//! The engine refuses invalid requests without taking the store's write lock, so they cannot hold up other changes.

use std::time::Duration;

use gpuaas_engine::{Engine, EngineError, commands};
use gpuaas_model::{Code, Coded, EnrolledNode, NodeId, NodeState, Timestamp};
use gpuaas_trust::{NODE_CERTIFICATE_LIFE, NodeIdentity, NodeKey};
use gpuaas_wire::session::{EnrollRequest, RenewRequest};
use uuid::Uuid;

use crate::engines::{Engines, admin};

/// Time limit of an answer that does not wait for the write lock.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Creates an active node in epoch 1, that of its first enrollment.
async fn enrolled(engines: &Engines) -> NodeId {
    let id = engines.node("gpu-1").await;
    let mut tx = engines.store().begin().await.unwrap();
    let mut node = tx.node(id).await.unwrap();
    (node.state, node.epoch) = (NodeState::Active, 1);
    tx.update_node(&node).await.unwrap();
    tx.commit().await.unwrap();
    id
}

/// Awaits `request` while another change holds the write lock. Panics if that takes longer than [`ANSWER_TIMEOUT`].
async fn during_another_change<T>(engine: &Engine, request: impl Future<Output = T>) -> T {
    let _writer = engine.store().begin().await.expect("the writer");
    tokio::time::timeout(ANSWER_TIMEOUT, request).await.expect("it waits for the write lock")
}

#[tokio::test(flavor = "multi_thread")]
async fn guessed_enrollment_token_is_refused_without_the_write_lock() {
    let engines = Engines::new().await;
    let engine = &engines.engine;
    // Genuine in form, which only the platform can make, but never issued: any other text is refused without a query.
    let guess = engine.keys().tokens().generate("gpuaas-enroll", &*engine.ports().entropy).text;
    let guess = EnrollRequest {
        node: NodeId::from_uuid(Uuid::from_u128(1)),
        token: guess.expose().to_owned(),
        csr: String::new(),
        machine_id: String::new(),
        agent_version: String::new(),
        clock: None,
        reimage: None,
    };
    let redeemed = commands::node::redeem(engine, admin().correlation, guess);
    let refused = Box::pin(during_another_change(engine, redeemed)).await.expect_err("the token is invalid");
    assert_eq!(refused.code(), Code::EnrollmentInvalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthorized_secret_request_is_refused_without_the_write_lock() {
    let engines = Engines::new().await;
    let (engine, node) = (&engines.engine, enrolled(&engines).await);
    let secret = "0198c0de-7a3b-7c11-9b54-0242ac120002".parse().unwrap();
    let read = during_another_change(engine, engine.secret_for_node(EnrolledNode { node, epoch: 1 }, secret)).await;
    assert!(matches!(read, Err(EngineError::NotFound { .. })), "{:?}", read.err());
    let deposited =
        during_another_change(engine, engine.deposit_for_node(EnrolledNode { node, epoch: 1 }, secret, b"bytes")).await;
    assert!(matches!(deposited, Err(EngineError::NotFound { .. })), "{deposited:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_is_not_renewed_before_half_of_its_life() {
    let engines = Engines::new().await;
    let (engine, node) = (&engines.engine, enrolled(&engines).await);
    let now = engine.ports().clock.now();
    let identity = NodeIdentity { control_plane: "cp".into(), node, epoch: 1 };
    let request = RenewRequest { csr: NodeKey::generate().unwrap().request_pem().unwrap(), clock: None };
    let made = |at| {
        use rustls_pki_types::pem::PemObject;
        let pem = engine.keys().authority().issue_node(&request.csr, &identity, at).unwrap();
        rustls_pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    };
    let young = made(Timestamp::from_millis(now.as_millis() - 1_000));
    let refused = during_another_change(engine, commands::node::renew(engine, &identity, &young, &request)).await;
    assert_eq!(refused.expect_err("it is young").code(), Code::RateLimited);
    let half = i64::try_from(NODE_CERTIFICATE_LIFE.as_millis()).unwrap() / 2;
    let old = made(Timestamp::from_millis(now.as_millis() - half - 1_000));
    let reused = commands::node::renew(engine, &identity, &old, &request).await;
    assert_eq!(reused.expect_err("it is the certificate's own key").code(), Code::KeyReused);
    let fresh = RenewRequest { csr: NodeKey::generate().unwrap().request_pem().unwrap(), clock: None };
    assert!(commands::node::renew(engine, &identity, &old, &fresh).await.is_ok());
    let again = commands::node::renew(engine, &identity, &old, &fresh).await;
    assert_eq!(again.expect_err("it was certified before").code(), Code::KeyReused);
}

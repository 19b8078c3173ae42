//! Rotation of the certificate authority.

use std::{collections::BTreeMap, time::Duration};

use gpuaas_engine::commands::{
    authorities::{self, AuthorityView, ExpectedAuthority},
    node::{Forced, record_certificate, register, renew},
};
use gpuaas_model::{AuditAction, Code, Coded, Connectivity, KeyState, NodeId, NodeState, Timestamp};
use gpuaas_store::{AuditFilter, AuthorityRecord, NodeKeyRecord, NodeRecord};
use gpuaas_trust::{Authority, NodeIdentity, NodeKey, certificates_of_pem, names_issuer};
use gpuaas_wire::session::RenewRequest;
use serde_json::json;

use crate::engines::{Engines, admin, eventually};

async fn listed(engines: &Engines) -> Vec<AuthorityView> {
    authorities::list(&engines.engine, &admin()).await.unwrap()
}

async fn states_are(engines: &Engines, wanted: &[KeyState]) -> bool {
    listed(engines).await.iter().map(|view| view.authority.state).eq(wanted.iter().copied())
}

async fn wait_for_states(engines: &Engines, wanted: &[KeyState]) {
    eventually("the authorities do not reach their states", async || states_are(engines, wanted).await).await;
}

/// Returns the conditions that the authorities wait for.
async fn waiting_for(engines: &Engines) -> Vec<String> {
    listed(engines).await.into_iter().filter_map(|view| view.waiting_for).collect()
}

fn forced() -> Forced {
    Forced { reason: "the machine burned".to_owned() }
}

/// Forces the rotation under way out of this state.
async fn force(engines: &Engines, state: KeyState) -> Result<AuthorityRecord, Code> {
    let all = listed(engines).await;
    let waiting = all.iter().find(|view| view.authority.state == state).or(all.last()).unwrap();
    let awaited = ExpectedAuthority { authority: waiting.authority.id.clone(), state };
    authorities::force(&engines.engine, &admin(), &awaited, &forced()).await.map_err(|error| error.code())
}

/// Reports that the node's agent presented this certificate.
async fn present_certificate(engines: &Engines, node: NodeId, certificate: &[u8]) {
    let node = engines.store().read().await.unwrap().node(node).await.unwrap();
    record_certificate(&engines.engine, &node, certificate).await.unwrap();
}

/// Renews a node's certificate from the authority `present`. Returns the new certificate.
async fn renew_certificate(engines: &Engines, node: NodeId, present: &Authority) -> Result<Vec<u8>, Code> {
    let now = engines.engine.ports().clock.now();
    let epoch = engines.store().read().await.unwrap().node(node).await.unwrap().epoch;
    let identity = NodeIdentity { control_plane: "cp".to_owned(), node, epoch };
    let csr = || NodeKey::generate().unwrap().request_pem().unwrap();
    let present = certificates_of_pem(&present.issue_node(&csr(), &identity, now).unwrap()).unwrap().remove(0);
    let renewed = renew(&engines.engine, &identity, &present, &RenewRequest { csr: csr(), clock: None }).await;
    let pem = renewed.map_err(|error| error.code())?;
    Ok(certificates_of_pem(&pem).unwrap().remove(0).to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_waits_until_every_node_trusts_and_uses_the_new_authority() {
    let engines = Engines::new().await;
    let (quick, slow) = (engines.node("gpu-1").await, engines.node("gpu-2").await);
    engines.nodes.refusing.lock().unwrap().push(slow);
    engines.run_key_rotation();
    let first = engines.engine.keys().authority();
    assert_eq!(renew_certificate(&engines, quick, &first).await, Err(Code::RateLimited), "it is fresh");
    let made = authorities::rotate(&engines.engine, &admin()).await.expect("no rotation is under way");
    let again = authorities::rotate(&engines.engine, &admin()).await.expect_err("one at a time");
    assert_eq!(again.code(), Code::StateConflict);
    eventually("the node does not accept it", async || engines.key_set_version_of(quick).await >= made.version).await;
    eventually("gpu-2 is not named", async || {
        waiting_for(&engines).await == ["nodes to accept the new authority: gpu-2"]
    })
    .await;
    assert!(states_are(&engines, &[KeyState::Active, KeyState::Staged]).await, "a node lacks it");
    assert_eq!(engines.engine.keys().authority().digest(), first.digest());

    engines.nodes.refusing.lock().unwrap().clear();
    wait_for_states(&engines, &[KeyState::Grace, KeyState::Active]).await;
    eventually("the new authority does not issue", async || engines.engine.keys().authority().digest() == made.id)
        .await;
    let second = engines.engine.keys().authority();
    assert_eq!(waiting_for(&engines).await, ["nodes to renew their certificates: gpu-1, gpu-2"]);
    let certificate = renew_certificate(&engines, quick, &first).await.expect("a fresh certificate is renewed as well");
    assert!(names_issuer(&certificate, second.certificate()));
    let both = "nodes to renew their certificates: gpu-1, gpu-2";
    assert_eq!(waiting_for(&engines).await, [both], "the answer may have been lost");
    present_certificate(&engines, quick, &certificate).await;
    eventually("gpu-1 left", async || waiting_for(&engines).await == ["nodes to renew their certificates: gpu-2"])
        .await;
    assert!(states_are(&engines, &[KeyState::Grace, KeyState::Active]).await);
    let certificate = renew_certificate(&engines, slow, &first).await.expect("renewed");
    present_certificate(&engines, slow, &certificate).await;
    wait_for_states(&engines, &[KeyState::Retired, KeyState::Active]).await;
    assert_eq!(renew_certificate(&engines, quick, &second).await, Err(Code::RateLimited), "it is fresh");
    let stored = engines.store().read().await.unwrap().authorities().await.unwrap();
    assert!(stored[0].key.is_empty() && !stored[1].key.is_empty(), "the old one's key is erased");
    for (action, times) in [
        (AuditAction::AuthorityRotate, 1),
        (AuditAction::AuthorityActivate, 1),
        (AuditAction::AuthoritySupersede, 1),
        (AuditAction::AuthorityRetire, 1),
    ] {
        assert_eq!(engines.recorded(action).await, times, "{action}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_replica_uses_the_new_authority() {
    let engines = Engines::new().await;
    let other = engines.successor().await;
    let made = authorities::rotate(&engines.engine, &admin()).await.expect("begun");
    force(&engines, KeyState::Staged).await.expect("active");
    let set =
        other.keys().signed_set(&mut other.store().read().await.unwrap(), other.ports().clock.now()).await.unwrap();
    assert_eq!(other.keys().authority().digest(), made.id);
    assert_eq!(set.version, made.version + 1);
    let trusted = other.keys().authorities().trusted();
    assert_eq!(trusted.len(), 2, "the previous one is in grace");
    assert_eq!(trusted[0], *other.keys().authority().certificate());
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_rotation_is_forced_with_a_reason() {
    let engines = Engines::new().await;
    assert_eq!(force(&engines, KeyState::Grace).await, Err(Code::StateConflict), "no rotation is under way");
    let node = engines.node("gpu-1").await;
    let made = authorities::rotate(&engines.engine, &admin()).await.expect("begun");
    let awaited = ExpectedAuthority { authority: made.id, state: KeyState::Staged };
    let no_reason = Forced { reason: String::new() };
    let refused = authorities::force(&engines.engine, &admin(), &awaited, &no_reason).await;
    assert_eq!(refused.expect_err("it needs a reason").code(), Code::FieldInvalid);
    for (awaited, wanted, after) in [
        (KeyState::Staged, KeyState::Active, [KeyState::Grace, KeyState::Active]),
        (KeyState::Grace, KeyState::Retired, [KeyState::Retired, KeyState::Active]),
    ] {
        assert_eq!(force(&engines, awaited).await.expect("forced").state, wanted);
        assert!(states_are(&engines, &after).await);
        assert_eq!(force(&engines, awaited).await, Err(Code::StateConflict), "a repeated request advances nothing");
    }
    assert_eq!(engines.recorded(AuditAction::AuthorityForce).await, 2);
    let node = engines.store().read().await.unwrap().node(node).await.unwrap();
    assert_eq!((node.state, node.epoch), (NodeState::Enrolled, 1), "it can be enrolled again");
    authorities::rotate(&engines.engine, &admin()).await.expect("begun");
    force(&engines, KeyState::Staged).await.expect("active");
    assert_eq!(waiting_for(&engines).await, Vec::<String>::new(), "the skipped node has no certificate");
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_of_a_forced_step_names_every_node_that_is_left_behind() {
    let engines = Engines::new().await;
    let names: Vec<String> = (1..=7).map(|number| format!("gpu-{number}")).collect();
    for name in &names {
        engines.node(name).await;
    }
    authorities::rotate(&engines.engine, &admin()).await.expect("begun");
    force(&engines, KeyState::Staged).await.expect("active");
    let filter = AuditFilter { action: Some(AuditAction::AuthorityForce), ..AuditFilter::default() };
    let records = engines.store().read().await.unwrap().audits(&filter).await.unwrap();
    let metadata = &records[0].metadata;
    assert_eq!((&metadata["nodes"], &metadata["without"]), (&json!(7), &json!(names)));
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_waits_for_renewable_certificates_and_not_for_connections() {
    let engines = Engines::new().await;
    let (held, over) = (engines.node("gpu-1").await, engines.node("gpu-2").await);
    engines.run_key_rotation();
    for (node, days) in [(held, 30), (over, 32)] {
        let past = i64::try_from(Duration::from_secs(days * 24 * 3_600).as_millis()).unwrap();
        let created_at = Timestamp::from_millis(engines.engine.ports().clock.now().as_millis() - past);
        let mut tx = engines.store().begin().await.unwrap();
        let sha256 = format!("{days:064}");
        tx.insert_node_key(&NodeKeyRecord { sha256, node, epoch: 1, created_at }).await.unwrap();
        let record = tx.node(node).await.unwrap();
        tx.update_node(&NodeRecord { epoch: 1, ..record }).await.unwrap();
        tx.commit().await.unwrap();
    }
    let first = engines.engine.keys().authority();
    authorities::rotate(&engines.engine, &admin()).await.expect("begun");
    wait_for_states(&engines, &[KeyState::Grace, KeyState::Active]).await;
    // Both are connected. Connections do not count, because an attacker with a stolen key could stay connected forever.
    assert_eq!(waiting_for(&engines).await, ["nodes to renew their certificates: gpu-1"]);
    let certificate = renew_certificate(&engines, held, &first).await.expect("renewed");
    present_certificate(&engines, held, &certificate).await;
    wait_for_states(&engines, &[KeyState::Retired, KeyState::Active]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn staged_authority_waits_for_nodes_whose_connection_ended_a_moment_ago() {
    let engines = Engines::new().await;
    let node = engines.node("gpu-1").await;
    engines.run_key_rotation();
    // The rows after a restart of the control plane: the session has ended, the node is still `connected`.
    let mut tx = engines.store().begin().await.unwrap();
    let connection = tx.session(node).await.unwrap().unwrap().connection;
    assert!(tx.end_session(node, connection).await.unwrap());
    let record = tx.node(node).await.unwrap();
    tx.update_node(&NodeRecord { connectivity: Connectivity::Connected, ..record }).await.unwrap();
    tx.commit().await.unwrap();
    authorities::rotate(&engines.engine, &admin()).await.expect("begun");
    eventually("it is not waited for", async || {
        waiting_for(&engines).await == ["nodes to accept the new authority: gpu-1"]
    })
    .await;
    let mut tx = engines.store().begin().await.unwrap();
    let record = tx.node(node).await.unwrap();
    tx.update_node(&NodeRecord { connectivity: Connectivity::Unreachable, ..record }).await.unwrap();
    tx.commit().await.unwrap();
    wait_for_states(&engines, &[KeyState::Grace, KeyState::Active]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_enrollment_strings_keep_the_old_authority_until_they_expire() {
    let engines = Engines::new().await;
    engines.run_key_rotation();
    let name = || "gpu-1".parse().unwrap();
    register(&engines.engine, &admin(), name(), None, BTreeMap::new()).await.expect("registered");
    authorities::rotate(&engines.engine, &admin()).await.expect("begun");
    wait_for_states(&engines, &[KeyState::Grace, KeyState::Active]).await;
    assert_eq!(waiting_for(&engines).await, ["enrollment strings to be used or to expire: gpu-1"]);
    force(&engines, KeyState::Grace).await.expect("forced");
    let now = engines.engine.ports().clock.now();
    let open = engines.store().read().await.unwrap().open_enrollments("", now).await.unwrap();
    assert_eq!(open, [], "a string that pins the old authority is still valid");
}

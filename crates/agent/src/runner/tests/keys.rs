//! Signing keys: which signatures are valid, and that the key set never goes back.

use std::time::Duration;

use gpuaas_model::{Code, KeyState};
use gpuaas_trust::{Authority, SignedKeySet, SigningKeySet, TaskSigner};

use super::test_node::{FAR, TestNode, statement};
use crate::clock::now;

fn set(test_node: &TestNode, version: u64, state: KeyState) -> SigningKeySet {
    SigningKeySet { version, keys: vec![test_node.signer.public(state)], expires_at: FAR, authorities: Vec::new() }
}

#[tokio::test]
async fn a_task_signed_by_a_key_that_is_not_in_the_set_is_refused() {
    let test_node = TestNode::new().await;
    let envelope = TaskSigner::from_seed(&[8; 32]).sign(&statement(1)).unwrap().to_json();
    assert_eq!(test_node.refusal_of(envelope.as_bytes()).await, Code::EnvelopeInvalid);
}

#[tokio::test]
async fn a_signature_under_the_name_of_another_key_is_refused() {
    let test_node = TestNode::new().await;
    let unknown_signer = TaskSigner::from_seed(&[8; 32]);
    let envelope = unknown_signer.sign(&statement(1)).unwrap().to_json();
    let envelope = envelope.replace(unknown_signer.key_id(), test_node.signer.key_id());
    assert_eq!(test_node.refusal_of(envelope.as_bytes()).await, Code::EnvelopeInvalid);
}

#[tokio::test]
async fn retired_and_revoked_keys_are_refused() {
    let test_node = TestNode::new().await;
    for state in [KeyState::Retired, KeyState::Revoked] {
        test_node.runner.set_keys(set(&test_node, 6, state));
        assert_eq!(test_node.refusal(&statement(1)).await, Code::EnvelopeInvalid, "{state:?}");
    }
    for (state, number) in [(KeyState::Staged, 1), (KeyState::Grace, 2), (KeyState::Active, 3)] {
        test_node.runner.set_keys(set(&test_node, 6, state));
        test_node.end(&statement(number)).await;
    }
    assert_eq!(test_node.runs().await, 3);
}

#[tokio::test]
async fn newer_key_set_is_saved_and_used_at_once() {
    let test_node = TestNode::new().await;
    let dialer = test_node.dialer();
    let revoked = set(&test_node, 6, KeyState::Revoked).sign(&test_node.authority).unwrap();
    dialer.accept_key_set(&test_node.runner, &revoked).await.unwrap();
    assert_eq!(test_node.runner.key_set().version, 6);
    assert_eq!(test_node.refusal(&statement(1)).await, Code::EnvelopeInvalid);
    let kept = test_node.text("/var/lib/gpuaas-agent/identity.json").await;
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(serde_json::from_value::<SignedKeySet>(kept["key_set"].clone()).unwrap(), revoked);
}

#[tokio::test]
async fn older_key_set_is_refused() {
    let test_node = TestNode::new().await;
    let dialer = test_node.dialer();
    let newer = set(&test_node, 6, KeyState::Revoked).sign(&test_node.authority).unwrap();
    dialer.accept_key_set(&test_node.runner, &newer).await.unwrap();
    let kept = test_node.text("/var/lib/gpuaas-agent/identity.json").await;
    let older = set(&test_node, 5, KeyState::Active).sign(&test_node.authority).unwrap();
    assert!(dialer.accept_key_set(&test_node.runner, &older).await.is_err());
    // Nor does a different set replace the present one under the same version.
    let same = set(&test_node, 6, KeyState::Active).sign(&test_node.authority).unwrap();
    let _ = dialer.accept_key_set(&test_node.runner, &same).await;
    assert_eq!(test_node.runner.key_set().version, 6);
    assert_eq!(test_node.refusal(&statement(1)).await, Code::EnvelopeInvalid);
    assert_eq!(test_node.text("/var/lib/gpuaas-agent/identity.json").await, kept);
}

#[tokio::test]
async fn expired_key_set_is_refused_and_accepts_no_task() {
    let test_node = TestNode::new().await;
    let expired = SigningKeySet { expires_at: now(), ..set(&test_node, 6, KeyState::Active) };
    let offered = expired.sign(&test_node.authority).unwrap();
    assert!(test_node.dialer().accept_key_set(&test_node.runner, &offered).await.is_err());
    test_node.runner.set_keys(expired);
    assert_eq!(test_node.refusal(&statement(1)).await, Code::EnvelopeInvalid);
    assert_eq!(test_node.runs().await, 0);
}

#[tokio::test]
async fn renewed_key_set_of_the_same_version_is_saved_and_used() {
    let test_node = TestNode::new().await;
    let dialer = test_node.dialer();
    let soon =
        SigningKeySet { expires_at: now().plus(Duration::from_secs(60)), ..set(&test_node, 6, KeyState::Active) };
    dialer.accept_key_set(&test_node.runner, &soon.sign(&test_node.authority).unwrap()).await.unwrap();
    let renewed = set(&test_node, 6, KeyState::Active);
    dialer.accept_key_set(&test_node.runner, &renewed.sign(&test_node.authority).unwrap()).await.unwrap();
    assert_eq!(test_node.runner.key_set(), renewed);
    // The earlier expiry does not return.
    dialer.accept_key_set(&test_node.runner, &soon.sign(&test_node.authority).unwrap()).await.unwrap();
    assert_eq!(test_node.runner.key_set(), renewed);
}

#[tokio::test]
async fn a_key_set_of_another_authority_is_refused() {
    let test_node = TestNode::new().await;
    let other_authority = Authority::generate("cp-1", now()).unwrap();
    let forged = set(&test_node, 9, KeyState::Active).sign(&other_authority).unwrap();
    assert!(test_node.dialer().accept_key_set(&test_node.runner, &forged).await.is_err());
    assert_eq!(test_node.runner.key_set().version, 5);
}

#[tokio::test]
async fn key_set_that_cannot_be_saved_is_not_used() {
    let test_node = TestNode::new().await;
    let dialer = test_node.dialer();
    test_node.host.files().make_folder("/var/lib/gpuaas-agent/identity.json".into(), 0o700).await.unwrap();
    let newer = set(&test_node, 6, KeyState::Revoked).sign(&test_node.authority).unwrap();
    assert!(dialer.accept_key_set(&test_node.runner, &newer).await.is_err());
    assert_eq!(test_node.runner.key_set().version, 5);
}

/// Returns a key set of that version that names these authorities.
fn naming(test_node: &TestNode, version: u64, authorities: &[&Authority]) -> SigningKeySet {
    let authorities = authorities.iter().map(|authority| authority.certificate_pem().to_owned()).collect();
    SigningKeySet { authorities, ..set(test_node, version, KeyState::Active) }
}

async fn kept(test_node: &TestNode) -> serde_json::Value {
    serde_json::from_str(&test_node.text("/var/lib/gpuaas-agent/identity.json").await).unwrap()
}

#[tokio::test]
async fn authorities_of_a_key_set_are_saved_and_trusted() {
    let test_node = TestNode::new().await;
    let dialer = test_node.dialer();
    let next = test_node.authority.successor(now()).unwrap();
    let staged = naming(&test_node, 6, &[&test_node.authority, &next]).sign(&test_node.authority).unwrap();
    dialer.accept_key_set(&test_node.runner, &staged).await.unwrap();
    let both = format!("{}{}", test_node.authority.certificate_pem(), next.certificate_pem());
    assert_eq!(kept(&test_node).await["authority"], both);
    // From now on a set signed by either authority is accepted, also after a restart.
    let active = naming(&test_node, 7, &[&next, &test_node.authority]).sign(&next).unwrap();
    dialer.accept_key_set(&test_node.runner, &active).await.unwrap();
    let only_next = naming(&test_node, 8, &[&next]).sign(&next).unwrap();
    dialer.accept_key_set(&test_node.runner, &only_next).await.unwrap();
    assert_eq!(kept(&test_node).await["authority"], next.certificate_pem());
    let identity: crate::state::Identity = serde_json::from_value(kept(&test_node).await).unwrap();
    assert_eq!(identity.key_set.open(&identity.authorities().unwrap()).unwrap().version, 8);
    let late = naming(&test_node, 9, &[&test_node.authority]).sign(&test_node.authority).unwrap();
    assert!(
        dialer.accept_key_set(&test_node.runner, &late).await.is_err(),
        "key sets of the former authority are refused"
    );
    assert_eq!(kept(&test_node).await["authority"], next.certificate_pem());
}

#[tokio::test]
async fn authorities_that_cannot_be_saved_are_not_trusted() {
    let test_node = TestNode::new().await;
    let dialer = test_node.dialer();
    test_node.host.files().make_folder("/var/lib/gpuaas-agent/identity.json".into(), 0o700).await.unwrap();
    let next = test_node.authority.successor(now()).unwrap();
    let staged = naming(&test_node, 6, &[&test_node.authority, &next]).sign(&test_node.authority).unwrap();
    assert!(dialer.accept_key_set(&test_node.runner, &staged).await.is_err());
    let state = dialer.state.lock().await;
    assert_eq!(state.identity.authorities().unwrap(), test_node.authority.certificates());
}

#[tokio::test]
async fn certificate_of_a_former_authority_is_renewed_once_another_issues() {
    let test_node = TestNode::new().await;
    let dialer = test_node.dialer();
    let next = test_node.authority.successor(now()).unwrap();
    let is_former = async || dialer.state.lock().await.identity.is_of_former_authority().unwrap();
    let staged = naming(&test_node, 6, &[&test_node.authority, &next]).sign(&test_node.authority).unwrap();
    dialer.accept_key_set(&test_node.runner, &staged).await.unwrap();
    assert!(!is_former().await);
    let active = naming(&test_node, 7, &[&next, &test_node.authority]).sign(&next).unwrap();
    dialer.accept_key_set(&test_node.runner, &active).await.unwrap();
    assert!(is_former().await);
}

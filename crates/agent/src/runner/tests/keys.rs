//! Signing keys: which signatures are valid, and that the key set never goes back.

use std::time::Duration;

use gpuaas_model::{Code, KeyState};
use gpuaas_trust::{Authority, SignedKeySet, SigningKeySet, TaskSigner};

use super::world::{FAR, World, statement};
use crate::clock::now;

fn set(world: &World, version: u64, state: KeyState) -> SigningKeySet {
    SigningKeySet { version, keys: vec![world.signer.public(state)], expires_at: FAR, authorities: Vec::new() }
}

#[tokio::test]
async fn a_task_signed_by_a_key_that_is_not_in_the_set_is_refused() {
    let world = World::new().await;
    let envelope = TaskSigner::from_seed(&[8; 32]).sign(&statement(1)).unwrap().to_json();
    assert_eq!(world.refusal_of(envelope.as_bytes()).await, Code::EnvelopeInvalid);
}

#[tokio::test]
async fn a_signature_under_the_name_of_another_key_is_refused() {
    let world = World::new().await;
    let unknown_signer = TaskSigner::from_seed(&[8; 32]);
    let envelope = unknown_signer.sign(&statement(1)).unwrap().to_json();
    let envelope = envelope.replace(unknown_signer.key_id(), world.signer.key_id());
    assert_eq!(world.refusal_of(envelope.as_bytes()).await, Code::EnvelopeInvalid);
}

#[tokio::test]
async fn retired_and_revoked_keys_are_refused() {
    let world = World::new().await;
    for state in [KeyState::Retired, KeyState::Revoked] {
        world.runner.set_keys(set(&world, 6, state));
        assert_eq!(world.refusal(&statement(1)).await, Code::EnvelopeInvalid, "{state:?}");
    }
    for (state, number) in [(KeyState::Staged, 1), (KeyState::Grace, 2), (KeyState::Active, 3)] {
        world.runner.set_keys(set(&world, 6, state));
        world.end(&statement(number)).await;
    }
    assert_eq!(world.runs().await, 3);
}

#[tokio::test]
async fn newer_key_set_is_saved_and_used_at_once() {
    let world = World::new().await;
    let dialer = world.dialer();
    let revoked = set(&world, 6, KeyState::Revoked).sign(&world.authority).unwrap();
    dialer.accept_key_set(&world.runner, &revoked).await.unwrap();
    assert_eq!(world.runner.key_set().version, 6);
    assert_eq!(world.refusal(&statement(1)).await, Code::EnvelopeInvalid);
    let kept = world.text("/var/lib/gpuaas-agent/identity.json").await;
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(serde_json::from_value::<SignedKeySet>(kept["key_set"].clone()).unwrap(), revoked);
}

#[tokio::test]
async fn older_key_set_is_refused() {
    let world = World::new().await;
    let dialer = world.dialer();
    let newer = set(&world, 6, KeyState::Revoked).sign(&world.authority).unwrap();
    dialer.accept_key_set(&world.runner, &newer).await.unwrap();
    let kept = world.text("/var/lib/gpuaas-agent/identity.json").await;
    let older = set(&world, 5, KeyState::Active).sign(&world.authority).unwrap();
    assert!(dialer.accept_key_set(&world.runner, &older).await.is_err());
    // Nor does a different set replace the present one under the same version.
    let same = set(&world, 6, KeyState::Active).sign(&world.authority).unwrap();
    let _ = dialer.accept_key_set(&world.runner, &same).await;
    assert_eq!(world.runner.key_set().version, 6);
    assert_eq!(world.refusal(&statement(1)).await, Code::EnvelopeInvalid);
    assert_eq!(world.text("/var/lib/gpuaas-agent/identity.json").await, kept);
}

#[tokio::test]
async fn expired_key_set_is_refused_and_accepts_no_task() {
    let world = World::new().await;
    let expired = SigningKeySet { expires_at: now(), ..set(&world, 6, KeyState::Active) };
    let offered = expired.sign(&world.authority).unwrap();
    assert!(world.dialer().accept_key_set(&world.runner, &offered).await.is_err());
    world.runner.set_keys(expired);
    assert_eq!(world.refusal(&statement(1)).await, Code::EnvelopeInvalid);
    assert_eq!(world.runs().await, 0);
}

#[tokio::test]
async fn renewed_key_set_of_the_same_version_is_saved_and_used() {
    let world = World::new().await;
    let dialer = world.dialer();
    let soon = SigningKeySet { expires_at: now().plus(Duration::from_secs(60)), ..set(&world, 6, KeyState::Active) };
    dialer.accept_key_set(&world.runner, &soon.sign(&world.authority).unwrap()).await.unwrap();
    let renewed = set(&world, 6, KeyState::Active);
    dialer.accept_key_set(&world.runner, &renewed.sign(&world.authority).unwrap()).await.unwrap();
    assert_eq!(world.runner.key_set(), renewed);
    // The earlier expiry does not return.
    dialer.accept_key_set(&world.runner, &soon.sign(&world.authority).unwrap()).await.unwrap();
    assert_eq!(world.runner.key_set(), renewed);
}

#[tokio::test]
async fn a_key_set_of_another_authority_is_refused() {
    let world = World::new().await;
    let other_authority = Authority::generate("cp-1", now()).unwrap();
    let forged = set(&world, 9, KeyState::Active).sign(&other_authority).unwrap();
    assert!(world.dialer().accept_key_set(&world.runner, &forged).await.is_err());
    assert_eq!(world.runner.key_set().version, 5);
}

#[tokio::test]
async fn key_set_that_cannot_be_saved_is_not_used() {
    let world = World::new().await;
    let dialer = world.dialer();
    world.host.make_folder("/var/lib/gpuaas-agent/identity.json".into(), 0o700).await.unwrap();
    let newer = set(&world, 6, KeyState::Revoked).sign(&world.authority).unwrap();
    assert!(dialer.accept_key_set(&world.runner, &newer).await.is_err());
    assert_eq!(world.runner.key_set().version, 5);
}

/// Returns a key set of that version that names these authorities.
fn naming(world: &World, version: u64, authorities: &[&Authority]) -> SigningKeySet {
    let authorities = authorities.iter().map(|authority| authority.certificate_pem().to_owned()).collect();
    SigningKeySet { authorities, ..set(world, version, KeyState::Active) }
}

async fn kept(world: &World) -> serde_json::Value {
    serde_json::from_str(&world.text("/var/lib/gpuaas-agent/identity.json").await).unwrap()
}

#[tokio::test]
async fn authorities_of_a_key_set_are_saved_and_trusted() {
    let world = World::new().await;
    let dialer = world.dialer();
    let next = world.authority.successor(now()).unwrap();
    let staged = naming(&world, 6, &[&world.authority, &next]).sign(&world.authority).unwrap();
    dialer.accept_key_set(&world.runner, &staged).await.unwrap();
    let both = format!("{}{}", world.authority.certificate_pem(), next.certificate_pem());
    assert_eq!(kept(&world).await["authority"], both);
    // From now on a set signed by either authority is accepted, also after a restart.
    let active = naming(&world, 7, &[&next, &world.authority]).sign(&next).unwrap();
    dialer.accept_key_set(&world.runner, &active).await.unwrap();
    let only_next = naming(&world, 8, &[&next]).sign(&next).unwrap();
    dialer.accept_key_set(&world.runner, &only_next).await.unwrap();
    assert_eq!(kept(&world).await["authority"], next.certificate_pem());
    let identity: crate::state::Identity = serde_json::from_value(kept(&world).await).unwrap();
    assert_eq!(identity.key_set.open(&identity.authorities().unwrap()).unwrap().version, 8);
    let late = naming(&world, 9, &[&world.authority]).sign(&world.authority).unwrap();
    assert!(dialer.accept_key_set(&world.runner, &late).await.is_err(), "key sets of the former authority are refused");
    assert_eq!(kept(&world).await["authority"], next.certificate_pem());
}

#[tokio::test]
async fn authorities_that_cannot_be_saved_are_not_trusted() {
    let world = World::new().await;
    let dialer = world.dialer();
    world.host.make_folder("/var/lib/gpuaas-agent/identity.json".into(), 0o700).await.unwrap();
    let next = world.authority.successor(now()).unwrap();
    let staged = naming(&world, 6, &[&world.authority, &next]).sign(&world.authority).unwrap();
    assert!(dialer.accept_key_set(&world.runner, &staged).await.is_err());
    let state = dialer.state.lock().await;
    assert_eq!(state.identity.authorities().unwrap(), world.authority.certificates());
}

#[tokio::test]
async fn certificate_of_a_former_authority_is_renewed_once_another_issues() {
    let world = World::new().await;
    let dialer = world.dialer();
    let next = world.authority.successor(now()).unwrap();
    let is_former = async || dialer.state.lock().await.identity.is_of_former_authority().unwrap();
    let staged = naming(&world, 6, &[&world.authority, &next]).sign(&world.authority).unwrap();
    dialer.accept_key_set(&world.runner, &staged).await.unwrap();
    assert!(!is_former().await);
    let active = naming(&world, 7, &[&next, &world.authority]).sign(&next).unwrap();
    dialer.accept_key_set(&world.runner, &active).await.unwrap();
    assert!(is_former().await);
}

//! Changes that follow from successful tasks.

use gpuaas_model::{Code, OperationState};
use gpuaas_planner::{Learned, SecretPart, StepSpec};
use gpuaas_store::SecretRecord;

use crate::{
    kit::{AGAIN, fault, task, times},
    nodes::{done, held},
    site::Site,
};

async fn secret(site: &Site, of: gpuaas_model::WorkloadId, name: &str) -> SecretRecord {
    let mut secrets = site.world.store().read().await.unwrap().secrets_of(of).await.unwrap();
    secrets.retain(|secret| secret.name == name);
    secrets.pop().expect("there is one of that name")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_success_that_its_app_does_not_take_is_a_failure() {
    let site = Site::of(1).await;
    let refusals = [AGAIN, "it is none"].map(|why| Err(Box::new(fault(Code::AnswerInvalid, why))));
    site.world.kit.will_teach("read", refusals);
    let ended = site.deployed(|of| vec![StepSpec { retry: times(9), ..task("read", of, 0) }]).await;
    assert_eq!((ended.operation.state, ended.steps["read"].attempts), (OperationState::NeedsAttention, 2));
    assert_eq!(ended.operation.fault.as_ref().map(|fault| fault.summary.as_str()), Some("it is none"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_a_node_says_it_gave_counts_when_it_lies_here_as_it_says() {
    let site = Site::of(1).await;
    let digest = gpuaas_trust::sha256_hex(b"bytes");
    let given = |sha256: &str| Ok(vec![Learned::Deposited { name: "deposited".to_owned(), sha256: sha256.to_owned() }]);
    // By attempt: not deposited, not deposited with an empty digest, a wrong digest, an unknown name, the right digest.
    let unknown = Ok(vec![Learned::Deposited { name: "unheard-of".to_owned(), sha256: digest.clone() }]);
    site.world.kit.will_teach("read", [given(&digest), given(""), given("another"), unknown, given(&digest)]);
    let (end, act) = held("the third attempt");
    let (wait, second) = held("the fourth attempt");
    site.world.nodes.will_end([done(serde_json::json!({})), done(serde_json::json!({}))]);
    site.world.nodes.will([act, second]);
    let (workload, operation) = site.deploy(|of| vec![StepSpec { retry: times(9), ..task("read", of, 0) }]).await;
    site.until(operation, "read", |step| step.attempts == 3).await;
    let mut stored = secret(&site, workload, "deposited").await;
    stored.sealed = site.world.engine.keys().seal(stored.id, b"bytes").unwrap();
    stored.sha256 = digest;
    let mut tx = site.world.store().begin().await.unwrap();
    tx.put_secret(&stored).await.unwrap();
    tx.commit().await.unwrap();
    end.send(done(serde_json::json!({}))).unwrap();
    wait.send(done(serde_json::json!({}))).unwrap();
    let ended = site.end_of(operation).await;
    assert_eq!((ended.operation.state, ended.steps["read"].attempts), (OperationState::Succeeded, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_composed_of_text_and_of_other_secrets() {
    let site = Site::of(1).await;
    let parts = vec![
        SecretPart::Text("token: ".to_owned()),
        SecretPart::Secret("join".to_owned()),
        SecretPart::Text("\n".to_owned()),
    ];
    site.world.kit.will_teach("start", [Ok(vec![Learned::Composed { name: "config".to_owned(), parts }])]);
    let ended = site.deployed(|of| vec![task("start", of, 0)]).await;
    let plain = async |name: &str| {
        let stored = secret(&site, ended.workload.id, name).await;
        let plain = site.world.engine.keys().unseal(stored.id, &stored.sealed).unwrap();
        assert_eq!(stored.sha256, gpuaas_trust::sha256_hex(&plain));
        String::from_utf8(plain.to_vec()).unwrap()
    };
    let join = plain("join").await;
    assert_eq!((join.len(), plain("config").await), (32, format!("token: {join}\n")));
}

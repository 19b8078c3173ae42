//! Changes that follow from successful tasks.

use gpuaas_model::{Code, OperationState};
use gpuaas_planner::{SecretPart, StepOutput, StepSpec};
use gpuaas_store::SecretRecord;

use crate::{
    kit::{AGAIN, fault, task, times},
    nodes::{done, hold},
    site::Site,
};

async fn secret(site: &Site, of: gpuaas_model::WorkloadId, name: &str) -> SecretRecord {
    let mut secrets = site.engines.store().read().await.unwrap().secrets_of(of).await.unwrap();
    secrets.retain(|secret| secret.name == name);
    secrets.pop().expect("a secret of that name exists")
}

#[tokio::test(flavor = "multi_thread")]
async fn result_that_the_app_refuses_is_a_failure() {
    let site = Site::of(1).await;
    let refusals = [AGAIN, "it is invalid"].map(|why| Err(Box::new(fault(Code::TaskResultInvalid, why))));
    site.engines.kit.set_outputs("read", refusals);
    let ended = site.deploy_and_wait(|of| vec![StepSpec { retry: times(9), ..task("read", of, 0) }]).await;
    assert_eq!((ended.operation.state, ended.steps["read"].attempts), (OperationState::NeedsAttention, 2));
    assert_eq!(ended.operation.fault.as_ref().map(|fault| fault.summary.as_str()), Some("it is invalid"));
}

#[tokio::test(flavor = "multi_thread")]
async fn deposited_secret_must_match_its_reported_digest() {
    let site = Site::of(1).await;
    let digest = gpuaas_trust::sha256_hex(b"bytes");
    let deposited =
        |sha256: &str| Ok(vec![StepOutput::Deposited { name: "deposited".to_owned(), sha256: sha256.to_owned() }]);
    // By attempt: not deposited, not deposited with an empty digest, a wrong digest, an unknown name, the right digest.
    let unknown = Ok(vec![StepOutput::Deposited { name: "unknown".to_owned(), sha256: digest.clone() }]);
    site.engines
        .kit
        .set_outputs("read", [deposited(&digest), deposited(""), deposited("another"), unknown, deposited(&digest)]);
    let (end, reaction) = hold("the third attempt");
    let (wait, second) = hold("the fourth attempt");
    site.engines.nodes.end_tasks([done(serde_json::json!({})), done(serde_json::json!({}))]);
    site.engines.nodes.react([reaction, second]);
    let (workload, operation) = site.deploy(|of| vec![StepSpec { retry: times(9), ..task("read", of, 0) }]).await;
    site.until(operation, "read", |step| step.attempts == 3).await;
    let mut stored = secret(&site, workload, "deposited").await;
    stored.sealed = site.engines.engine.keys().seal(stored.id, b"bytes").unwrap();
    stored.sha256 = digest;
    let mut tx = site.engines.store().begin().await.unwrap();
    tx.put_secret(&stored).await.unwrap();
    tx.commit().await.unwrap();
    end.send(done(serde_json::json!({}))).unwrap();
    wait.send(done(serde_json::json!({}))).unwrap();
    let ended = site.end_of(operation).await;
    assert_eq!((ended.operation.state, ended.steps["read"].attempts), (OperationState::Succeeded, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_is_composed_of_text_and_other_secrets() {
    let site = Site::of(1).await;
    let parts = vec![
        SecretPart::Text("token: ".to_owned()),
        SecretPart::Secret("join".to_owned()),
        SecretPart::Text("\n".to_owned()),
    ];
    site.engines.kit.set_outputs("start", [Ok(vec![StepOutput::Composed { name: "config".to_owned(), parts }])]);
    let ended = site.deploy_and_wait(|of| vec![task("start", of, 0)]).await;
    let plain = async |name: &str| {
        let stored = secret(&site, ended.workload.id, name).await;
        let plain = site.engines.engine.keys().unseal(stored.id, &stored.sealed).unwrap();
        assert_eq!(stored.sha256, gpuaas_trust::sha256_hex(&plain));
        String::from_utf8(plain.to_vec()).unwrap()
    };
    let join = plain("join").await;
    assert_eq!((join.len(), plain("config").await), (32, format!("token: {join}\n")));
}

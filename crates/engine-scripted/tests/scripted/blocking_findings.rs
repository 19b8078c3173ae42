//! Placements on a node of which blocking findings are known.

use gpuaas_engine::{
    CommandError,
    commands::{inspect, placement, workload},
};
use gpuaas_model::{Code, Coded, OperationState, TaskType};
use gpuaas_store::{NodeRecord, Page, WorkloadFilter};
use gpuaas_wire::task::TaskSupport;
use serde_json::{Value, json};

use crate::{
    engines::admin,
    kit::{KIT, call, milestone},
    nodes::done,
    site::Site,
};

/// Stores a preflight of the node with one finding.
async fn find(site: &Site, check: &str, severity: &str) {
    let preflight = json!({ "passed": 9, "findings": [
        { "check": check, "severity": severity, "detail": "it is so", "fix": "change it" },
    ] });
    change(site, |node| node.preflight = Some(serde_json::from_value(preflight).unwrap())).await;
}

async fn change(site: &Site, change: impl FnOnce(&mut NodeRecord)) {
    let mut tx = site.engines.store().begin().await.unwrap();
    let mut node = tx.node(site.nodes[0]).await.unwrap();
    change(&mut node);
    tx.update_node(&node).await.unwrap();
    tx.commit().await.unwrap();
}

async fn offered_reasons(site: &Site) -> Vec<Code> {
    let options = placement::options(&site.engines.engine, &admin(), site.project, KIT, &Page::default()).await;
    options.unwrap().iter().flat_map(|option| &option.reasons).map(|reason| reason.code).collect()
}

fn reasons<T>(refused: Result<T, CommandError>) -> (Code, Vec<Code>) {
    let refused = refused.map(|_| ()).unwrap_err();
    (refused.code(), refused.reasons().iter().map(|reason| reason.code).collect())
}

/// The result of an inspection that finds nothing.
pub(crate) fn clean() -> Value {
    json!({
        "hostname": "gpu-1", "machine_id": "ab", "boot_id": "cd", "os": "Debian", "kernel": "6.1", "arch": "x86_64", "cpus": 8,
        "memory_bytes": 1, "addresses": ["10.0.0.7"], "disks": [], "sandbox": false,
        "preflight": { "passed": 30, "findings": [] },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn blocking_finding_refuses_placements_until_the_node_is_inspected_again() {
    let site = Site::of(1).await;
    let engine = &site.engines.engine;
    find(&site, "swap_on", "warning").await;
    assert_eq!(offered_reasons(&site).await, [], "a warning is no reason");
    find(&site, "port_taken", "blocking").await;
    assert_eq!(offered_reasons(&site).await, [Code::AllocationBlocked]);
    let expected = (Code::PlacementInvalid, vec![Code::AllocationBlocked]);
    assert_eq!(reasons(workload::preview_deploy(engine, &admin(), site.request()).await), expected);
    assert_eq!(reasons(workload::deploy(engine, &admin(), site.request()).await), expected);
    let workloads = site.engines.store().read().await.unwrap().workloads(&WorkloadFilter::default()).await.unwrap();
    assert!(workloads.is_empty(), "a refusal changes nothing");
    let supports_inspection = TaskSupport { task: TaskType::Inspect.as_str().to_owned(), schemas: vec![2] };
    change(&site, |node| node.support.push(supports_inspection)).await;
    site.engines.nodes.end_tasks([done(clean())]);
    inspect::inspect(engine, &admin(), site.nodes[0]).await.unwrap();
    assert_eq!(offered_reasons(&site).await, []);
    let ended = site.deploy_and_wait(|_| vec![milestone("ready")]).await;
    assert_eq!(ended.operation.state, OperationState::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn blocking_finding_refuses_no_resume() {
    let site = Site::of(1).await;
    let failed = site.deploy_and_wait(|_| vec![call("preflight", "fails")]).await;
    assert_eq!(failed.operation.state, OperationState::NeedsAttention);
    find(&site, "port_taken", "blocking").await;
    site.engines.kit.set_plan(|_| vec![milestone("ready")]);
    assert_eq!(site.resume_and_wait(failed.workload.id).await.operation.state, OperationState::Succeeded);
}

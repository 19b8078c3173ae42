//! Drift checks and give-ups that cannot be recorded: full disks, and a ledger whose last line a crash has cut. Nothing is half recorded, and
//! everything continues once it can be recorded.

use std::{fs::File, io::Write, path::Path};

use gpuaas_api_types::Workload;
use gpuaas_client::{Client, GiveUp};
use gpuaas_model::TaskType;

use crate::{
    disk_full::{AGENT_FOLDER, assert_refused, projects_until_full, readiness},
    fleet::Fleet,
    restarts::{assert_succeeds, prepare_deployment},
    world::{CLUSTERS, eventually},
};

const LEDGER: &str = "var/lib/gpuaas-agent/ledger.jsonl";
const CONFIG: &str = "etc/rancher/rke2/config.yaml";

fn project() -> Option<String> {
    Some("research".to_owned())
}

/// Deploys `train` with its agent on the second node.
async fn deploy(client: &Client) {
    let deploy = prepare_deployment(client).await;
    let operation = client.deploy_workload(&deploy).await.expect("accepted").operation.id;
    assert_succeeds(client, &operation).await;
}

async fn workload(client: &Client) -> Workload {
    client.get_workload(project(), "train").await.expect("a workload").workload
}

fn append(path: &Path, bytes: &[u8]) {
    let mut file = File::options().append(true).open(path).expect("a file");
    file.write_all(bytes).expect("written");
}

/// Waits until the platform has written the file again, and checks that it restarted nothing for that.
async fn until_corrected(fleet: &Fleet, client: &Client, written: &str) {
    let config = fleet.node_file(2, CONFIG);
    eventually("the file stays as it was changed", async || {
        std::fs::read_to_string(&config).is_ok_and(|now| now == written)
    })
    .await;
    eventually("the drift stays", async || workload(client).await.drift.is_none()).await;
    assert_eq!(fleet.count_events(2, "start"), 1, "a correction restarts nothing");
}

/// Returns the ids of drift checks of the second node that failed for want of space.
async fn checks_without_space(client: &Client) -> Vec<String> {
    let tasks = client.list_tasks(Some("gpu-2".to_owned()), None).await.expect("tasks").items;
    let has_failed = |task: &gpuaas_api_types::Task| {
        let code = task.outcome.as_ref().map(|outcome| outcome["failure"]["code"].clone());
        task.task_type == TaskType::Rke2Observe.as_str() && code.is_some_and(|code| code == "disk_full")
    };
    tasks.into_iter().filter(has_failed).map(|task| task.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_check_that_a_full_disk_cannot_record_is_refused_and_made_again() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let Some(fleet) = Fleet::start_with_disks(2, &[AGENT_FOLDER]).await else { return };
    let client = fleet.client();
    deploy(&client).await;
    let config = fleet.node_file(2, CONFIG);
    let written = std::fs::read_to_string(&config).expect("the platform wrote it");
    fleet.disk(0).fill();
    append(&config, b"node-label: [by-hand=yes]\n");
    // A restarted agent has no room in its ledger, and hints that its unit was not watched.
    fleet.kill_agent(2);
    let mut refused = Vec::new();
    eventually("no drift check is refused", async || {
        refused = checks_without_space(&client).await;
        !refused.is_empty()
    })
    .await;
    let ledger = std::fs::read_to_string(fleet.disk(0).folder().join("ledger.jsonl")).expect("a ledger");
    let begun = refused.iter().find(|task| ledger.lines().any(|line| line.contains(task.as_str())));
    assert_eq!(begun, None, "a refused check has a line in the ledger");
    assert!(workload(&client).await.drift.is_none(), "nothing was observed");
    assert_ne!(std::fs::read_to_string(&config).expect("readable"), written, "nothing was corrected");

    fleet.disk(0).clear();
    append(&config, b"# and another change, which is hinted\n");
    until_corrected(&fleet, &client, &written).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_check_whose_line_in_the_ledger_is_cut_is_made_again() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let fleet = Fleet::start(2).await;
    let client = fleet.client();
    deploy(&client).await;
    let (config, ledger) = (fleet.node_file(2, CONFIG), fleet.node_file(2, LEDGER));
    let written = std::fs::read_to_string(&config).expect("the platform wrote it");
    // The agent dies while it writes the line.
    fleet.signal_agent(2, "STOP");
    append(&config, b"node-label: [by-hand=yes]\n");
    let lines = std::fs::read_to_string(&ledger).expect("a ledger");
    let begin = lines.lines().rfind(|line| line.contains(r#""line":"begin""#)).expect("a beginning");
    append(&ledger, &begin.as_bytes()[..begin.len() / 2]);
    fleet.kill_agent(2);
    until_corrected(&fleet, &client, &written).await;
    let node = client.get_node("gpu-2").await.expect("a node");
    assert!(node.agent_problem.is_none(), "a cut line was never acknowledged: {:?}", node.agent_problem);
}

#[tokio::test(flavor = "multi_thread")]
async fn give_up_that_a_full_disk_cannot_record_changes_nothing_and_is_accepted_later() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let Some(fleet) = Fleet::start_with_disks(2, &["server-0"]).await else { return };
    let client = fleet.client();
    deploy(&client).await;
    fleet.signal_agent(2, "STOP");
    eventually("the node does not become unreachable", async || {
        client.get_node("gpu-2").await.is_ok_and(|node| node.connectivity == "unreachable")
    })
    .await;
    let checks = async || {
        let preflight = client.get_node("gpu-2").await.expect("a node").preflight;
        preflight.into_iter().flat_map(|of| of.findings).map(|finding| finding.check).collect::<Vec<_>>()
    };
    let unproven = "removal_unproven".to_owned();
    let give_up = GiveUp { nodes: vec!["gpu-2".into()], force: false, reason: Some("burnt down".into()) };
    fleet.disk(0).fill();
    projects_until_full(&client).await;
    assert_refused(client.decommission_giving_up(project(), "train", &give_up).await);
    assert_eq!(workload(&client).await.lifecycle, "running");
    let operations = client.list_operations(project(), Some("train".into()), None).await.expect("listed").items;
    assert!(operations.iter().all(|operation| operation.kind == "deploy"), "{operations:?}");
    assert!(!checks().await.contains(&unproven));

    fleet.disk(0).clear();
    eventually("the control plane does not become ready", async || readiness(&fleet).await.0 == 200).await;
    let accepted = client.decommission_giving_up(project(), "train", &give_up).await.expect("space is free again");
    let operation = async || client.get_operation(&accepted.operation.id).await.expect("an operation").operation;
    eventually("the decommission does not end", async || operation().await.ended_at.is_some()).await;
    let ended = operation().await;
    assert_eq!(ended.state, "succeeded", "{:?}", ended.fault);
    assert!(checks().await.contains(&unproven));
    assert_eq!(workload(&client).await.lifecycle, "decommissioned");
}

//! Full disks of the control plane, the database and a node. A change that needs space is refused with `disk_full` and leaves nothing
//! behind; everything else continues, and refused changes succeed once there is free space.

use std::path::Path;

use gpuaas_api_types::{CreateProject, Problem};
use gpuaas_client::{AuditQuery, Client, ClientError};
use gpuaas_postgres_server::Server;

use crate::{
    fleet::Fleet,
    raw::read_open,
    restarts::{assert_succeeds, prepare_deployment, until_running},
    small_disk::SmallDisk,
    world::{CLUSTERS, eventually, import_request, release},
};

/// Most changes that a filled disk may still accept, because they overwrite blocks that existing files own.
const CHANGES_MAX: usize = 2_000;

pub(crate) fn assert_refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> Box<Problem> {
    let Err(ClientError::Problem(problem)) = answer else { panic!("expected a problem document, got {answer:?}") };
    assert_eq!((problem.code.as_str(), problem.status), ("disk_full", 507), "{problem:?}");
    assert!(problem.next.as_deref().is_some_and(|next| next.starts_with("make room")), "{problem:?}");
    problem
}

/// Creates projects until one is refused; returns the names of those created and the name refused.
pub(crate) async fn projects_until_full(client: &Client) -> (Vec<String>, String) {
    let mut made = Vec::new();
    for number in 0..CHANGES_MAX {
        let name = format!("project-{number}");
        match client.create_project(&CreateProject { name: name.clone() }).await {
            Ok(_) => made.push(name),
            full => {
                assert_refused(full);
                return (made, name);
            }
        }
    }
    panic!("the disk is not full after {CHANGES_MAX} changes");
}

pub(crate) async fn readiness(fleet: &Fleet) -> (u16, String) {
    let answer = read_open(&fleet.ready(), "/readyz?verbose").await;
    (answer.status, answer.body.as_str().expect("a text").to_owned())
}

/// Checks reads while the disk is full.
async fn assert_reads_work(fleet: &Fleet, client: &Client, made: &[String], not_made: &str) {
    let projects: Vec<String> =
        client.list_projects().await.expect("listed").items.into_iter().map(|project| project.name).collect();
    assert!(made.iter().all(|name| projects.contains(name)) && !projects.contains(&not_made.to_owned()));
    client.list_nodes(None, None).await.expect("listed");
    let audit = client.list_audit(&AuditQuery::default()).await.expect("listed").items;
    let target = format!("project/{not_made}");
    assert!(!audit.iter().any(|record| record.target == target), "a refused change is recorded as accepted");
    assert_eq!(read_open(&fleet.ready(), "/livez").await.status, 200);
    client.read_text("/metrics").await.expect("metrics");
}

/// Returns the size, in KiB, of the files directly in the folder; subfolders are not descended into.
fn size_kib(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).expect("a folder").flatten();
    files.map(|file| file.metadata().expect("a file").len()).sum::<u64>() / 1_024
}

/// Returns whether the node's ledger records the end of a task of that type.
async fn has_ended(fleet: &Fleet, client: &Client, node: u8, operation: &str, task_type: &str) -> bool {
    let tasks = client.list_tasks(None, Some(operation.to_owned())).await.expect("tasks").items;
    let ledger = fleet.node_file(node, "var/lib/gpuaas-agent/ledger.jsonl");
    let ledger = std::fs::read_to_string(ledger).expect("a ledger");
    let ends = |id: &str| ledger.lines().any(|line| line.contains(r#""line":"end""#) && line.contains(id));
    tasks.iter().any(|task| task.task_type == task_type && ends(&task.id))
}

#[tokio::test(flavor = "multi_thread")]
async fn control_plane_with_a_full_disk_refuses_changes_serves_reads_and_recovers() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let Some(mut fleet) = Fleet::start_with_disks(2, &["server-0"]).await else { return };
    let client = fleet.client();
    // A release that does not fit leaves no files behind.
    fleet.disk(0).leave_kib(size_kib(release()) / 2);
    assert_refused(client.import_artifacts(&import_request(release())).await);
    let kept: Vec<_> = std::fs::read_dir(fleet.data_dir().join("artifacts")).expect("a folder").flatten().collect();
    let larger = kept.iter().filter(|file| file.file_name().to_string_lossy().contains('#')).count();
    assert_eq!(larger, 0, "a partial artifact remains");
    assert!(client.list_artifacts().await.expect("a list").items.is_empty());
    fleet.disk(0).clear();

    let deploy = prepare_deployment(&client).await;
    let operation = client.deploy_workload(&deploy).await.expect("accepted").operation.id;
    until_running(&client, &operation, "server-1/start").await;
    fleet.disk(0).fill();
    let (made, not_made) = projects_until_full(&client).await;
    let (status, checks) = readiness(&fleet).await;
    assert_eq!(status, 503, "{checks}");
    assert!(checks.contains("[+]store ok") && checks.contains("[-]disk failed"), "{checks}");
    assert_reads_work(&fleet, &client, &made, &not_made).await;
    // Meanwhile the distribution starts, but the control plane cannot record it.
    eventually("the server does not start", async || has_ended(&fleet, &client, 1, &operation, "rke2.start").await)
        .await;
    tokio::time::sleep(std::time::Duration::from_secs(8)).await;
    assert!(fleet.is_running(0), "the control plane exited");
    let detail = client.get_operation(&operation).await.expect("an operation").operation;
    assert_eq!((detail.ended_at, detail.state.as_str()), (None, "running"));
    assert_reads_work(&fleet, &client, &made, &not_made).await;

    fleet.disk(0).clear();
    eventually("the control plane does not become ready", async || readiness(&fleet).await.0 == 200).await;
    client.create_project(&CreateProject { name: not_made }).await.expect("space is free again");
    assert_succeeds(&client, &operation).await;
    assert!(fleet.is_running(0), "the control plane exited");
    assert_eq!(
        (fleet.count_events(1, "start"), fleet.count_events(2, "start")),
        (1, 1),
        "each service is started once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_of_the_database_server_refuses_changes_and_recovers() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(disk) = SmallDisk::at(&folder.path().join("database")) else { return };
    let server = tokio::task::block_in_place(|| Server::start_in(disk.folder(), &["max_wal_size=64MB"], &[]));
    let mut fleet = Fleet::start_on(1, 1, Some(server.fresh_database().await)).await;
    let client = fleet.client();
    disk.fill();
    let (made, not_made) = projects_until_full(&client).await;
    let (status, checks) = readiness(&fleet).await;
    assert_eq!(status, 503, "{checks}");
    assert_reads_work(&fleet, &client, &made, &not_made).await;
    assert!(fleet.is_running(0), "the control plane exited");
    disk.clear();
    eventually("the control plane does not become ready", async || readiness(&fleet).await.0 == 200).await;
    client.create_project(&CreateProject { name: not_made }).await.expect("space is free again");
    assert_eq!(client.ping_node("gpu-1").await.expect("a node").task.state, "succeeded");
    drop(fleet);
    drop(server);
}

/// Folder of the agent's durable state, mounted as a small disk.
pub(crate) const AGENT_FOLDER: &str = "nodes/gpu-2/var/lib/gpuaas-agent";

/// Returns the failed tasks of an operation, each as failure code, task type and task id.
async fn failures(client: &Client, operation: &str) -> Vec<(String, String, String)> {
    let tasks = client.list_tasks(None, Some(operation.to_owned())).await.expect("tasks").items;
    let failed = tasks.into_iter().filter_map(|task| {
        let code = task.outcome?["failure"]["code"].as_str()?.to_owned();
        Some((code, task.task_type, task.id))
    });
    failed.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn node_with_a_full_disk_refuses_tasks_until_space_is_free() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let Some(fleet) = Fleet::start_with_disks(2, &[AGENT_FOLDER]).await else { return };
    let client = fleet.client();
    let deploy = prepare_deployment(&client).await;
    fleet.disk(0).fill();
    // After a restart the agent reads its ledger and still refuses tasks.
    fleet.kill_agent(2);
    let mut operation = String::new();
    eventually("the agent does not reconnect", async || {
        let accepted = client.deploy_workload(&deploy).await.map(|started| operation = started.operation.id);
        accepted.is_ok()
    })
    .await;
    eventually("the operation does not end", async || {
        client.get_operation(&operation).await.is_ok_and(|of| of.operation.ended_at.is_some())
    })
    .await;
    let ended = client.get_operation(&operation).await.expect("an operation").operation;
    let fault = ended.fault.expect("a fault");
    assert_eq!((ended.state.as_str(), fault.code.as_str()), ("needs_attention", "disk_full"));
    assert!(fault.next.contains("free disk space on gpu-2"), "{fault:?}");
    let failed = failures(&client, &operation).await;
    assert!(!failed.is_empty() && failed.iter().all(|(code, ..)| code == "disk_full"), "{failed:?}");
    let ledger = std::fs::read_to_string(fleet.disk(0).folder().join("ledger.jsonl")).expect("a ledger");
    let begun = failed
        .iter()
        .find(|(_, _, task)| ledger.lines().any(|line| line.contains(task.as_str()) && line.ends_with('}')));
    assert_eq!(begun, None, "a refused task has a line in the ledger");

    fleet.disk(0).clear();
    let resumed = client.resume_workload(Some("research".into()), "train").await.expect("resumed").operation.id;
    assert_succeeds(&client, &resumed).await;
    assert_eq!(
        (fleet.count_events(1, "start"), fleet.count_events(2, "start")),
        (1, 1),
        "each service is started once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn artifact_that_does_not_fit_on_a_node_leaves_nothing_and_is_fetched_later() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let Some(fleet) = Fleet::start_with_disks(2, &[AGENT_FOLDER]).await else { return };
    let client = fleet.client();
    let deploy = prepare_deployment(&client).await;
    // Leaves enough space for the ledger but not for the artifact.
    fleet.disk(0).leave_kib(4 * 1_024);
    let operation = client.deploy_workload(&deploy).await.expect("accepted").operation.id;
    let mut failed = Vec::new();
    eventually("the fetch does not fail", async || {
        failed = failures(&client, &operation).await;
        !failed.is_empty()
    })
    .await;
    assert_eq!((failed[0].0.as_str(), failed[0].1.as_str()), ("disk_full", "artifact.fetch"));
    let outcome = client.get_task(&failed[0].2).await.expect("a task").outcome.expect("an outcome");
    let message = outcome["failure"]["message"].as_str().expect("a text").to_owned();
    assert!(message.contains("the node's disk has too little space for"), "{message}");
    let parts = || {
        let staged = std::fs::read_dir(fleet.disk(0).folder().join("artifacts")).expect("a folder").flatten();
        staged.filter(|file| file.path().extension().is_some()).count()
    };
    // Between two attempts, with the disk still as full.
    eventually("a partial file remains", async || parts() == 0).await;
    fleet.disk(0).clear();
    assert_succeeds(&client, &operation).await;
    assert_eq!(parts(), 0, "a partial file remains");
    assert_eq!(
        (fleet.count_events(1, "start"), fleet.count_events(2, "start")),
        (1, 1),
        "each service is started once"
    );
}

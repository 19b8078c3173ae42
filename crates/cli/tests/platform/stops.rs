//! Orderly shutdown of a control plane.

use std::time::Duration;

use futures::future::join_all;
use gpuaas_api_types::CreateProject;
use gpuaas_client::AuditQuery;

use crate::{
    fleet::Fleet,
    raw,
    world::{eventually, token_request},
};

/// Requests at once: more than the audit records one by one.
const SENT: u64 = 100;
/// Well below the time that the control plane gives to requests under way.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn request_in_progress_is_answered_before_shutdown() {
    let mut fleet = Fleet::start(0).await;
    let begun = raw::begin(&fleet.ready(), "/api/v1/projects", "{\"name\":\"late\"}").await;
    let address = fleet.ready()["url"].as_str().and_then(|url| url.strip_prefix("https://")).expect("a URL").to_owned();
    fleet.signal_replica(0, "TERM");
    eventually("it still listens", async || tokio::net::TcpStream::connect(&address).await.is_err()).await;
    // Waits until everything else has ended, which no signal reports. Too short a wait only makes the test weaker.
    tokio::time::sleep(SHUTDOWN_WAIT).await;
    assert_eq!(begun.finish().await, "HTTP/1.1 201 Created");
    fleet.await_replica_exit(0);
    fleet.start_server();
    let projects = fleet.client().list_projects().await.expect("projects").items;
    assert!(projects.iter().any(|project| project.name == "late"), "{projects:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_refusals_are_recorded_at_shutdown() {
    let mut fleet = Fleet::start(0).await;
    fleet.client().create_project(&CreateProject { name: "ours".into() }).await.expect("made");
    let ask = token_request("viewer", "viewer", Some("ours"));
    let secret = fleet.client().create_token(&ask).await.expect("made").secret;
    let viewer = fleet.client_with(0, &secret);
    let theirs = CreateProject { name: "theirs".into() };
    let refused = join_all((0..SENT).map(|_| viewer.create_project(&theirs))).await;
    assert!(refused.iter().all(Result::is_err), "a viewer created a project");
    fleet.signal_replica(0, "TERM");
    fleet.await_replica_exit(0);
    fleet.start_server();
    let records = fleet.client().list_audit(&AuditQuery::default()).await.expect("records").items;
    let refused: Vec<_> = records.iter().filter(|record| record.actor == "viewer").collect();
    let summed: u64 = refused.iter().filter_map(|record| record.metadata["count"].as_u64()).sum();
    let single = refused.iter().filter(|record| record.action == "project.create").count() as u64;
    assert!(summed > 0 && single > 0, "{summed} {single}");
    assert_eq!(summed + single, SENT);
}

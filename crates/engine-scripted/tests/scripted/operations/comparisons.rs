//! Comparisons of desired and observed state.

use std::sync::atomic::Ordering;

use gpuaas_engine::{
    Caller,
    commands::diff::{self, Comparison},
};
use gpuaas_model::{Code, Coded, MemberEvent, Principal, Role, WorkloadId};
use gpuaas_planner::{StepSpec, WorkloadView};
use gpuaas_wire::task::TaskFailure;
use serde_json::json;

use crate::{
    engines::admin,
    kit::{call, milestone, needs, task},
    site::Site,
};

/// Steps after which every member is ready.
pub(super) fn ready(of: &WorkloadView) -> Vec<StepSpec> {
    let of_member = |at: usize| {
        let (first, second) = (format!("{at}/prepare"), format!("{at}/join"));
        let prepare = StepSpec { on_first_start: Some(MemberEvent::Prepare), ..task(&first, of, at) };
        let join = StepSpec {
            on_first_start: Some(MemberEvent::Join),
            on_success: Some(MemberEvent::BecameReady),
            ..task(&second, of, at)
        };
        [prepare, needs(join, &[&first])]
    };
    (0..of.members.len()).flat_map(of_member).collect()
}

async fn compare(site: &Site, id: WorkloadId) -> Comparison {
    diff::compare(&site.engines.engine, &admin(), id).await.expect("it is compared")
}

fn fields(comparison: &Comparison) -> Vec<&str> {
    comparison.differences.iter().map(|difference| difference.field.as_str()).collect()
}

fn observations(site: &Site) -> u32 {
    site.engines.kit.observations.load(Ordering::SeqCst)
}

#[tokio::test(flavor = "multi_thread")]
async fn workload_as_wanted_has_no_difference_and_a_viewer_sees_that() {
    let site = Site::of(2).await;
    let id = site.deploy_and_wait(ready).await.workload.id;
    let known = admin();
    let principal = Principal { role: Role::Viewer, project: Some(site.project), ..known.principal };
    let viewer = Caller { principal, ..admin() };
    let comparison = diff::compare(&site.engines.engine, &viewer, id).await.expect("a viewer may");
    assert_eq!((fields(&comparison), comparison.unknown.len()), (vec![], 0));
    let command = format!("files; gpuaas workload reconcile {}", comparison.workload.name);
    assert_eq!((observations(&site), comparison.not_compared), (1, vec![command]));
    assert!(comparison.operation.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn deviations_of_members_nodes_and_cluster_are_listed_together() {
    let site = Site::of(2).await;
    let id = site.deploy_and_wait(ready).await.workload.id;
    *site.engines.kit.observed.lock().unwrap() = Ok(json!(["a label is gone"]));
    site.disconnect(1).await;
    site.mark_unreachable(1).await;
    let comparison = compare(&site, id).await;
    assert_eq!(fields(&comparison), ["node", "cluster"]);
    let node = &comparison.differences[0];
    assert_eq!((node.member.as_deref(), node.observed.as_str()), (Some("unit-2"), "unreachable"));
    assert!(node.since.is_some() && node.action.command.is_some());
    let [unknown] = &comparison.unknown[..] else { panic!("{:?}", comparison.unknown) };
    assert_eq!(unknown.member.as_deref(), Some("unit-2"), "its services cannot be seen");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_did_not_become_ready_differ() {
    let site = Site::of(1).await;
    let id = site.deploy_and_wait(|_| vec![milestone("ready")]).await.workload.id;
    let comparison = compare(&site, id).await;
    assert_eq!(fields(&comparison), ["state"]);
    let state = &comparison.differences[0];
    assert_eq!((state.desired.as_str(), state.observed.as_str()), ("ready", "pending"));
    let repair = "gpuaas workload repair train --scope member --member unit-1";
    assert_eq!(state.action.command.as_deref(), Some(repair));
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_that_fails_or_says_nothing_is_unknown_and_never_agreement() {
    let site = Site::of(1).await;
    let id = site.deploy_and_wait(ready).await.workload.id;
    let unknown = async || {
        let comparison = compare(&site, id).await;
        assert_eq!(fields(&comparison), [""; 0]);
        let [unknown] = &comparison.unknown[..] else { panic!("{:?}", comparison.unknown) };
        unknown.why.clone()
    };
    *site.engines.kit.observed.lock().unwrap() = Err(TaskFailure::new(Code::ClusterUnreachable, "no route"));
    assert_eq!(unknown().await, "no route (cluster_unreachable)");
    *site.engines.kit.observed.lock().unwrap() = Ok(json!({}));
    assert_eq!(unknown().await, "unreadable (internal)");
    site.engines.kit.is_silent.store(true, Ordering::SeqCst);
    assert_eq!(unknown().await, "it did not answer within 10 s (cluster_unreachable)");
}

#[tokio::test(flavor = "multi_thread")]
async fn comparisons_of_one_workload_wait_in_a_short_queue() {
    let site = Site::of(1).await;
    let id = site.deploy_and_wait(ready).await.workload.id;
    site.engines.kit.is_silent.store(true, Ordering::SeqCst);
    let engine = &site.engines.engine;
    let many = futures::future::join_all((0..20).map(|_| async {
        let admin = admin();
        diff::compare(engine, &admin, id).await.map(drop).map_err(|refused| refused.code())
    }));
    let answers = many.await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    assert!(answers.iter().flat_map(|answer| answer.err()).all(|code| code == Code::RateLimited), "{answers:?}");
    assert_eq!(observations(&site), 1, "one call at a time");
    site.engines.kit.is_silent.store(false, Ordering::SeqCst);
    compare(&site, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_of_a_workload_that_does_not_run_is_not_asked() {
    let site = Site::of(1).await;
    let (id, deploy) = site.deploy(|_| vec![call("waits", "hangs")]).await;
    site.until(deploy, "waits", |step| step.attempts > 0).await;
    let comparison = compare(&site, id).await;
    assert_eq!(comparison.operation.as_ref().map(|operation| operation.id), Some(deploy));
    let watch = format!("gpuaas operation watch {deploy}");
    assert_eq!(comparison.differences[0].action.command.as_deref(), Some(watch.as_str()));
    assert!(comparison.unknown[0].why.contains("is deploying"), "{:?}", comparison.unknown);
    site.cancel(deploy).await;
    site.end_of(deploy).await;
    site.decommission_and_wait(id, |of| {
        let step = task("remove", of, 0);
        vec![StepSpec { on_first_start: Some(MemberEvent::Remove), on_success: Some(MemberEvent::Removed), ..step }]
    })
    .await;
    let comparison = compare(&site, id).await;
    assert_eq!((fields(&comparison), comparison.unknown.len()), (vec![], 0), "nothing is wanted of it");
    assert_eq!(observations(&site), 0);
}

//! Followed clusters: what they show changes the health of members, and who follows them.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use gpuaas_engine::Engine;
use gpuaas_model::{Code, EventKind, Health, MemberEvent, Timestamp, WorkloadId};
use gpuaas_planner::{StepSpec, WorkloadView, judgments::Source};
use gpuaas_store::MemberRecord;
use gpuaas_wire::task::UnitReport;

use crate::{
    engines::eventually,
    followed::FollowedCluster,
    kit::{needs, task},
    site::{Site, enrolled},
};

/// A running workload with two ready members, whose cluster is followed through the first one.
struct Watched {
    site: Site,
    id: WorkloadId,
}

impl Watched {
    async fn new() -> Self {
        let site = Site::of(2).await;
        let id = site.deploy_and_wait(ready).await.workload.id;
        site.engines.kit.cluster.is_followed.store(true, Ordering::SeqCst);
        let watched = Self { site, id };
        watched.watch(&watched.site.engines.engine);
        watched.until_open(1).await;
        watched
    }

    fn watch(&self, engine: &Arc<Engine>) {
        let engine = engine.clone();
        tokio::spawn(async move { engine.watch_clusters().await });
    }

    fn cluster(&self) -> &FollowedCluster {
        &self.site.engines.kit.cluster
    }

    fn now(&self) -> Timestamp {
        self.site.engines.engine.ports().clock.now()
    }

    async fn until_open(&self, number: usize) {
        eventually("the number of followers is another", async || self.cluster().open() == number).await;
    }

    async fn members(&self) -> Vec<MemberRecord> {
        self.site.engines.store().read().await.unwrap().members_of(self.id).await.unwrap()
    }

    async fn workload_health(&self) -> Health {
        self.site.engines.store().read().await.unwrap().workload(self.id).await.unwrap().health
    }

    async fn fault(&self, member: usize) -> Option<String> {
        self.members().await[member].fault.as_ref().map(|fault| fault.code.clone())
    }

    async fn until_fault(&self, member: usize, code: Option<Code>) {
        let expected = code.map(|code| code.to_string());
        let failure = format!("the fault of member {member} does not become {expected:?}");
        eventually(&failure, async || self.fault(member).await == expected).await;
    }

    /// Lets the second member's node report its unit.
    async fn unit(&self, active: &str) {
        let unit = UnitReport {
            unit: "unit.service".to_owned(),
            active: active.to_owned(),
            sub: String::new(),
            result: String::new(),
            n_restarts: 0,
            exec_main_status: 0,
            since: Timestamp::from_millis(1),
        };
        self.site.engines.engine.units_changed(enrolled(self.site.nodes[1]), &[unit]).await.unwrap();
    }
}

/// Steps after which every member is ready.
fn ready(of: &WorkloadView) -> Vec<StepSpec> {
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

/// Steps after which every member is removed.
fn remove(of: &WorkloadView) -> Vec<StepSpec> {
    let step = |at: usize| StepSpec {
        on_first_start: Some(MemberEvent::Remove),
        on_success: Some(MemberEvent::Removed),
        ..task(&format!("remove-{at}"), of, at)
    };
    (0..of.members.len()).map(step).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn member_that_its_cluster_shows_as_unwell_for_ten_seconds_is_degraded_until_it_recovers() {
    let watched = Watched::new().await;
    let (began, events) = (watched.now(), watched.site.count_events(EventKind::MemberChanged).await);
    watched.cluster().shows_unwell(&["unit-2"]);
    watched.until_fault(1, Some(Code::KubeNodeNotReady)).await;
    let member = &watched.members().await[1];
    assert!(member.updated_at.since(began) >= Duration::from_secs(10), "{} after {began}", member.updated_at);
    assert_eq!((member.health, watched.workload_health().await), (Health::Degraded, Health::Degraded));
    assert_eq!(watched.fault(0).await, None);
    watched.cluster().shows_unwell(&[]);
    watched.until_fault(1, None).await;
    assert_eq!(watched.members().await[1].health, Health::Healthy);
    eventually("the workload stays unwell", async || watched.workload_health().await == Health::Healthy).await;
    assert_eq!(watched.site.count_events(EventKind::MemberChanged).await, events + 2, "one for each change");
}

#[tokio::test(flavor = "multi_thread")]
async fn judgments_by_unit_node_and_cluster_do_not_overwrite_each_other() {
    let watched = Watched::new().await;
    watched.cluster().shows_unwell(&["unit-2"]);
    watched.until_fault(1, Some(Code::KubeNodeNotReady)).await;
    watched.unit("failed").await;
    assert_eq!(watched.fault(1).await.as_deref(), Some("cluster_not_ready"), "the unit explains its cluster");
    watched.site.disconnect(1).await;
    watched.site.mark_unreachable(1).await;
    assert_eq!(watched.fault(1).await.as_deref(), Some("node_unreachable"), "the node explains both");
    watched.site.reconnect(1).await;
    assert_eq!(watched.fault(1).await.as_deref(), Some("cluster_not_ready"), "its unit has not reported yet");
    watched.unit("active").await;
    assert_eq!(watched.fault(1).await.as_deref(), Some("kube_node_not_ready"));
    watched.cluster().shows_unwell(&[]);
    watched.until_fault(1, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_that_does_not_answer_degrades_the_member_that_leads_to_it_after_thirty_seconds() {
    let watched = Watched::new().await;
    watched.cluster().shows_unwell(&["unit-2"]);
    watched.until_fault(1, Some(Code::KubeNodeNotReady)).await;
    let began = watched.now();
    watched.cluster().fails(Code::ClusterUnreachable);
    watched.until_fault(0, Some(Code::ClusterUnreachable)).await;
    let member = &watched.members().await[0];
    assert!(member.updated_at.since(began) >= Duration::from_secs(30), "{} after {began}", member.updated_at);
    assert_eq!(
        watched.fault(1).await.as_deref(),
        Some("kube_node_not_ready"),
        "a cluster that does not answer clears nothing"
    );
    watched.cluster().shows_unwell(&[]);
    watched.until_fault(0, None).await;
    watched.until_fault(1, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn follower_ends_with_the_connection_of_its_node_and_begins_again_with_the_next() {
    let watched = Watched::new().await;
    watched.cluster().shows_unwell(&["unit-2"]);
    watched.until_fault(1, Some(Code::KubeNodeNotReady)).await;
    watched.site.disconnect(0).await;
    watched.until_open(0).await;
    watched.cluster().shows_unwell(&[]);
    watched.site.mark_unreachable(0).await;
    assert_eq!(watched.fault(1).await.as_deref(), Some("kube_node_not_ready"), "no replica follows its cluster");
    watched.site.reconnect(0).await;
    watched.until_open(1).await;
    watched.until_fault(1, None).await;
    watched.until_fault(0, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_replica_that_holds_the_channel_follows() {
    let watched = Watched::new().await;
    // Its clock is ahead, so that its connection is the newer one.
    let other = watched.site.engines.later().await;
    watched.watch(&other);
    // The other replica reads all running workloads when it begins.
    watched.cluster().shows_unwell(&["unit-2"]);
    watched.until_fault(1, Some(Code::KubeNodeNotReady)).await;
    assert_eq!((watched.cluster().open(), watched.cluster().begun()), (1, 1));
    // When the node connects there, the other replica follows, and the first one ends when it next updates its followers.
    watched.site.reconnect_to(&other, 0).await;
    eventually("the other replica does not follow", async || watched.cluster().begun() == 2).await;
    watched.until_open(1).await;
    watched.cluster().shows_unwell(&[]);
    watched.until_fault(1, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_of_a_workload_that_is_removed_is_not_followed_any_more() {
    let watched = Watched::new().await;
    watched.cluster().shows_unwell(&["unit-2"]);
    watched.until_fault(1, Some(Code::KubeNodeNotReady)).await;
    watched.site.decommission_and_wait(watched.id, remove).await;
    watched.until_open(0).await;
    let forgotten = |member: &MemberRecord| member.judgment_of(Source::Cluster).fault.is_none();
    assert!(watched.members().await.iter().all(forgotten), "a removed member has no judgment");
}

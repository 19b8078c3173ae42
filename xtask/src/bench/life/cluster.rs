//! A workload on sandbox nodes, to which an agent is added and from which it is removed; each operation with the time of its parts.

use std::{
    pin::Pin,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use camino::Utf8Path;
use futures::{Stream, StreamExt};
use gpuaas_api_types::{
    AddMembers, CreateAllocation, CreateProject, Deploy, Event, ImportRelease, StartOperation, Started, Step,
};
use gpuaas_client::{Client, ClientError};
use gpuaas_model::Timestamp;
use serde_json::{Value, json};

/// Nodes of the server, of the agent that stays, and of the one that is added and removed.
const SERVER_NODE: &str = "demo-1";
pub(super) const AGENT_NODE: &str = "demo-2";
const MOVED_NODE: &str = "demo-3";

const APP: &str = "rke2";
const PROJECT: &str = "bench";
const WORKLOAD: &str = "train";
/// Longest wait for an event, and for allocations.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Interval at which the allocations are read, before anything is measured.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// An event stream.
pub(super) type Events = Pin<Box<dyn Stream<Item = Result<Event, ClientError>> + Send>>;

/// A deployed workload.
pub(super) struct Cluster {
    client: Client,
    /// Allocation of the node that is added and removed.
    moved: String,
}

/// Durations of an operation.
pub(super) struct OperationTimes {
    /// From the request until the client has the event of the end.
    pub(super) whole: Duration,
    /// The part in which a task on a node or a call to the cluster runs.
    outside: Duration,
    /// The part of that in which the distribution starts, stops, drains or joins.
    distribution: Duration,
}

impl OperationTimes {
    /// The part in which nothing but the platform works.
    pub(super) fn platform(&self) -> Duration {
        self.whole.saturating_sub(self.outside)
    }

    /// The part that is left without the distribution's.
    pub(super) fn platform_of_main_job(&self) -> Duration {
        self.whole.saturating_sub(self.distribution)
    }

    fn of(whole: Duration, steps: &[Step]) -> Self {
        let covered_by =
            |is_it: fn(&str) -> bool| covered(steps.iter().filter(|step| is_it(&step.key)).filter_map(span));
        Self { whole, outside: covered_by(is_outside), distribution: covered_by(is_distribution) }
    }
}

impl Cluster {
    /// Imports the release and deploys a server and an agent.
    pub(super) async fn deploy(client: Client, release: &Utf8Path) -> anyhow::Result<Self> {
        let source = release.to_string();
        let import = ImportRelease { app: APP.to_owned(), version: None, source, sums_sha256: None, signature: None };
        client.import_artifacts(&import).await.context("importing the release")?;
        client.create_project(&CreateProject { name: PROJECT.to_owned() }).await?;
        let server = allocate(&client, SERVER_NODE).await?;
        let agent = allocate(&client, AGENT_NODE).await?;
        let cluster = Self { moved: allocate(&client, MOVED_NODE).await?, client };
        cluster.await_allocations().await?;
        let deploy = Deploy {
            project: Some(PROJECT.to_owned()),
            app: APP.to_owned(),
            version: None,
            name: WORKLOAD.to_owned(),
            placement: json!({ "server_allocation_id": server, "agent_allocation_ids": [agent] }),
            config: Value::Null,
        };
        cluster.timed(cluster.client.deploy_workload(&deploy)).await.context("deploying")?;
        Ok(cluster)
    }

    /// Adds the agent.
    pub(super) async fn add(&self) -> anyhow::Result<OperationTimes> {
        let placement = json!({ "agent_allocation_ids": [self.moved] });
        let request = AddMembers { app: APP.to_owned(), placement };
        self.timed(self.client.add_members(Some(PROJECT.to_owned()), WORKLOAD, &request))
            .await
            .context("adding an agent")
    }

    /// Removes it again.
    pub(super) async fn remove(&self) -> anyhow::Result<OperationTimes> {
        let member = self.member_on(MOVED_NODE).await?;
        let parameters = [("member".to_owned(), Value::from(member))].into_iter().collect();
        let request = StartOperation { app: APP.to_owned(), kind: "remove_member".to_owned(), parameters };
        let project = Some(PROJECT.to_owned());
        let started = self.client.start_operation(project, WORKLOAD, &request, None);
        self.timed(started).await.context("removing an agent")
    }

    /// Name of the member on a node.
    pub(super) async fn member_on(&self, node: &str) -> anyhow::Result<String> {
        let detail = self.client.get_workload(Some(PROJECT.to_owned()), WORKLOAD).await?;
        let found = detail.members.into_iter().find(|member| member.node_name == node && member.state != "removed");
        Ok(found.with_context(|| format!("{node} has no member"))?.name)
    }

    /// Follows the events of the project.
    pub(super) async fn events_of_project(&self) -> anyhow::Result<Events> {
        Ok(Box::pin(self.client.follow_new_events(Some(PROJECT.to_owned())).await?))
    }

    /// Follows the events of the platform.
    pub(super) async fn events_of_platform(&self) -> anyhow::Result<Events> {
        Ok(Box::pin(self.client.follow_new_events(None).await?))
    }

    /// Sends the request and waits until its operation has succeeded.
    async fn timed(
        &self,
        request: impl Future<Output = Result<Started, ClientError>>,
    ) -> anyhow::Result<OperationTimes> {
        let mut events = self.events_of_project().await?;
        let began = Instant::now();
        let id = request.await?.operation.id;
        let has_ended = |event: &Event| event.kind == "operation.ended" && event.subject_id == id;
        let ended = wait_for(&mut events, "the end of the operation", has_ended).await?;
        let whole = began.elapsed();
        let detail = self.client.get_operation(&id).await?;
        ensure!(ended.data["state"] == "succeeded", "the operation ended otherwise: {:?}", detail.operation.fault);
        Ok(OperationTimes::of(whole, &detail.steps))
    }

    async fn await_allocations(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let allocations = self.client.list_allocations(Some(PROJECT.to_owned()), None).await?.items;
            if allocations.iter().all(|allocation| allocation.state == "active") {
                return Ok(());
            }
            ensure!(began.elapsed() < WAIT_MAX, "the allocations did not become active in time");
            tokio::time::sleep(POLL_EVERY).await;
        }
    }
}

async fn allocate(client: &Client, node: &str) -> anyhow::Result<String> {
    let request = CreateAllocation { project: PROJECT.to_owned(), node: node.to_owned() };
    Ok(client.create_allocation(&request).await?.id)
}

/// Returns the next event that is the awaited one.
pub(super) async fn wait_for(
    events: &mut Events,
    what: &str,
    mut is_it: impl FnMut(&Event) -> bool,
) -> anyhow::Result<Event> {
    let wait = async {
        loop {
            let event = events.next().await.context("the event stream ended")??;
            if is_it(&event) {
                return anyhow::Ok(event);
            }
        }
    };
    let waited = tokio::time::timeout(WAIT_MAX, wait).await;
    waited.with_context(|| format!("{what} was not seen within {} s", WAIT_MAX.as_secs()))?
}

/// Start and end of a step in milliseconds, if it ran.
fn span(step: &Step) -> Option<(i64, i64)> {
    let millis = |at: &Option<String>| at.as_deref()?.parse().ok().map(Timestamp::as_millis);
    Some((millis(&step.started_at)?, millis(&step.ended_at)?))
}

/// Time that the spans cover, however they overlap.
fn covered(spans: impl Iterator<Item = (i64, i64)>) -> Duration {
    let mut spans: Vec<(i64, i64)> = spans.collect();
    spans.sort_unstable();
    let (mut covered, mut until) = (0, i64::MIN);
    for (start, end) in spans {
        covered += (end - start.max(until)).max(0);
        until = until.max(end);
    }
    Duration::from_millis(u64::try_from(covered).unwrap_or_default())
}

/// Returns true for a step with a task or a call: the others only write the platform's own rows.
fn is_outside(key: &str) -> bool {
    key.contains('/') || key == "api_ready"
}

/// Returns true for a step in which the distribution or its cluster works.
fn is_distribution(key: &str) -> bool {
    const OF_MEMBERS: [&str; 7] =
        ["/start", "/wait-ready", "/cordon", "/drain", "/stop", "/delete-kube-node", "/uninstall"];
    key == "api_ready" || OF_MEMBERS.iter().any(|name| key.ends_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(key: &str, started_at: &str, ended_at: &str) -> Step {
        let at = |time: &str| format!("2026-07-01T10:00:{time}Z");
        serde_json::from_value(json!({
            "key": key, "phase": "p", "state": "succeeded", "attempts": 1, "started_at": at(started_at), "ended_at": at(ended_at),
        }))
        .expect("a valid step")
    }

    #[test]
    fn share_of_the_platform_is_what_no_task_and_no_call_covers() {
        let steps = [
            step("placement", "00.000", "00.100"),
            step("api_ready", "00.100", "00.200"),
            step("agent-2/install", "00.200", "00.500"),
            step("agent-2/start", "00.400", "02.000"),
            step("agent-2/wait-ready", "02.100", "02.200"),
            step("ready", "02.200", "02.300"),
        ];
        let took = OperationTimes::of(Duration::from_millis(2_400), &steps);
        assert_eq!(took.platform(), Duration::from_millis(2_400 - 2_000));
        assert_eq!(took.platform_of_main_job(), Duration::from_millis(2_400 - 1_800));
    }

    #[test]
    fn every_step_of_a_removal_that_waits_for_the_distribution_counts_as_its_own() {
        for key in ["cordon", "drain", "stop", "delete-kube-node", "uninstall"] {
            assert!(is_distribution(&format!("agent-2/{key}")), "{key}");
        }
        assert!(!is_distribution("agent-2/residue") && is_outside("agent-2/residue"));
        assert!(!is_outside("removed") && !is_distribution("removed"));
    }
}

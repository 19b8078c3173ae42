//! Follows the clusters of running workloads, and turns what they show into the health of members and into drift ([`Engine::drift_found`]).
//!
//! A cluster is followed through one node, by the replica that holds the channel of this node: no other replica relays its tunnel. When the
//! replica dies, the node connects to another one, which follows from then on. Two replicas never write for one cluster, because each checks
//! the node's session in the transaction that writes. While no replica follows a cluster, the health and drift that were recorded last stay:
//! nothing is known of a cluster that is not asked.

mod drift;
mod follower;
mod target;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use gpuaas_model::{EventKind, NodeId, ProjectId, StreamName, WorkloadId};
use gpuaas_store::{Change, EventRecord, Page, StoreError};
use tokio::sync::{Notify, broadcast::error::RecvError};
use tokio_util::sync::DropGuard;

use follower::Follower;
use target::{Followable, Target};

use crate::{
    engine::{Engine, STORE_RETRY},
    rows::running_workloads,
};

/// Changes of rows within this time are handled together: an operation writes several events per second.
const BATCH_FOR: Duration = Duration::from_secs(1);
/// Interval of the sweep that covers lost hints.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

impl Engine {
    /// Follows the clusters for which this replica is responsible, until the engine stops.
    pub async fn watch_clusters(self: &Arc<Self>) {
        let mut changes = self.store().changes();
        let mut watch = ClusterWatch { engine: self.clone(), followed: BTreeMap::new(), changed: Changed::default() };
        let sleep = |time| self.ports().runtime.sleep_until(self.ports().clock.now().plus(time));
        let (mut sweep, mut batch) = (sleep(Duration::ZERO), sleep(BATCH_FOR));
        // True while a sweep is due because hints were missed: one sweep covers all of them.
        let mut has_missed = false;
        loop {
            tokio::select! {
                biased;
                () = self.stopping().cancelled() => return,
                () = &mut sweep => {
                    has_missed = false;
                    sweep = sleep(if watch.sweep().await { SWEEP_EVERY } else { STORE_RETRY });
                }
                () = &mut batch, if !watch.changed.is_empty() => {
                    watch.apply_changes().await;
                    batch = sleep(BATCH_FOR);
                }
                change = changes.recv() => {
                    let was_empty = watch.changed.is_empty();
                    match change {
                        Ok(Change::Event { stream: StreamName::Project(project), sequence }) => {
                            watch.changed.events.entry(project).or_insert(sequence.saturating_sub(1));
                        }
                        Ok(Change::Node(node)) => {
                            watch.changed.nodes.insert(node);
                        }
                        Ok(
                            Change::Event { .. }
                            | Change::Operation(_)
                            | Change::Token(_)
                            | Change::Keys
                            | Change::Sealing,
                        ) => {}
                        Ok(Change::Missed) | Err(RecvError::Lagged(_)) if has_missed => {}
                        Ok(Change::Missed) | Err(RecvError::Lagged(_)) => {
                            has_missed = true;
                            sweep = sleep(BATCH_FOR);
                        }
                        Err(RecvError::Closed) => return,
                    }
                    if was_empty && !watch.changed.is_empty() {
                        batch = sleep(BATCH_FOR);
                    }
                }
            }
        }
    }
}

/// Rows that changed since followers were last updated.
#[derive(Default)]
struct Changed {
    /// The last event before the changes, by project.
    events: BTreeMap<ProjectId, u64>,
    nodes: BTreeSet<NodeId>,
}

impl Changed {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.nodes.is_empty()
    }
}

/// The followers of this replica.
struct ClusterWatch {
    engine: Arc<Engine>,
    followed: BTreeMap<WorkloadId, Followed>,
    changed: Changed,
}

/// A follower that runs here. It ends when this is dropped.
struct Followed {
    target: Target,
    /// Wakes the follower, because rows changed by which it judges.
    rows_changed: Arc<Notify>,
    _end: DropGuard,
}

impl ClusterWatch {
    /// Updates the followers of every workload that runs or is followed. Returns false if rows could not be read.
    async fn sweep(&mut self) -> bool {
        let mut workloads: BTreeSet<_> = self.followed.keys().copied().collect();
        match running_workloads(self.engine.store()).await {
            Ok(running) => workloads.extend(running.iter().map(|workload| workload.id)),
            Err(error) => {
                tracing::warn!(%error, "running workloads could not be read; their clusters are not followed yet");
                return false;
            }
        }
        self.update_followers(workloads).await
    }

    /// Updates the followers of the workloads that changed. The sweep repeats what could not be read.
    async fn apply_changes(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        match self.workloads_of(changed).await {
            Ok(workloads) => {
                self.update_followers(workloads).await;
            }
            Err(error) => {
                tracing::warn!(%error, "changes of followed clusters could not be read; the sweep finds them")
            }
        }
    }

    async fn workloads_of(&self, changed: Changed) -> Result<BTreeSet<WorkloadId>, StoreError> {
        let mut workloads = BTreeSet::new();
        for (project, mut after) in changed.events {
            loop {
                let mut reader = self.engine.store().read_once().await?;
                let events = reader.events(StreamName::Project(project), after, Page::LIMIT_MAX).await?;
                workloads.extend(events.iter().filter_map(workload_of));
                match events.last() {
                    Some(last) if events.len() == Page::LIMIT_MAX as usize => after = last.sequence,
                    Some(_) | None => break,
                }
            }
        }
        for node in changed.nodes {
            let members = self.engine.store().read_once().await?.members_on(node).await?;
            workloads.extend(members.iter().map(|member| member.workload));
        }
        Ok(workloads)
    }

    /// Begins, wakes or ends the followers of these workloads. Returns false if rows could not be read.
    async fn update_followers(&mut self, workloads: BTreeSet<WorkloadId>) -> bool {
        let mut is_complete = true;
        for workload in workloads {
            match target::of(&self.engine, workload).await {
                Ok(Some(followable)) => self.follow(workload, followable),
                Ok(None) => drop(self.followed.remove(&workload)),
                Err(error) => {
                    tracing::warn!(%workload, %error, "could not read whether the cluster must be followed");
                    is_complete = false;
                }
            }
        }
        is_complete
    }

    /// Wakes the follower, or begins one if there is none for this target.
    fn follow(&mut self, workload: WorkloadId, Followable { target, app, effects, view }: Followable) {
        if let Some(followed) = self.followed.get(&workload).filter(|followed| followed.target == target) {
            followed.rows_changed.notify_one();
            return;
        }
        let (rows_changed, end) = (Arc::new(Notify::new()), self.engine.stopping().child_token());
        let follower =
            Follower::new(self.engine.clone(), (workload, target.node), app, rows_changed.clone(), end.clone());
        let followed = Followed { target, rows_changed, _end: end.drop_guard() };
        // An earlier follower ends here.
        drop(self.followed.insert(workload, followed));
        self.engine.ports().runtime.spawn("cluster follower", Box::pin(follower.run(effects, view)));
    }
}

/// Returns the workload that an event is about. Steps and tasks change nothing by which clusters are followed or judged.
fn workload_of(event: &EventRecord) -> Option<WorkloadId> {
    match event.kind {
        EventKind::StepChanged | EventKind::TaskChanged => None,
        _ if event.subject_kind == "workload" => event.subject_id.parse().ok(),
        _ => event.data.get("workload")?.as_str()?.parse().ok(),
    }
}

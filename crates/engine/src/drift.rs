//! Detects drift of running workloads, and lets the platform reconcile them.
//!
//! A node only hints that something may have changed; then a drift check reads its state with a task that changes nothing. The differences
//! are part of the workload's row. `planner::drift` decides whether and when the platform reconciles; `commands::workload` starts the
//! operation. One follower per workload does this in sequence, so that a change is checked after the operation that explains it has ended.
//!
//! A follower that ends with its process loses nothing: agents send a hint for each unit when their observation starts, which is at every
//! connection and after every operation, and a replica that starts or takes over follows every workload whose row has a difference.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::{
    Code, Coded, Connectivity, CorrelationId, EnrolledNode, Fault, Lifecycle, MemberId, OperationKind, ProjectId,
    Timestamp, WorkloadId,
};
use gpuaas_planner::{
    App, Difference, Drift,
    drift::{DriftSource, NextReconciliation, is_of_drift},
};
use gpuaas_store::{Reader, StoreError, WorkloadRecord};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    commands::{diff, workload::reconciliation},
    dispatch::{Origin, TaskEnd},
    drift_followers::ToCheck,
    effects::ProgressSink,
    engine::Engine,
    error::EngineError,
    operation_end::operation_ended,
    ownership::{self, AccessError},
    record::EventScope,
    rows::{WorkloadRows, running_workloads},
    workload_status::change_quietly,
};

/// Wait between a hint and the check: often several files change at once.
const CHECK_DELAY: Duration = Duration::from_millis(500);
/// Shortest interval between two checks of one workload: each leaves rows of its tasks, and a tenant can cause any number of hints.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Most doublings of that interval, one for each further check that no operation explains: a node that hints without end is checked rarely.
const CHECK_DOUBLINGS_MAX: u32 = 4;
/// Time limit of the check of one node: it reads a few files and runs one program.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);
/// Nodes of one workload that are checked at the same time.
const CHECKS_MAX: usize = 8;
/// Failed checks in a row after which a workload is not checked again before its next hint.
const CHECK_FAILURES_MAX: u32 = 3;
/// Wait before the rows of an open operation are read again, for the case that a hint was lost.
const OPERATION_RECHECK: Duration = Duration::from_secs(30);

impl Engine {
    /// Takes a node's hint that files or the enablement of this unit may have changed, and returns before the node is checked. Ignores
    /// members that do not hold this node in this enrollment, and workloads that do not run: their agents hint again when they start.
    pub async fn drift_reported(self: &Arc<Self>, node: EnrolledNode, unit: &str) -> Result<(), EngineError> {
        let mut reader = self.store().read().await?;
        for member in reader.members_on(node.node).await? {
            let workload = reader.workload(member.workload).await?;
            let is_of_member = |app: &dyn App| app.units(&member.component_key).iter().any(|of| of == unit);
            if !self.is_followed(&workload, is_of_member) {
                continue;
            }
            match ownership::for_member(&mut reader, &workload, &member).await {
                Ok(access) if access.node() == node => {
                    // An operation, after which nodes hint, may have corrected what the cluster showed before it.
                    let cluster = workload.drift.seen.iter().any(|seen| seen.source == DriftSource::Cluster);
                    self.follow_drift(workload.id, ToCheck { members: [member.id].into(), cluster });
                }
                Ok(_) | Err(AccessError::NotHeld(_)) => {}
                Err(AccessError::Store(error)) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Records the differences of a workload's cluster; they replace those of the last call, so an empty list clears them. While an
    /// operation is open, which may explain them, they are dropped, and the cluster is compared again after its end.
    pub async fn drift_found(
        self: &Arc<Self>,
        workload: WorkloadId,
        differences: Vec<Difference>,
    ) -> Result<(), EngineError> {
        let mut reader = self.store().read().await?;
        let (record, newest) = (reader.workload(workload).await?, reader.newest_operation(workload).await?);
        drop(reader);
        if !self.is_followed(&record, |_| true) {
            return Ok(());
        }
        if newest.is_some_and(|operation| !operation.state.is_final()) {
            self.follow_drift(workload, ToCheck { cluster: true, ..ToCheck::default() });
            return Ok(());
        }
        let (next, counts) = self.record_drift(workload, &[(DriftSource::Cluster, differences)]).await?;
        if !counts {
            // An operation began meanwhile.
            self.follow_drift(workload, ToCheck { cluster: true, ..ToCheck::default() });
        } else if matches!(next, NextReconciliation::Due(_)) {
            self.follow_drift(workload, ToCheck::default());
        }
        Ok(())
    }

    /// Follows every running workload whose row has a difference. For a replica that starts or takes over.
    pub(crate) async fn resume_drift(self: &Arc<Self>) -> Result<(), EngineError> {
        let running = running_workloads(self.store()).await?;
        for workload in running.iter().filter(|workload| !workload.drift.seen.is_empty()) {
            self.follow_drift(workload.id, all_of(&workload.drift));
        }
        Ok(())
    }

    fn is_followed(&self, workload: &WorkloadRecord, is_subject: impl Fn(&dyn App) -> bool) -> bool {
        let Some(entry) = self.catalog().app(&workload.app) else { return false };
        let mut offered = entry.app.manifest().operations.iter();
        workload.lifecycle == Lifecycle::Running
            && offered.any(|of| of.kind == OperationKind::Reconcile && of.is_available)
            && is_subject(&*entry.app)
    }

    fn follow_drift(self: &Arc<Self>, id: WorkloadId, to_check: ToCheck) {
        let Some(wake) = self.drift_followers().add(id, to_check) else { return };
        let follower = Follower {
            engine: self.clone(),
            id,
            wake,
            to_check: ToCheck::default(),
            checked_at: None,
            checks: 0,
            failures: 0,
            has_ended: false,
        };
        self.ports().runtime.spawn("drift", Box::pin(follower.run()));
    }

    /// Records the differences that were found, and returns what the platform does about them; false if they do not count, because an open
    /// operation may explain them. Takes the write lock only if something changes.
    async fn record_drift(
        &self,
        id: WorkloadId,
        found: &[(DriftSource, Vec<Difference>)],
    ) -> Result<(NextReconciliation, bool), EngineError> {
        let now = self.ports().clock.now();
        let update = DriftUpdate::of(&mut self.store().read().await?, id, found, now).await?;
        if !update.differs {
            return Ok((update.next, update.counts));
        }
        let mut tx = self.store().begin().await?;
        let DriftUpdate { project, drift, fault, next, counts, differs } =
            DriftUpdate::of(&mut tx, id, found, now).await?;
        if differs {
            let correlation = CorrelationId::generate(&*self.ports().clock, &*self.ports().entropy);
            let events = EventScope { project, correlation };
            change_quietly(&mut tx, &events, id, move |workload| {
                (workload.drift, workload.fault) = (drift, fault);
            })
            .await?;
            tx.commit().await?;
        }
        Ok((next, counts))
    }

    /// Checks the node of a member in service. Changes nothing there.
    async fn check_node(&self, id: WorkloadId, member: MemberId) -> Result<NodeCheck, EngineError> {
        let mut tx = self.store().begin().await?;
        let rows = WorkloadRows::load(&mut tx, id).await?;
        let view = rows.view();
        let record = rows.members.iter().find(|of| of.id == member && of.state.is_in_service());
        let (Some(record), Some(of), Some(entry)) =
            (record, view.member(member), self.catalog().app(&rows.workload.app))
        else {
            return Ok(NodeCheck::Skipped);
        };
        let Some((task, params)) = entry.app.observation(of, &view) else { return Ok(NodeCheck::Skipped) };
        let node = record.place.node().and_then(|node| rows.nodes.get(&node));
        // An agent hints again when it connects.
        if node.is_none_or(|node| node.connectivity != Connectivity::Connected) {
            return Ok(NodeCheck::Skipped);
        }
        let access = match ownership::for_member(&mut tx, &rows.workload, record).await {
            Ok(access) => access,
            Err(AccessError::NotHeld(_)) => return Ok(NodeCheck::Skipped),
            Err(AccessError::Store(error)) => return Err(error.into()),
        };
        let correlation = CorrelationId::generate(&*self.ports().clock, &*self.ports().entropy);
        let oldest =
            entry.app.manifest().tasks.iter().find(|(known, _)| *known == task).map_or(1, |(_, oldest)| *oldest);
        let expires_at = self.ports().clock.now().plus(CHECK_TIMEOUT);
        let origin = Origin::standalone(correlation);
        let sent = match self.record_task(&mut tx, access, origin, (task, oldest), params, expires_at).await {
            Ok(sent) => sent,
            Err(error) => {
                let failure = error.into_failure()?;
                tracing::warn!(workload = %id, %member, code = %failure.code, message = %failure.message, "a node could not be checked for drift");
                return Ok(NodeCheck::Skipped);
            }
        };
        tx.commit().await?;
        let task = sent.task.clone();
        let progress = Arc::new(|_| {}) as ProgressSink;
        let end = self.follow_task(sent, &progress, &CancellationToken::new()).await;
        let mut tx = self.store().begin().await?;
        self.record_task_end(&mut tx, task, &end).await?;
        tx.commit().await?;
        let TaskEnd::Succeeded(result) = end else { return Ok(NodeCheck::Failed) };
        match entry.app.node_differences(of, &view, &result) {
            Ok(differences) => Ok(NodeCheck::Found(differences)),
            Err(failure) => {
                tracing::warn!(workload = %id, %member, message = %failure.message, "an observation cannot be read");
                Ok(NodeCheck::Skipped)
            }
        }
    }
}

/// The result of the drift check of a node.
enum NodeCheck {
    Found(Vec<Difference>),
    /// There is nothing to check, or the node cannot be checked now; a later hint starts another check.
    Skipped,
    /// The node did not answer, or its task failed.
    Failed,
}

/// Returns every source with a known difference.
fn all_of(drift: &Drift) -> ToCheck {
    to_check_of(drift.seen.iter().map(|seen| seen.source))
}

fn to_check_of(sources: impl Iterator<Item = DriftSource>) -> ToCheck {
    let mut to_check = ToCheck::default();
    for source in sources {
        match source {
            DriftSource::Node(member) => {
                to_check.members.insert(member);
            }
            DriftSource::Cluster => to_check.cluster = true,
        }
    }
    to_check
}

/// The drift of a workload after a check, and what follows from it.
struct DriftUpdate {
    project: ProjectId,
    drift: Drift,
    fault: Option<Fault>,
    next: NextReconciliation,
    /// False if an open operation may explain the differences that were found.
    counts: bool,
    /// True if drift or fault differ from the workload's row.
    differs: bool,
}

impl DriftUpdate {
    async fn of(
        reader: &mut Reader,
        id: WorkloadId,
        found: &[(DriftSource, Vec<Difference>)],
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let (workload, newest) = (reader.workload(id).await?, reader.newest_operation(id).await?);
        let members = reader.members_of(id).await?;
        let present: Vec<MemberId> =
            members.iter().filter(|member| member.state.is_in_service()).map(|member| member.id).collect();
        let mut drift = match workload.lifecycle {
            Lifecycle::Running => workload.drift.of_members(&present),
            _ => Drift { seen: Vec::new(), ..workload.drift.clone() },
        };
        // An operation that began during a check may explain the differences; they are checked again after its end.
        let is_open = newest.as_ref().is_some_and(|operation| !operation.state.is_final());
        let counts = workload.lifecycle == Lifecycle::Running && !is_open;
        for (source, differences) in found.iter().filter(|_| counts) {
            drift = drift.with(*source, differences.clone(), now);
        }
        let next = match reconciliation::may_start(&workload, newest.as_ref()) {
            true => drift.next(&workload.name, now),
            false => NextReconciliation::None,
        };
        drift.due_at = match next {
            NextReconciliation::Due(at) => Some(at),
            NextReconciliation::None | NextReconciliation::Exhausted => None,
        };
        let fault = match &workload.fault {
            Some(other) if !is_of_drift(other) => Some(other.clone()),
            Some(_) | None => drift.fault(&workload.name, now),
        };
        let differs = (&drift, &fault) != (&workload.drift, &workload.fault);
        Ok(Self { project: workload.project, drift, fault, next, counts, differs })
    }
}

/// What a follower does next.
enum Next {
    /// Continues at this time.
    At(Timestamp),
    /// Continues at this time, or earlier when a check is requested.
    AtOrWoken(Timestamp),
    /// Has nothing left to do, and ends.
    Idle,
}

/// Follows the drift of one workload until nothing is left to do.
struct Follower {
    engine: Arc<Engine>,
    id: WorkloadId,
    wake: Arc<Notify>,
    /// The checks to make, without those that were requested since they were last taken.
    to_check: ToCheck,
    /// Time of the last check.
    checked_at: Option<Timestamp>,
    /// Number of checks since the follower began or an operation ended.
    checks: u32,
    /// Number of checks in a row that failed.
    failures: u32,
    has_ended: bool,
}

impl Drop for Follower {
    /// Lets the next hint start another follower, also if this one panics.
    fn drop(&mut self) {
        if !self.has_ended {
            self.engine.drift_followers().remove(self.id);
        }
    }
}

impl Follower {
    async fn run(mut self) {
        let stopping = self.engine.stopping().clone();
        let mut next = Next::At(self.now().plus(CHECK_DELAY));
        loop {
            let at = match next {
                Next::At(at) | Next::AtOrWoken(at) => at,
                Next::Idle => self.next_check(),
            };
            let can_be_woken = matches!(next, Next::AtOrWoken(_));
            let is_woken = tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                () = self.engine.ports().runtime.sleep_until(at) => false,
                () = self.wake.notified(), if can_be_woken => true,
            };
            if is_woken {
                // The wake-up may be older than the last run.
                if self.engine.drift_followers().is_marked(self.id) {
                    next = Next::At(self.next_check());
                }
                continue;
            }
            if matches!(next, Next::Idle) && self.engine.drift_followers().end(self.id) {
                self.has_ended = true;
                return;
            }
            // A run may wait for nodes. It can be dropped: what it leaves is known from rows.
            let done = tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                done = self.run_once() => done,
            };
            next = done.unwrap_or_else(|error| {
                if error.is_not_found() {
                    return Next::Idle;
                }
                tracing::warn!(workload = %self.id, %error, "drift could not be checked; trying again");
                Next::At(self.now().plus(CHECK_EVERY))
            });
        }
    }

    fn now(&self) -> Timestamp {
        self.engine.ports().clock.now()
    }

    /// Returns the earliest time of the next check.
    fn next_check(&self) -> Timestamp {
        let soon = self.now().plus(CHECK_DELAY);
        let doublings = self.checks.saturating_sub(1).min(CHECK_DOUBLINGS_MAX);
        let every = CHECK_EVERY.saturating_mul(2_u32.saturating_pow(doublings));
        self.checked_at.map_or(soon, |last| last.plus(every).max(soon))
    }

    async fn run_once(&mut self) -> Result<Next, EngineError> {
        self.to_check.merge(self.engine.drift_followers().take(self.id));
        let mut reader = self.engine.store().read().await?;
        let (workload, newest) = (reader.workload(self.id).await?, reader.newest_operation(self.id).await?);
        drop(reader);
        if let Some(open) = newest.filter(|operation| !operation.state.is_final()) {
            self.checks = 0;
            // Its changes are no drift. After its end, a check finds what it leaves, and whether it corrected the known differences.
            self.to_check.merge(all_of(&workload.drift));
            operation_ended(&self.engine, open.id, self.now().plus(OPERATION_RECHECK)).await?;
            return Ok(Next::At(self.now().plus(CHECK_DELAY)));
        }
        if workload.lifecycle != Lifecycle::Running {
            self.to_check = ToCheck::default();
            self.engine.record_drift(self.id, &[]).await?;
            return Ok(Next::Idle);
        }
        let found = self.check_sources(workload.project).await?;
        let (next, counts) = self.engine.record_drift(self.id, &found).await?;
        if !counts {
            // An operation began during the check: all sources are checked again after its end.
            self.to_check.merge(to_check_of(found.iter().map(|(source, _)| *source)));
            return Ok(Next::At(self.now().plus(CHECK_DELAY)));
        }
        match next {
            NextReconciliation::Due(at) if at <= self.now() => self.reconcile().await,
            NextReconciliation::Due(at) => Ok(Next::AtOrWoken(at)),
            NextReconciliation::None | NextReconciliation::Exhausted if self.to_check == ToCheck::default() => {
                Ok(Next::Idle)
            }
            NextReconciliation::None | NextReconciliation::Exhausted => Ok(Next::At(self.next_check())),
        }
    }

    /// Makes the requested checks and returns the differences by source. A failed check is requested again, at most [`CHECK_FAILURES_MAX`]
    /// times; if too many other workloads wait, all checks stay requested.
    async fn check_sources(&mut self, project: ProjectId) -> Result<Vec<(DriftSource, Vec<Difference>)>, EngineError> {
        if self.to_check == ToCheck::default() {
            return Ok(Vec::new());
        }
        self.checked_at = Some(self.now());
        self.checks = self.checks.saturating_add(1);
        let Ok(place) = self.engine.drift_checks().enter(project, self.id) else { return Ok(Vec::new()) };
        let Ok(_permit) = place.await else { return Ok(Vec::new()) };
        let members: Vec<MemberId> = self.to_check.members.iter().copied().collect();
        let (mut found, mut failed) = (Vec::new(), ToCheck::default());
        for some in members.chunks(CHECKS_MAX) {
            let checks = join_all(some.iter().map(|member| self.engine.check_node(self.id, *member))).await;
            for (member, checked) in some.iter().zip(checks) {
                match checked? {
                    NodeCheck::Found(differences) => found.push((DriftSource::Node(*member), differences)),
                    NodeCheck::Skipped => {}
                    NodeCheck::Failed => {
                        failed.members.insert(*member);
                    }
                }
            }
        }
        if self.to_check.cluster {
            let rows = WorkloadRows::load(&mut self.engine.store().read().await?, self.id).await?;
            match diff::of_cluster(&self.engine, &rows).await {
                Some(differences) => found.push((DriftSource::Cluster, differences)),
                None => failed.cluster = true,
            }
        }
        self.failures = if failed == ToCheck::default() { 0 } else { self.failures + 1 };
        if self.failures >= CHECK_FAILURES_MAX || bugs::on(Bug::DriftHintDropped) {
            (failed, self.failures) = (ToCheck::default(), 0);
        }
        self.to_check = failed;
        Ok(found)
    }

    /// Starts a reconciliation. Every source with a difference is checked after its end.
    async fn reconcile(&mut self) -> Result<Next, EngineError> {
        let workload = self.engine.store().read().await?.workload(self.id).await?;
        match reconciliation::start(&self.engine, self.id).await {
            Ok(Some(_)) => self.to_check.merge(all_of(&workload.drift)),
            // A row changed at the same moment; the next run reads it.
            Ok(None) => {}
            Err(refused) if refused.code() == Code::OperationInProgress => {}
            Err(refused) => {
                // Counts as an attempt: otherwise it would be repeated without end.
                tracing::warn!(workload = %self.id, %refused, "the platform could not reconcile a workload");
                reconciliation::count_attempt(&self.engine, self.id).await?;
            }
        }
        Ok(Next::At(self.now().plus(CHECK_DELAY)))
    }
}

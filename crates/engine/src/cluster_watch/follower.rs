//! Follows one cluster, judges its members and writes what has lasted.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{StreamExt, future, stream};
use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::{CorrelationId, Health, MemberId, NodeId, OperationId, Timestamp, WorkloadId};
use gpuaas_planner::{
    App, Difference, WorkloadView, cluster_health::ClusterHealth, difference::ClusterExpected, judgments::Source,
    report::Judgment,
};
use gpuaas_store::{MemberRecord, Reader, StoreError};
use gpuaas_wire::task::TaskFailure;
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{drift::ClusterDrift, target::is_here};
use crate::{
    effects::{AppEffects, CallContext},
    engine::{Engine, STORE_RETRY},
    error::EngineError,
    observe::{is_judged, is_same},
    record::EventScope,
    rows::WorkloadRows,
    workload_status::refresh_workload,
};

/// A follower has no deadline.
const DEADLINE: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// The follower of one cluster.
pub(super) struct Follower {
    engine: Arc<Engine>,
    workload: WorkloadId,
    /// The node through which it follows.
    node: NodeId,
    app: Arc<dyn App>,
    rows_changed: Arc<Notify>,
    end: CancellationToken,
    /// What the cluster showed last.
    newest: Option<Result<Value, TaskFailure>>,
    health: ClusterHealth,
    drift: ClusterDrift,
    /// The workload's newest operation at the last judgment.
    newest_operation: Option<OperationId>,
    /// When to judge again, because rows could not be read or written.
    retry_at: Option<Timestamp>,
}

impl Follower {
    pub(super) fn new(
        engine: Arc<Engine>,
        (workload, node): (WorkloadId, NodeId),
        app: Arc<dyn App>,
        rows_changed: Arc<Notify>,
        end: CancellationToken,
    ) -> Self {
        let (health, drift) = (ClusterHealth::default(), ClusterDrift::default());
        let (newest, newest_operation, retry_at) = (None, None, None);
        Self { engine, workload, node, app, rows_changed, end, newest, health, drift, newest_operation, retry_at }
    }

    /// Follows until it is ended.
    pub(super) async fn run(mut self, effects: Arc<dyn AppEffects>, view: WorkloadView) {
        let deadline = self.now().plus(DEADLINE);
        let context = CallContext::of(&self.engine, view, deadline);
        // An app that ends its stream shows nothing any more.
        let mut shown = effects.follow(context).chain(stream::pending());
        let (end, rows_changed) = (self.end.clone(), self.rows_changed.clone());
        loop {
            let next = self.next_judgment();
            tokio::select! {
                biased;
                () = end.cancelled() => return,
                observed = shown.next() => self.newest = observed,
                () = rows_changed.notified() => {}
                () = next => {}
            }
            self.retry_at = None;
            if let Err(error) = self.judge().await {
                tracing::warn!(workload = %self.workload, %error, "the state of the cluster could not be recorded; trying again");
                self.retry_at = Some(self.now().plus(STORE_RETRY));
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.engine.ports().clock.now()
    }

    /// Completes when a judgment or a difference has lasted long enough to count, or when it is time to retry after a failure.
    fn next_judgment(&self) -> future::BoxFuture<'static, ()> {
        let times = [self.health.next_confirmed_at(self.now()), self.drift.confirmed_at()];
        match self.retry_at.or_else(|| times.into_iter().flatten().min()) {
            Some(at) => self.engine.ports().runtime.sleep_until(at),
            None => Box::pin(future::pending()),
        }
    }

    /// Judges what the cluster showed last by the present rows.
    async fn judge(&mut self) -> Result<(), EngineError> {
        let Some(newest) = &self.newest else { return Ok(()) };
        let mut reader = self.engine.store().read().await?;
        let rows = WorkloadRows::load(&mut reader, self.workload).await?;
        let newest_operation = reader.newest_operation(self.workload).await?;
        drop(reader);
        let operation = newest_operation.as_ref().map(|operation| operation.id);
        if self.newest_operation != operation {
            // Also one that has ended already.
            self.newest_operation = operation;
            self.drift.reset();
        }
        let (view, now) = (rows.view(), self.now());
        let judged = self.app.judge_cluster(&view, newest.as_ref());
        let mut drift = None;
        match (judged, newest) {
            (Ok(judged), Ok(_)) => {
                self.health.record_answer(&judged.members, now);
                // What an operation changes in the cluster is no drift.
                let is_busy = newest_operation.is_some_and(|operation| !operation.state.is_final());
                drift = (!is_busy).then_some(judged.drift);
            }
            (Ok(judged), Err(_)) => self.health.record_silence(&judged.members, now),
            (Err(failure), _) => {
                tracing::warn!(workload = %self.workload, %failure.message, "the state of the cluster cannot be read");
                self.health.record_silence(&[], now);
            }
        }
        self.record(&self.health.confirmed(now)).await?;
        self.report_drift(drift, now).await
    }

    /// Reports drift that has lasted; `None` if it is unknown.
    async fn report_drift(&mut self, drift: Option<Vec<Difference>>, now: Timestamp) -> Result<(), EngineError> {
        let Some(drift) = drift else {
            self.drift.reset();
            return Ok(());
        };
        if let Some(found) = self.drift.update(drift, now) {
            self.engine.drift_found(self.workload, found).await?;
            self.drift.mark_reported();
        }
        Ok(())
    }

    /// Writes the judgments that changed; takes the write lock only if one did.
    async fn record(&self, confirmed: &BTreeMap<MemberId, Judgment>) -> Result<(), EngineError> {
        if confirmed.is_empty() || self.changes(&mut self.engine.store().read().await?, confirmed).await?.is_empty() {
            return Ok(());
        }
        let mut tx = self.engine.store().begin().await?;
        let changes = self.changes(&mut tx, confirmed).await?;
        if changes.is_empty() {
            return Ok(());
        }
        let ports = self.engine.ports();
        let correlation = CorrelationId::generate(&*ports.clock, &*ports.entropy);
        let events = EventScope { project: tx.workload(self.workload).await?.project, correlation };
        for member in changes {
            let member = tx.update_member(&member, member.state.name()).await?;
            events.member(&mut tx, &member).await?;
        }
        refresh_workload(&mut tx, &events, self.workload).await?;
        Ok(tx.commit().await?)
    }

    /// Returns the members whose judgment by the cluster changes; none if another replica follows meanwhile.
    async fn changes(
        &self,
        reader: &mut Reader,
        confirmed: &BTreeMap<MemberId, Judgment>,
    ) -> Result<Vec<MemberRecord>, StoreError> {
        let is_ours = reader.session(self.node).await?.is_some_and(|session| is_here(&self.engine, &session));
        let lifecycle = reader.workload(self.workload).await?.lifecycle;
        if !is_ours || ClusterExpected::of(lifecycle) != ClusterExpected::Yes {
            return Ok(Vec::new());
        }
        let mut changes = Vec::new();
        for mut member in reader.members_of(self.workload).await? {
            let judgment = confirmed.get(&member.id).filter(|_| is_judged(&member));
            if let Some(judgment) = judgment.filter(|judgment| !is_same(&member.judgment_of(Source::Cluster), judgment))
            {
                member.set_judgment(Source::Cluster, judgment.clone());
                if bugs::on(Bug::JudgmentOverwritten) {
                    member.set_judgment(Source::Node, Judgment { health: Health::Healthy, fault: None });
                }
                changes.push(member);
            }
        }
        Ok(changes)
    }
}

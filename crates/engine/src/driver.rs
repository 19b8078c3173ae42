//! Drives one operation until it is finished: reads its rows, asks the schedule, starts attempts, and records each result.
//!
//! A driver holds the operation's lease and is the only writer of its steps. It keeps no state that rows lack: a driver that starts in the
//! middle of a step sends the same envelope again, or repeats the same idempotent call, and the node or cluster answers with its progress.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::{OperationId, StepId, Timestamp};
use gpuaas_planner::schedule;
use gpuaas_store::{LeaseRecord, StoreError};
use sync_wrapper::SyncFuture;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Instrument as _;

use crate::{
    dispatch::TaskEnd,
    engine::{Engine, STORE_RETRY},
    error::EngineError,
    rows::OperationRows,
};

/// How long an operation's lease lasts without renewal.
pub(crate) const LEASE_TTL: Duration = Duration::from_secs(15);
/// Interval of lease renewals. Two in a row may fail.
const LEASE_RENEWAL: Duration = Duration::from_secs(5);
/// Capacity of the queue of progress texts that wait to be recorded. While it is full, new ones are dropped.
const PROGRESS_QUEUE: usize = 64;

/// An attempt that ended.
pub(crate) struct EndedAttempt {
    pub(crate) step: StepId,
    /// Its number, from 1.
    pub(crate) attempt: u32,
    pub(crate) end: TaskEnd,
}

pub(crate) struct Driver {
    pub(crate) engine: Arc<Engine>,
    pub(crate) id: OperationId,
    wake: Arc<Notify>,
    /// The running attempts. Wrapped in `SyncFuture`, because a driver is shared across awaits and a bare future is not `Sync`.
    pub(crate) attempts: FuturesUnordered<SyncFuture<BoxFuture<'static, EndedAttempt>>>,
    /// Steps with an attempt in `attempts`.
    pub(crate) in_flight: BTreeSet<StepId>,
    /// Cancellation requests to nodes under way. They run outside the loop, because a node that does not answer takes long.
    cancelling: FuturesUnordered<SyncFuture<BoxFuture<'static, ()>>>,
    pub(crate) progress_in: mpsc::Sender<(StepId, String)>,
    progress: mpsc::Receiver<(StepId, String)>,
    /// Cancelled once the operation's cancellation is requested. Ends running cluster calls; node tasks are cancelled at their nodes.
    pub(crate) cancelled: CancellationToken,
    /// Ends the running attempts when this driver is dropped.
    pub(crate) dropped: CancellationToken,
    _drop_guard: DropGuard,
}

/// Another holder took the operation's lease.
struct LeaseLost;

enum LoopControl {
    /// Nothing to do before an event, or before the given time.
    Wait(Option<Timestamp>),
    /// Rows changed: run again.
    Again,
    /// The operation is finished. The driver ends.
    Finished,
}

impl Driver {
    pub(crate) fn new(engine: Arc<Engine>, id: OperationId, wake: Arc<Notify>) -> Self {
        let (progress_in, progress) = mpsc::channel(PROGRESS_QUEUE);
        let dropped = CancellationToken::new();
        Self {
            engine,
            id,
            wake,
            attempts: FuturesUnordered::new(),
            in_flight: BTreeSet::new(),
            cancelling: FuturesUnordered::new(),
            progress_in,
            progress,
            cancelled: CancellationToken::new(),
            _drop_guard: dropped.clone().drop_guard(),
            dropped,
        }
    }

    pub(crate) async fn run(self) {
        let Some(lease) = self.first_lease().await else { return };
        let span = self.span().await;
        self.carry_out(lease).instrument(span).await;
    }

    /// Returns the operation's span in traces, which contains its steps and their tasks; an empty one if the store does not answer.
    async fn span(&self) -> tracing::Span {
        let Ok(mut reader) = self.engine.store().read().await else { return tracing::Span::none() };
        let Ok(operation) = reader.operation(self.id).await else { return tracing::Span::none() };
        let (kind, workload, correlation) = (operation.kind, operation.workload, operation.correlation);
        tracing::info_span!("operation", operation = %self.id, %kind, %workload, %correlation)
    }

    async fn carry_out(mut self, lease: LeaseRecord) {
        let mut renewal = self.after(LEASE_RENEWAL);
        loop {
            let wake_at = match self.advance(&lease).await {
                Ok(LoopControl::Finished) => break,
                Ok(LoopControl::Again) => continue,
                Ok(LoopControl::Wait(wake_at)) => wake_at,
                Err(error) => {
                    tracing::warn!(operation = %self.id, %error, "the driver failed; reading rows again");
                    Some(self.engine.ports().clock.now().plus(STORE_RETRY))
                }
            };
            let alarm = wake_at.map(|at| self.engine.ports().runtime.sleep_until(at));
            // Biased, so that the same events always give the same result and a stream of progress texts cannot starve the rest.
            tokio::select! {
                biased;
                () = self.engine.stopping().cancelled() => return,
                () = &mut renewal => match self.lease().await {
                    Ok(Some(_)) => renewal = self.after(LEASE_RENEWAL),
                    Ok(None) if bugs::on(Bug::LeaseNotChecked) => renewal = self.after(LEASE_RENEWAL),
                    Ok(None) => {
                        tracing::warn!(operation = %self.id, "the lease was lost; another replica continues");
                        return;
                    }
                    // The driver continues: every write checks the lease, so that nothing is written once another holder took it.
                    Err(error) => {
                        tracing::warn!(operation = %self.id, %error, "the lease could not be renewed yet");
                        renewal = self.after(STORE_RETRY);
                    }
                },
                Some(ended) = self.attempts.next() => {
                    if self.settle_until_recorded(&lease, ended).await.is_err() {
                        tracing::warn!(operation = %self.id, "the lease was lost; another replica continues");
                        return;
                    }
                }
                Some(()) = self.cancelling.next() => {}
                () = self.wake.notified() => {}
                () = async { match alarm { Some(alarm) => alarm.await, None => std::future::pending().await } } => {}
                Some((step, text)) = self.progress.recv() => self.record_progress(step, text).await,
            }
        }
        if let Err(error) = self.engine.store().release_lease(&self.lease_name(), self.engine.replica()).await {
            tracing::debug!(operation = %self.id, %error, "the lease was not released; it expires by itself");
        }
    }

    async fn advance(&mut self, lease: &LeaseRecord) -> Result<LoopControl, EngineError> {
        let rows = OperationRows::load(&mut self.engine.store().read().await?, self.id).await?;
        if rows.operation.state.is_final() {
            return Ok(LoopControl::Finished);
        }
        if rows.operation.cancel_requested && !self.cancelled.is_cancelled() {
            self.cancelled.cancel();
            self.cancelling.push(SyncFuture::new(self.cancel_running(&rows)));
        }
        let abandoned: Vec<_> = rows.running().filter(|step| !self.in_flight.contains(&step.id)).cloned().collect();
        for step in abandoned {
            self.continue_attempt(&rows, step).await?;
        }
        let is_ending = rows.operation.is_ending();
        let next = schedule(&rows.progress(), is_ending, self.engine.ports().clock.now());
        if let Some(ending) = next.ending {
            self.finish(lease, ending).await?;
            return Ok(LoopControl::Finished);
        }
        if next.run.is_empty() && next.skip.is_empty() {
            return Ok(LoopControl::Wait(next.wake_at));
        }
        self.begin(lease, &next, is_ending).await?;
        Ok(LoopControl::Again)
    }

    /// Records an attempt's end and retries until the store accepts it, because only the node's ledger holds it otherwise. Returns early
    /// when the engine stops. Fails when another holder took the operation; that holder then obtains the end itself.
    async fn settle_until_recorded(&mut self, lease: &LeaseRecord, ended: EndedAttempt) -> Result<(), LeaseLost> {
        loop {
            match self.settle(lease, &ended).await {
                Ok(()) => break,
                Err(EngineError::LeaseLost) => return Err(LeaseLost),
                Err(error) => {
                    tracing::warn!(operation = %self.id, step = %ended.step, %error, "an attempt's end could not be recorded yet");
                    tokio::select! {
                        biased;
                        () = self.engine.stopping().cancelled() => return Ok(()),
                        () = self.after(STORE_RETRY) => {}
                    }
                }
            }
        }
        self.in_flight.remove(&ended.step);
        Ok(())
    }

    /// Acquires the lease, retrying until the store answers. `None` when another replica holds it, or when the engine stops.
    async fn first_lease(&self) -> Option<LeaseRecord> {
        loop {
            match self.lease().await {
                Ok(lease) => return lease,
                Err(error) => tracing::warn!(operation = %self.id, %error, "the lease could not be acquired yet"),
            }
            tokio::select! {
                biased;
                () = self.engine.stopping().cancelled() => return None,
                () = self.after(STORE_RETRY) => {}
            }
        }
    }

    async fn lease(&self) -> Result<Option<LeaseRecord>, StoreError> {
        self.engine.store().acquire_lease(&self.lease_name(), self.engine.replica(), LEASE_TTL).await
    }

    pub(crate) fn lease_name(&self) -> String {
        lease_name(self.id)
    }

    fn after(&self, wait: Duration) -> BoxFuture<'static, ()> {
        let ports = self.engine.ports();
        ports.runtime.sleep_until(ports.clock.now().plus(wait))
    }
}

/// The name of the lease under which one driver executes the operation.
pub(crate) fn lease_name(operation: OperationId) -> String {
    format!("operation/{operation}")
}

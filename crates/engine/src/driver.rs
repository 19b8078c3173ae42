//! Drives one operation: reads its rows, asks the schedule, starts attempts, records what came of each, until it is over.
//!
//! A driver holds the operation's lease and is the only writer of its steps. It keeps nothing that rows do not: a driver that starts
//! on an operation in mid-step sends the same envelope again, or repeats the same idempotent call, and the world answers how far it was.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use gpuaas_model::{OperationId, StepId, Timestamp};
use gpuaas_planner::schedule;
use gpuaas_store::{LeaseRecord, StoreError};
use sync_wrapper::SyncFuture;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{engine::Engine, rows::OperationRows, step::AttemptEnd};

/// How long an operation's lease lasts without renewal.
pub(crate) const LEASE_TTL: Duration = Duration::from_secs(15);
/// How often it is renewed: twice may fail.
const LEASE_RENEWAL: Duration = Duration::from_secs(5);
/// Wait after the store failed, before rows are read again.
pub(crate) const STORE_RETRY: Duration = Duration::from_secs(1);
/// Progress texts that may wait to be recorded; more are dropped, newest first.
const PROGRESS_QUEUE: usize = 64;

/// An attempt's end, with whose it was.
pub(crate) type Ended = (StepId, u32, AttemptEnd);

pub(crate) struct Driver {
    pub(crate) engine: Arc<Engine>,
    pub(crate) id: OperationId,
    wake: Arc<Notify>,
    /// The ends of attempts that run. Wrapped, because a driver is shared between awaits and a future alone is not.
    pub(crate) attempts: FuturesUnordered<SyncFuture<BoxFuture<'static, Ended>>>,
    /// Steps with an attempt in `attempts`.
    pub(crate) in_flight: BTreeSet<StepId>,
    /// Nodes that are being told to end what they do: beside the turns, for a node that does not answer takes its time.
    cancelling: FuturesUnordered<SyncFuture<BoxFuture<'static, ()>>>,
    pub(crate) progress_in: mpsc::Sender<(StepId, String)>,
    progress: mpsc::Receiver<(StepId, String)>,
    /// Once the operation was asked to end: running cluster calls end by it, node tasks are told apart.
    pub(crate) cancelled: CancellationToken,
    /// Ends the attempts that run when this driver goes.
    pub(crate) gone: CancellationToken,
    _goes: DropGuard,
}

/// What is stale when another holder took the operation.
pub(crate) const THE_LEASE: &str = "the operation's lease";

/// Another holder took the operation.
struct LeaseLost;

enum Turn {
    /// Nothing to do before something happens, or before that time.
    Wait(Option<Timestamp>),
    /// Rows changed; look again.
    Again,
    /// The operation is over, or somebody else's.
    Over,
}

impl Driver {
    pub(crate) fn new(engine: Arc<Engine>, id: OperationId, wake: Arc<Notify>) -> Self {
        let (progress_in, progress) = mpsc::channel(PROGRESS_QUEUE);
        let gone = CancellationToken::new();
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
            _goes: gone.clone().drop_guard(),
            gone,
        }
    }

    pub(crate) async fn run(mut self) {
        let Some(lease) = self.first_lease().await else { return };
        let mut renewal = self.after(LEASE_RENEWAL);
        loop {
            let wake_at = match self.turn(&lease).await {
                Ok(Turn::Over) => break,
                Ok(Turn::Again) => continue,
                Ok(Turn::Wait(wake_at)) => wake_at,
                Err(error) => {
                    tracing::warn!(operation = %self.id, %error, "a turn failed; reading rows again");
                    Some(self.engine.ports().clock.now().plus(STORE_RETRY))
                }
            };
            let alarm = wake_at.map(|at| self.engine.ports().runtime.sleep_until(at));
            // In this order, so that the same things happening end the same way: nothing that is told all the time holds up what is not.
            tokio::select! {
                biased;
                () = self.engine.stopping().cancelled() => return,
                () = &mut renewal => match self.lease().await {
                    Ok(Some(_)) => renewal = self.after(LEASE_RENEWAL),
                    Ok(None) => {
                        tracing::warn!(operation = %self.id, "the lease was lost; another holder goes on");
                        return;
                    }
                    // It stays this driver's until another takes it, and nothing is written under it unless it still is.
                    Err(error) => {
                        tracing::warn!(operation = %self.id, %error, "the lease could not be renewed yet");
                        renewal = self.after(STORE_RETRY);
                    }
                },
                Some((step, attempt, end)) = self.attempts.next() => {
                    if self.settle_until_recorded(&lease, (step, attempt, end)).await.is_err() {
                        tracing::warn!(operation = %self.id, "the lease was lost; another holder goes on");
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

    async fn turn(&mut self, lease: &LeaseRecord) -> Result<Turn, StoreError> {
        let rows = OperationRows::load(&mut self.engine.store().read().await?, self.id).await?;
        if rows.operation.state.is_final() {
            return Ok(Turn::Over);
        }
        if rows.operation.cancel_requested && !self.cancelled.is_cancelled() {
            self.cancelled.cancel();
            self.cancelling.push(SyncFuture::new(self.cancel_running(&rows)));
        }
        let abandoned: Vec<_> = rows.running().filter(|step| !self.in_flight.contains(&step.id)).cloned().collect();
        for step in abandoned {
            self.continue_attempt(&rows, step).await?;
        }
        let next = schedule(&rows.progress(), rows.operation.cancel_requested, self.engine.ports().clock.now());
        if let Some(ending) = next.ending {
            self.finish(lease, ending).await?;
            return Ok(Turn::Over);
        }
        if next.run.is_empty() && next.skip.is_empty() {
            return Ok(Turn::Wait(next.wake_at));
        }
        self.begin(lease, &next).await?;
        Ok(Turn::Again)
    }

    /// Records an attempt's end, again and again until the store takes it: the end is known nowhere else but in the node's ledger. Fails when
    /// the operation is somebody else's by now, who learns the end by himself.
    async fn settle_until_recorded(
        &mut self,
        lease: &LeaseRecord,
        (step, attempt, end): Ended,
    ) -> Result<(), LeaseLost> {
        loop {
            match self.settle(lease, step, attempt, &end).await {
                Ok(()) => break,
                Err(StoreError::Stale { what: THE_LEASE }) => return Err(LeaseLost),
                Err(error) => {
                    tracing::warn!(operation = %self.id, %step, %error, "an attempt's end could not be recorded yet");
                    tokio::select! {
                        biased;
                        () = self.engine.stopping().cancelled() => return Ok(()),
                        () = self.after(STORE_RETRY) => {}
                    }
                }
            }
        }
        self.in_flight.remove(&step);
        Ok(())
    }

    /// The lease, as soon as the store can say whose it is; `None` when it is another's, or when the engine stops.
    async fn first_lease(&self) -> Option<LeaseRecord> {
        loop {
            match self.lease().await {
                Ok(lease) => return lease,
                Err(error) => tracing::warn!(operation = %self.id, %error, "the lease could not be taken yet"),
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

/// The lease under which one driver carries an operation out.
pub(crate) fn lease_name(operation: OperationId) -> String {
    format!("operation/{operation}")
}

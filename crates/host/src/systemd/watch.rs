//! Follows the status of a unit.
//!
//! Guarantees: each status comes from systemd's signals, and is read once more before a unit is reported at rest; a slow subscriber loses
//! old statuses and never the newest; after the subscriber drops the stream nothing is read or kept.

use std::sync::Arc;

use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use tokio::sync::broadcast::{self, error::RecvError};

use super::{
    bus::{Bus, Systemd},
    signals::{Signal, Signals, Subscription},
    unit_state::{UnitState, query_with_sequence, query_with_signals},
};
use crate::{error::HostError, unit::UnitStatus};

/// Statuses buffered for a slow subscriber.
const QUEUE_MAX: usize = 64;

/// Returns a stream of a unit's status, now and after every change; an empty stream if the unit does not exist.
pub(super) async fn watch(bus: Arc<Bus>, unit: &str) -> Result<BoxStream<'static, UnitStatus>, HostError> {
    let (sender, receiver) = broadcast::channel(QUEUE_MAX);
    if let Some(watch) = Watch::begin(&bus, unit, sender).await? {
        tokio::spawn(watch.run(bus));
    }
    Ok(status_stream(receiver).boxed())
}

fn status_stream(receiver: broadcast::Receiver<UnitStatus>) -> impl Stream<Item = UnitStatus> + Send + 'static {
    stream::unfold(receiver, |mut receiver| async move {
        loop {
            match receiver.recv().await {
                Ok(status) => return Some((status, receiver)),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    })
}

struct Watch {
    systemd: Systemd,
    signals: Signals,
    known: UnitState,
    /// True if the last signals reported a rest, through which a unit also passes on its way to a start or a restart.
    is_unconfirmed: bool,
    reported: UnitStatus,
    sender: broadcast::Sender<UnitStatus>,
}

impl Watch {
    /// Subscribes first and reads then, so that no change is missed.
    async fn begin(bus: &Bus, unit: &str, sender: broadcast::Sender<UnitStatus>) -> Result<Option<Self>, HostError> {
        let (systemd, signals, known) = open(bus, unit).await?;
        let Some(known) = known else { return Ok(None) };
        let reported = known.status.clone();
        // The caller still holds the receiver, so this cannot fail.
        let _ = sender.send(reported.clone());
        Ok(Some(Self { systemd, signals, known, is_unconfirmed: false, reported, sender }))
    }

    async fn run(mut self, bus: Arc<Bus>) {
        let unit = self.reported.unit.clone();
        let sender = self.sender.clone();
        tokio::select! {
            biased;
            () = sender.closed() => {}
            ended = self.follow(&bus, &unit) => if let Err(error) = ended {
                tracing::warn!(unit, %error, "stopped watching a unit");
            },
        }
    }

    /// Follows the unit until it no longer exists.
    async fn follow(&mut self, bus: &Bus, unit: &str) -> Result<(), HostError> {
        loop {
            if self.is_unconfirmed && !self.signals.has_queued() {
                self.confirm(unit).await?;
            }
            let Some(signal) = self.signals.next().await else {
                return Err(HostError::InitUnreachable("the system bus closed the connection".to_owned()));
            };
            let known = match signal {
                Signal::Changed { properties, complete } => {
                    self.known.apply(*properties);
                    if complete {
                        self.is_unconfirmed = self.known.is_stopped();
                        self.report();
                    }
                    continue;
                }
                // The signal does not show whether the unit was removed or only reloaded; the answer does.
                Signal::Unloaded | Signal::Reloaded => {
                    match query_with_signals(&self.systemd, unit, &mut self.signals).await {
                        Err(HostError::InitUnreachable(why)) => {
                            log_no_answer(unit, &why);
                            continue;
                        }
                        known => known?,
                    }
                }
                Signal::Reexecuted => {
                    let known;
                    (self.systemd, self.signals, known) = open(bus, unit).await?;
                    known
                }
                Signal::JobEnded { .. } => continue,
            };
            let Some(known) = known else {
                self.report_stopped();
                return Ok(());
            };
            // A unit that was unloaded at rest keeps its last status, with the result that systemd no longer has.
            if known.loaded || !self.known.is_idle() {
                self.known = known;
                self.is_unconfirmed = false;
                self.report();
            }
        }
    }

    /// Reads a unit's state to find out if it really is at rest; newer signals take precedence over the answer.
    async fn confirm(&mut self, unit: &str) -> Result<(), HostError> {
        let known = match self.signals.queue_during(query_with_sequence(&self.systemd, unit)).await {
            Err(HostError::InitUnreachable(why)) => {
                log_no_answer(unit, &why);
                return Ok(());
            }
            answer => answer?.0,
        };
        if self.signals.has_queued() {
            return Ok(());
        }
        match known {
            Some(known) if known.loaded => {
                self.known = known;
                self.is_unconfirmed = false;
                self.report();
            }
            _ => self.report_stopped(),
        }
        Ok(())
    }

    /// Handles a unit that is no longer loaded: keeps the last reported status, without a main process.
    fn report_stopped(&mut self) {
        if std::mem::take(&mut self.is_unconfirmed) {
            self.known.status.main_pid = 0;
            self.report();
        }
    }

    fn report(&mut self) {
        if !self.is_unconfirmed && self.known.status != self.reported {
            self.reported = self.known.status.clone();
            let _ = self.sender.send(self.reported.clone());
        }
    }
}

/// Logs that systemd does not answer because it is re-executing. A signal reports its return; a lost bus ends the signals.
fn log_no_answer(unit: &str, why: &str) {
    tracing::debug!(unit, why, "systemd does not answer");
}

async fn open(bus: &Bus, unit: &str) -> Result<(Systemd, Signals, Option<UnitState>), HostError> {
    let systemd = bus.systemd().await?;
    let subscriptions =
        [Subscription::Unit(unit), Subscription::Unloads(unit), Subscription::Reloads, Subscription::Owner];
    let mut signals = Signals::subscribe(&systemd, &subscriptions).await?;
    let known = query_with_signals(&systemd, unit, &mut signals).await?;
    Ok((systemd, signals, known))
}

#[cfg(test)]
mod tests {
    use gpuaas_model::Timestamp;

    use super::*;

    #[tokio::test]
    async fn slow_receiver_loses_old_statuses_but_not_the_newest() {
        let (sender, receiver) = broadcast::channel(QUEUE_MAX);
        for n_restarts in 0..1_000 {
            let status = UnitStatus {
                unit: "a.service".to_owned(),
                active: "activating".to_owned(),
                sub: "auto-restart".to_owned(),
                result: "exit-code".to_owned(),
                n_restarts,
                exec_main_status: 1,
                main_pid: 0,
                started_at: None,
                since: Timestamp::from_millis(0),
            };
            sender.send(status).unwrap();
        }
        drop(sender);
        let received: Vec<u32> = status_stream(receiver).map(|status| status.n_restarts).collect().await;
        assert_eq!((received.len(), received.last()), (QUEUE_MAX, Some(&999)));
    }
}

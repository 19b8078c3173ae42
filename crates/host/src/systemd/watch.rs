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
    known::{Known, look_along, look_at},
    signals::{About, Signal, Signals},
};
use crate::{error::HostError, unit::UnitStatus};

/// Statuses buffered for a slow subscriber.
const HELD_MAX: usize = 64;

/// Returns a stream of a unit's status, now and after every change; an empty stream if the unit does not exist.
pub(super) async fn watch(bus: Arc<Bus>, unit: &str) -> Result<BoxStream<'static, UnitStatus>, HostError> {
    let (tell, told) = broadcast::channel(HELD_MAX);
    if let Some(watch) = Watch::begin(&bus, unit, tell).await? {
        tokio::spawn(watch.run(bus));
    }
    Ok(heard(told).boxed())
}

fn heard(told: broadcast::Receiver<UnitStatus>) -> impl Stream<Item = UnitStatus> + Send + 'static {
    stream::unfold(told, |mut told| async move {
        loop {
            match told.recv().await {
                Ok(status) => return Some((status, told)),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    })
}

struct Watch {
    systemd: Systemd,
    signals: Signals,
    known: Known,
    /// True if the last signals reported a rest, through which a unit also passes on its way to a start or a restart.
    is_in_doubt: bool,
    told: UnitStatus,
    tell: broadcast::Sender<UnitStatus>,
}

impl Watch {
    /// Subscribes first and reads then, so that no change is missed.
    async fn begin(bus: &Bus, unit: &str, tell: broadcast::Sender<UnitStatus>) -> Result<Option<Self>, HostError> {
        let (systemd, signals, known) = open(bus, unit).await?;
        let Some(known) = known else { return Ok(None) };
        let told = known.status.clone();
        // The caller still holds the receiver, so this cannot fail.
        let _ = tell.send(told.clone());
        Ok(Some(Self { systemd, signals, known, is_in_doubt: false, told, tell }))
    }

    async fn run(mut self, bus: Arc<Bus>) {
        let unit = self.told.unit.clone();
        let tell = self.tell.clone();
        tokio::select! {
            biased;
            () = tell.closed() => {}
            ended = self.follow(&bus, &unit) => if let Err(error) = ended {
                tracing::warn!(unit, %error, "a unit is followed no more");
            },
        }
    }

    /// Follows the unit until it no longer exists.
    async fn follow(&mut self, bus: &Bus, unit: &str) -> Result<(), HostError> {
        loop {
            if self.is_in_doubt && !self.signals.are_held() {
                self.settle(unit).await?;
            }
            let Some(signal) = self.signals.next().await else {
                return Err(HostError::InitGone("the system bus hung up".to_owned()));
            };
            let known = match signal {
                Signal::Changed { properties, complete } => {
                    self.known.change(*properties);
                    if complete {
                        self.is_in_doubt = self.known.rests();
                        self.tell();
                    }
                    continue;
                }
                // The signal does not show whether the unit was removed or only reloaded; the answer does.
                Signal::Forgotten | Signal::Reloaded => {
                    match look_along(&self.systemd, unit, &mut self.signals).await {
                        Err(HostError::InitGone(why)) => {
                            is_between_two(unit, &why);
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
                self.rest();
                return Ok(());
            };
            // A unit that was unloaded at rest keeps its last status, with the result that systemd no longer has.
            if known.loaded || !self.known.is_at_rest() {
                self.known = known;
                self.is_in_doubt = false;
                self.tell();
            }
        }
    }

    /// Reads a unit's state to find out if it really is at rest; newer signals take precedence over the answer.
    async fn settle(&mut self, unit: &str) -> Result<(), HostError> {
        let known = match self.signals.meanwhile(look_at(&self.systemd, unit)).await {
            Err(HostError::InitGone(why)) => {
                is_between_two(unit, &why);
                return Ok(());
            }
            answer => answer?.0,
        };
        if self.signals.are_held() {
            return Ok(());
        }
        match known {
            Some(known) if known.loaded => {
                self.known = known;
                self.is_in_doubt = false;
                self.tell();
            }
            _ => self.rest(),
        }
        Ok(())
    }

    /// Handles a unit that is no longer loaded: keeps the last reported status, without a main process.
    fn rest(&mut self) {
        if std::mem::take(&mut self.is_in_doubt) {
            self.known.status.main_pid = 0;
            self.tell();
        }
    }

    fn tell(&mut self) {
        if !self.is_in_doubt && self.known.status != self.told {
            self.told = self.known.status.clone();
            let _ = self.tell.send(self.told.clone());
        }
    }
}

/// Logs that systemd does not answer because it is re-executing. A signal reports its return; a lost bus ends the signals.
fn is_between_two(unit: &str, why: &str) {
    tracing::debug!(unit, why, "systemd does not answer");
}

async fn open(bus: &Bus, unit: &str) -> Result<(Systemd, Signals, Option<Known>), HostError> {
    let systemd = bus.systemd().await?;
    let abouts = [About::Unit(unit), About::Forgetting(unit), About::Reloads, About::Owner];
    let mut signals = Signals::about(&systemd, &abouts).await?;
    let known = look_along(&systemd, unit, &mut signals).await?;
    Ok((systemd, signals, known))
}

#[cfg(test)]
mod tests {
    use gpuaas_model::Timestamp;

    use super::*;

    #[tokio::test]
    async fn who_listens_slowly_loses_old_statuses_and_never_the_newest() {
        let (tell, told) = broadcast::channel(HELD_MAX);
        for n_restarts in 0..1_000 {
            let status = UnitStatus {
                unit: "a.service".to_owned(),
                active: "activating".to_owned(),
                sub: "auto-restart".to_owned(),
                result: "exit-code".to_owned(),
                n_restarts,
                exec_main_status: 1,
                main_pid: 0,
                since: Timestamp::from_millis(0),
            };
            tell.send(status).unwrap();
        }
        drop(tell);
        let heard: Vec<u32> = heard(told).map(|status| status.n_restarts).collect().await;
        assert_eq!((heard.len(), heard.last()), (HELD_MAX, Some(&999)));
    }
}

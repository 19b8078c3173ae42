//! How a unit is, from now on.
//!
//! Guarantees: a status is told as systemd's signals tell it, and asked for once more before a unit is said to be at rest; who listens slowly loses old ones and never the newest; nothing is asked or held once nobody listens.

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

/// Statuses held for one who listens slowly.
const HELD_MAX: usize = 64;

/// How a unit is now and after every change; nothing when there is no such unit.
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
    /// Whether the signals told of rest last, which a unit passes through on its way to a restart and to a start.
    is_in_doubt: bool,
    told: UnitStatus,
    tell: broadcast::Sender<UnitStatus>,
}

impl Watch {
    /// Listens first, and looks then: nothing in between is missed.
    async fn begin(bus: &Bus, unit: &str, tell: broadcast::Sender<UnitStatus>) -> Result<Option<Self>, HostError> {
        let (systemd, signals, known) = open(bus, unit).await?;
        let Some(known) = known else { return Ok(None) };
        let told = known.status.clone();
        // The one who listens holds the other end while this runs.
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

    /// Until the unit is gone.
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
                // Forgotten, or only read anew: the answer tells.
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
            // A unit that was forgotten at rest stays as it was seen last, with the result that systemd forgot.
            if known.loaded || !self.known.is_at_rest() {
                self.known = known;
                self.is_in_doubt = false;
                self.tell();
            }
        }
    }

    /// Of a unit that is said to be at rest, learns whether it is; signals that came meanwhile know more.
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

    /// Of a unit that is forgotten by now: it stays as the signals told it last, and nothing of it runs.
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

/// systemd does not answer while it is executed anew. A signal tells when it is there again; a bus that is gone itself ends the signals.
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

//! How a unit is, from now on.
//!
//! Guarantees: a status is told as systemd's signals tell it, without asking again; who listens slowly loses old ones and never the newest;
//! nothing is asked or held once nobody listens.

use std::sync::Arc;

use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use tokio::sync::broadcast::{self, error::RecvError};

use super::{
    bus::{Bus, Systemd},
    known::{Known, look_along},
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
        Ok(Some(Self { systemd, signals, known, told, tell }))
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
            let Some(signal) = self.signals.next().await else {
                return Err(HostError::InitGone("the system bus hung up".to_owned()));
            };
            let known = match signal {
                Signal::Changed { properties, complete } => {
                    self.known.change(*properties);
                    if complete {
                        self.tell();
                    }
                    continue;
                }
                // Forgotten, or only read anew: the answer tells.
                Signal::Forgotten | Signal::Reloaded => look_along(&self.systemd, unit, &mut self.signals).await?,
                Signal::Reexecuted => {
                    let known;
                    (self.systemd, self.signals, known) = open(bus, unit).await?;
                    known
                }
                Signal::JobEnded { .. } => continue,
            };
            let Some(known) = known else { return Ok(()) };
            // A unit that was forgotten at rest stays as it was seen last, with the result that systemd forgot.
            if known.loaded || !self.known.is_at_rest() {
                self.known = known;
                self.tell();
            }
        }
    }

    fn tell(&mut self) {
        if self.known.status != self.told {
            self.told = self.known.status.clone();
            let _ = self.tell.send(self.told.clone());
        }
    }
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

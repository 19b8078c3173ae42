//! Reports of units: read as they come, handed on no more often than a control plane with many nodes can bear. Only the newest of each unit
//! counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{Stream, StreamExt};
use gpuaas_wire::{
    session::{LINE_BYTES_MAX, Observe, UnitLine, path},
    task::UnitReport,
};
use tokio::time::{Instant, sleep_until};

use crate::{
    backend::ChannelBackend,
    channel::{Channel, ChannelError},
    lines::{Pace, lines},
    requests::within,
    session::Session,
};

/// Least time between two times that a node's reports are handed on; the first comes at once.
const REPORTS_EVERY: Duration = Duration::from_millis(250);

/// Asks for unit reports and hands them on, for as long as the connection lasts or until the agent is asked again.
pub(crate) async fn observe(channel: &Channel, session: Session, units: Vec<String>) -> Result<(), ChannelError> {
    let asked: BTreeSet<String> = units.iter().cloned().collect();
    let response = within(session.link.post(path::OBSERVE, &Observe { units })).await?;
    let superseded = session.observed_anew();
    let backend = channel.shared.backend.clone();
    tokio::spawn(async move {
        let reports = Box::pin(lines::<UnitLine, _>(response.into_body(), LINE_BYTES_MAX, Pace::OF_REPORTS));
        // One that nobody asked for has no room.
        let reports = reports
            .filter(|report| std::future::ready(report.as_ref().map_or(true, |report| asked.contains(&report.unit))));
        tokio::select! {
            () = superseded.cancelled() => {}
            () = hand_on(&*backend, &session, reports) => {}
        }
    });
    Ok(())
}

async fn hand_on(
    backend: &dyn ChannelBackend,
    session: &Session,
    mut reports: impl Stream<Item = Result<UnitReport, ChannelError>> + Unpin,
) {
    let mut newest = BTreeMap::new();
    let mut due = Instant::now();
    loop {
        tokio::select! {
            report = reports.next() => match report {
                Some(Ok(report)) => {
                    newest.insert(report.unit.clone(), report);
                }
                Some(Err(error)) => {
                    tracing::debug!(node = %session.node, %error, "unit reports ended");
                    break;
                }
                None => break,
            },
            () = sleep_until(due), if !newest.is_empty() => {
                backend.units_changed(session.node, std::mem::take(&mut newest).into_values().collect()).await;
                due = Instant::now() + REPORTS_EVERY;
            }
        }
    }
    if !newest.is_empty() {
        backend.units_changed(session.node, newest.into_values().collect()).await;
    }
}

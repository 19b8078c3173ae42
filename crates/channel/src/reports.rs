//! Unit reports: read as they arrive and delivered to the backend at a limited rate. Only the newest report of each unit is delivered.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{Stream, StreamExt};
use gpuaas_model::EnrolledNode;
use gpuaas_wire::{
    session::{LINE_BYTES_MAX, Observe, UnitLine, path},
    task::UnitReport,
};
use tokio::time::{Instant, sleep_until};

use crate::{
    backend::ChannelBackend,
    channel::Shared,
    error::ChannelError,
    lines::{Rate, lines},
    link::with_timeout,
    report_throttle::{REPORT_INTERVAL_MIN, ReportThrottle},
    session::Session,
};

/// Wait before reports that could not be recorded are delivered again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Requests unit reports and delivers them until the connection ends or a newer request replaces this one.
pub(crate) async fn observe(shared: &Arc<Shared>, session: Session, units: Vec<String>) -> Result<(), ChannelError> {
    let requested: BTreeSet<String> = units.iter().cloned().collect();
    let response = with_timeout(session.link.post(path::OBSERVE, &Observe { units })).await?;
    let superseded = session.restart_observation();
    let shared = shared.clone();
    tokio::spawn(async move {
        let reports = Box::pin(lines::<UnitLine, _>(response.into_body(), LINE_BYTES_MAX, Rate::REPORTS));
        // Reports of units that were not requested are dropped, so that they take no memory.
        let reports = reports.filter(|report| {
            std::future::ready(report.as_ref().map_or(true, |report| requested.contains(&report.unit)))
        });
        tokio::select! {
            () = superseded.cancelled() => {}
            () = forward(&shared.report_throttle, &*session.backend, session.enrolled(), reports) => {}
        }
    });
    Ok(())
}

/// Delivers the newest report of each unit, at the rate of [`ReportThrottle`], until the stream has ended and all last reports are recorded.
pub(crate) async fn forward(
    throttle: &ReportThrottle,
    backend: &dyn ChannelBackend,
    enrolled: EnrolledNode,
    reports: impl Stream<Item = Result<UnitReport, ChannelError>> + Unpin,
) {
    let node = enrolled.node;
    let mut reports = reports.fuse();
    let mut newest: BTreeMap<String, UnitReport> = BTreeMap::new();
    let mut not_before = Instant::now();
    loop {
        let now = Instant::now();
        let next = newest.keys().map(|unit| throttle.next_at(node, unit, now)).min();
        let next = next.map(|due| due.max(not_before));
        if next.is_none() && reports.is_done() {
            return;
        }
        tokio::select! {
            Some(report) = reports.next() => match report {
                Ok(report) => {
                    newest.insert(report.unit.clone(), report);
                }
                Err(error) => tracing::debug!(%node, %error, "unit reports ended"),
            },
            () = sleep_until(next.unwrap_or(now)), if next.is_some() => {
                let now = Instant::now();
                let is_due = |unit: &String| throttle.next_at(node, unit, now) <= now;
                let due_reports: Vec<UnitReport> = newest.extract_if(.., |unit, _| is_due(unit)).map(|(_, report)| report).collect();
                if backend.units_changed(enrolled, due_reports.clone()).await {
                    due_reports.iter().for_each(|report| throttle.record(node, &report.unit, now));
                    not_before = now + REPORT_INTERVAL_MIN;
                } else {
                    newest.extend(due_reports.into_iter().map(|report| (report.unit.clone(), report)));
                    not_before = Instant::now() + RETRY_AFTER;
                }
            }
            // The stream has ended and no report is pending.
            else => return,
        }
    }
}

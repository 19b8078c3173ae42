//! Unit reports and drift hints: read as they arrive and delivered to the backend at a limited rate. Only the newest report of each unit is
//! delivered, and one hint for any number of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{Stream, StreamExt};
use gpuaas_model::EnrolledNode;
use gpuaas_wire::{
    session::{DriftHint, LINE_BYTES_MAX, Observe, UnitLine, path},
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
    let response = with_timeout(session.link.post(path::OBSERVE, &Observe { units, drift: true })).await?;
    let superseded = session.restart_observation();
    let shared = shared.clone();
    tokio::spawn(async move {
        let reports = Box::pin(lines::<UnitLine, _>(response.into_body(), LINE_BYTES_MAX, Rate::REPORTS));
        // Reports of units that were not requested are dropped, so that they take no memory.
        let reports = reports.filter(|report| {
            std::future::ready(report.as_ref().map_or(true, |report| requested.contains(report.unit())))
        });
        tokio::select! {
            biased;
            () = superseded.cancelled() => {}
            () = forward(&shared.report_throttle, &*session.backend, session.enrolled(), reports) => {}
        }
    });
    Ok(())
}

/// Delivers the newest report and one drift hint of each unit, at the rate of [`ReportThrottle`], until the stream has ended and all of them
/// are recorded.
pub(crate) async fn forward(
    throttle: &ReportThrottle,
    backend: &dyn ChannelBackend,
    enrolled: EnrolledNode,
    lines: impl Stream<Item = Result<UnitLine, ChannelError>> + Unpin,
) {
    let mut lines = lines.fuse();
    let mut pending = Pending { throttle, backend, enrolled, reports: BTreeMap::new(), hints: BTreeSet::new() };
    let mut not_before = Instant::now();
    loop {
        let now = Instant::now();
        let next = pending.next_at(now).map(|due| due.max(not_before));
        if next.is_none() && lines.is_done() {
            return;
        }
        tokio::select! {
            biased;
            // Due reports come first: a node that never stops reporting must not delay them.
            () = sleep_until(next.unwrap_or(now)), if next.is_some() => {
                let now = Instant::now();
                let reports_recorded = pending.deliver_reports(now).await;
                let hints_recorded = pending.deliver_hints(now).await;
                let is_recorded = reports_recorded && hints_recorded;
                not_before = if is_recorded { now + REPORT_INTERVAL_MIN } else { Instant::now() + RETRY_AFTER };
            }
            Some(line) = lines.next() => match line {
                Ok(UnitLine::Report(report)) => {
                    pending.reports.insert(report.unit.clone(), report);
                }
                Ok(UnitLine::Drift(DriftHint { drifted })) => {
                    pending.hints.insert(drifted);
                }
                Err(error) => tracing::debug!(node = %enrolled.node, %error, "unit reports ended"),
            },
            // The stream has ended and nothing is pending.
            else => return,
        }
    }
}

/// What is read and not yet delivered: per requested unit at most one report and one hint.
struct Pending<'a> {
    throttle: &'a ReportThrottle,
    backend: &'a dyn ChannelBackend,
    enrolled: EnrolledNode,
    reports: BTreeMap<String, UnitReport>,
    hints: BTreeSet<String>,
}

impl Pending<'_> {
    /// Returns when the first delivery may take place; `None` if nothing is pending.
    fn next_at(&self, now: Instant) -> Option<Instant> {
        let reports = self.reports.keys().map(|unit| self.throttle.next_at(self.enrolled.node, unit, now));
        let hints = self.hints.iter().map(|unit| self.throttle.next_at(self.enrolled.node, &hint_key(unit), now));
        reports.chain(hints).min()
    }

    /// Delivers the due reports; false if they could not be recorded. They are then pending again, because no newer ones have been read.
    async fn deliver_reports(&mut self, now: Instant) -> bool {
        let node = self.enrolled.node;
        let is_due = |unit: &String| self.throttle.next_at(node, unit, now) <= now;
        let due: Vec<UnitReport> =
            self.reports.extract_if(.., |unit, _| is_due(unit)).map(|(_, report)| report).collect();
        if due.is_empty() {
            return true;
        }
        let is_recorded = self.backend.units_changed(self.enrolled, due.clone()).await;
        if is_recorded {
            due.iter().for_each(|report| self.throttle.record(node, &report.unit, now));
        } else {
            self.reports.extend(due.into_iter().map(|report| (report.unit.clone(), report)));
        }
        is_recorded
    }

    /// Delivers the due hints; false if one of them was not recorded, and is pending again.
    async fn deliver_hints(&mut self, now: Instant) -> bool {
        let node = self.enrolled.node;
        let is_due = |unit: &String| self.throttle.next_at(node, &hint_key(unit), now) <= now;
        let due: Vec<String> = self.hints.extract_if(.., |unit| is_due(unit)).collect();
        let mut all_recorded = true;
        for unit in due {
            if self.backend.drift_hinted(self.enrolled, &unit).await {
                self.throttle.record(node, &hint_key(&unit), now);
            } else {
                all_recorded = false;
                self.hints.insert(unit);
            }
        }
        all_recorded
    }
}

/// Returns the key of a unit's hints in the throttle: hints delay no report. No unit has a blank in its name.
fn hint_key(unit: &str) -> String {
    format!("{unit} drift")
}

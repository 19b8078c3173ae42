//! Reports of units as the host's init states them, once at first and then after every change; and hints of drift.

use std::sync::Arc;

use futures::{
    Stream, StreamExt,
    stream::{select, select_all},
};
use gpuaas_handler::report;
use gpuaas_host::Host;
use gpuaas_wire::{
    session::{Observe, UnitLine},
    task::UnitReport,
};

use crate::drift;

/// The agent's own unit.
const AGENT_UNIT: &str = "gpuaas-agent.service";

/// Returns true for a unit whose state and journal the control plane may request: the agent's own, and those of the apps.
pub(crate) fn is_observable(unit: &str) -> bool {
    unit == AGENT_UNIT || gpuaas_app_rke2_handlers::UNITS.contains(&unit)
}

/// Streams what the control plane asked for: the units' reports and, if it wants them, the hints of drift.
pub(crate) async fn lines(host: &Arc<dyn Host>, request: &Observe) -> impl Stream<Item = UnitLine> + Send + use<> {
    let mut hints = Vec::new();
    let wanted = |unit: &&str| request.drift && request.units.iter().any(|of| of == unit);
    for unit in gpuaas_app_rke2_handlers::UNITS.into_iter().filter(wanted) {
        hints.extend(drift::hints(host, unit).await.map(StreamExt::boxed));
    }
    let reports = reports(host, &request.units).await.map(UnitLine::Report);
    select(reports, select_all(hints).map(UnitLine::Drift))
}

/// Streams the reports of those `units` that are observable; a unit that the init does not know yet is reported as not loaded.
async fn reports(host: &Arc<dyn Host>, units: &[String]) -> impl Stream<Item = UnitReport> + Send + use<> {
    let mut streams = Vec::new();
    for unit in units.iter().filter(|unit| is_observable(unit)) {
        if let Ok(events) = host.units().unit_events(unit).await {
            streams.push(events);
        }
    }
    select_all(streams).map(report)
}

//! Reports of units as the host's init states them, once at first and then after every change.

use std::sync::Arc;

use futures::{Stream, StreamExt, stream::select_all};
use gpuaas_handler::report;
use gpuaas_host::Host;
use gpuaas_wire::task::UnitReport;

/// The agent's own unit.
const AGENT_UNIT: &str = "gpuaas-agent.service";

/// Returns true for a unit whose state and journal the control plane may request: the agent's own, and those of the apps.
pub(crate) fn is_observable(unit: &str) -> bool {
    unit == AGENT_UNIT || gpuaas_app_rke2_handlers::UNITS.contains(&unit)
}

/// Streams the reports of those `units` that are observable; a unit that the init does not know yet is reported as not loaded.
pub(crate) async fn reports(host: &Arc<dyn Host>, units: &[String]) -> impl Stream<Item = UnitReport> + Send + 'static {
    let mut streams = Vec::new();
    for unit in units.iter().filter(|unit| is_observable(unit)) {
        if let Ok(events) = host.units().unit_events(unit).await {
            streams.push(events);
        }
    }
    select_all(streams).map(report)
}

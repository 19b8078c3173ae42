//! Reports how units are: once at first, then after every change, as the host's init tells it.

use std::sync::Arc;

use futures::{Stream, StreamExt, stream::select_all};
use gpuaas_host::{Host, UnitStatus};
use gpuaas_wire::{session::JOURNAL_UNITS, task::UnitReport};

/// Reports of the allowlisted ones among `units`; those that the init does not know yet are reported as not loaded.
pub(crate) async fn reports(host: &Arc<dyn Host>, units: &[String]) -> impl Stream<Item = UnitReport> + Send + 'static {
    let mut streams = Vec::new();
    for unit in units.iter().filter(|unit| JOURNAL_UNITS.contains(&unit.as_str())) {
        if let Ok(events) = host.unit_events(unit).await {
            streams.push(events);
        }
    }
    select_all(streams).map(report)
}

/// A unit's status as it travels.
pub(crate) fn report(status: UnitStatus) -> UnitReport {
    UnitReport {
        unit: status.unit,
        active: status.active,
        sub: status.sub,
        result: status.result,
        n_restarts: status.n_restarts,
        exec_main_status: status.exec_main_status,
        since: status.since,
    }
}

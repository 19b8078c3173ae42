//! The closed catalog of task types: the agent's own, one line per type, and those of each app. The agent refuses a type that is not listed.

use std::ops::RangeInclusive;

use gpuaas_handler::{Entry, entry};
use gpuaas_wire::task::{ResidueReport, TaskSupport};
use serde_json::Value;

use crate::handlers;

/// Returns every task type that this agent executes, each with those of its schemas that `accepted` returns.
pub(crate) fn catalog(accepted: impl Fn(RangeInclusive<u32>, bool) -> RangeInclusive<u32>) -> Vec<Entry> {
    let mut catalog = vec![
        entry(false, handlers::noop::run),
        entry(false, handlers::inspect::run),
        entry(false, handlers::preflight::run),
        entry(false, handlers::residue::run).frees_host_if(is_clean),
        entry(true, handlers::fix::run),
        entry(true, handlers::artifact_fetch::run),
    ];
    catalog.extend(gpuaas_app_rke2_handlers::catalog());
    for entry in &mut catalog {
        entry.schemas = accepted(entry.schemas.clone(), entry.is_exclusive);
    }
    catalog
}

/// Returns true if a residue report lists no leftovers and no checks that could not run.
pub(crate) fn is_clean(report: &Value) -> bool {
    serde_json::from_value::<ResidueReport>(report.clone())
        .is_ok_and(|report| report.items.is_empty() && report.unseen.is_empty())
}

/// Returns the catalog in the form in which the hello message carries it.
pub(crate) fn support(catalog: &[Entry]) -> Vec<TaskSupport> {
    let line =
        |entry: &Entry| TaskSupport { task: entry.task_type.to_string(), schemas: entry.schemas.clone().collect() };
    catalog.iter().map(line).collect()
}

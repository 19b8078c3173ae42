//! `host.residue`: lists what an app left behind.

use std::time::Duration;

use camino::Utf8Path;
use gpuaas_wire::task::{Residue, ResidueItem, ResidueKind, ResidueReport, TaskFailure};

use crate::context::{Context, host_failed};

/// A killed process takes its port along a moment after the script that killed it has ended; nothing tells when. What is there for longer
/// than this stays.
const SETTLES_WITHIN: Duration = Duration::from_secs(5);
/// Wait between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Looks, and again while what is left may still be ending.
pub(crate) async fn run(task: Residue, context: Context) -> Result<ResidueReport, TaskFailure> {
    let settled = tokio::time::Instant::now() + SETTLES_WITHIN.min(context.time_left() / 2);
    loop {
        let report = look(&task, &context).await?;
        let may_end = |item: &ResidueItem| matches!(item.kind, ResidueKind::Port | ResidueKind::Process);
        if !report.items.iter().any(may_end) || tokio::time::Instant::now() >= settled {
            return Ok(report);
        }
        context.say("waiting for what is still ending");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn look(task: &Residue, context: &Context) -> Result<ResidueReport, TaskFailure> {
    let host = &context.host;
    let mut items = Vec::new();
    for path in &task.paths {
        if host.exists(Utf8Path::new(path)).await.map_err(host_failed)? {
            items.push(ResidueItem { kind: ResidueKind::Path, what: path.clone() });
        }
    }
    for mount in host.mounts(&task.mount_prefixes).await.map_err(host_failed)? {
        items.push(ResidueItem { kind: ResidueKind::Mount, what: mount });
    }
    for port in host.listening(&task.ports).await.map_err(host_failed)? {
        items.push(ResidueItem { kind: ResidueKind::Port, what: port.to_string() });
    }
    for unit in &task.units {
        if host.unit(unit).await.map_err(host_failed)?.is_some() {
            items.push(ResidueItem { kind: ResidueKind::Unit, what: unit.clone() });
        }
    }
    // Without a prefix every process of the node would match, the agent's own among them.
    if !task.process_prefixes.is_empty() {
        for process in host.processes(&task.process_prefixes).await.map_err(host_failed)? {
            items.push(ResidueItem {
                kind: ResidueKind::Process,
                what: format!("{} ({})", process.program, process.pid),
            });
        }
    }
    items.truncate(ResidueReport::ITEMS_MAX);
    Ok(ResidueReport { items })
}

//! `host.residue`: lists what an app left behind.

use camino::Utf8Path;
use gpuaas_wire::task::{Residue, ResidueItem, ResidueKind, ResidueReport, TaskFailure};

use crate::context::{Context, host_failed};

/// Looks.
pub(crate) async fn run(task: Residue, context: Context) -> Result<ResidueReport, TaskFailure> {
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

//! Formats nodes for people.

use std::collections::BTreeMap;

use gpuaas_api_types::{
    Allocation, DataDisk, FixedNode, Gpu, MachineFacts, Node, NodeFacts, NodeLedger, PreflightFinding,
};

use super::waiting_shown;
use crate::duration::format_age;

/// Digits of a machine id that are shown: enough to tell two apart.
const ID_SHOWN: usize = 12;

pub(super) fn described(node: &Node) -> String {
    let mut lines = vec![format!("{}   {}", node.name, first_line(node).join(" · "))];
    lines.extend(node.waiting.iter().map(|waiting| format!("waiting     {}", waiting_shown::cell(Some(waiting)))));
    lines.extend(node.allocation.iter().map(held_line));
    lines.extend(node.agent_problem.iter().flat_map(|problem| {
        let summary = format!(
            "problem     accepts no tasks for {}; the node reports: {} ({})",
            format_age(&problem.since),
            problem.detail,
            problem.code
        );
        [summary, format!("  {}", problem.next)]
    }));
    lines.extend(node.machine_changed.iter().map(|change| {
        let before: String = change.before.chars().take(ID_SHOWN).collect();
        format!(
            "changed     it came back on another machine {} ago; earlier machine id {before}…",
            format_age(&change.at)
        )
    }));
    if let Some(facts) = &node.facts {
        lines.extend(facts.machine.iter().map(|machine| machine_line(node, facts, machine)));
        let disk = facts.machine.as_ref().and_then(|machine| machine.data_disk.as_ref());
        lines.extend(disk.map(disk_line));
    }
    lines.extend(node.ledger.iter().map(ledger_line));
    lines.extend(preflight_lines(node));
    let labels = node.labels.iter().map(|(name, value)| format!("{name}={value}"));
    let place: Vec<String> = node.region.iter().map(|region| format!("region {region}")).chain(labels).collect();
    lines.extend((!place.is_empty()).then(|| format!("place       {}", place.join(" · "))));
    lines.push(format!("id          {}", node.id));
    lines.extend(next(node).map(|next| format!("next        {next}")));
    lines.join("\n")
}

fn held_line(of: &Allocation) -> String {
    let member = of.member.as_ref().map(|member| format!(", member {member}")).unwrap_or_default();
    let workload =
        of.workload.as_ref().map_or_else(|| "no workload".to_owned(), |name| format!("workload {name}{member}"));
    format!("held by     project {} · {workload} · allocation {} ({})", of.project_name, of.id, of.state)
}

fn ledger_line(of: &NodeLedger) -> String {
    let id: String = of.id.chars().take(ID_SHOWN).collect();
    let NodeLedger { written, fence, .. } = of;
    format!("ledger      {id}… · {written} starts and ends of tasks · highest fence {fence} · at its latest connection")
}

/// Returns what to do with a node that cannot be used, if its state tells.
fn next(node: &Node) -> Option<String> {
    let name = &node.name;
    match (node.state.as_str(), node.connectivity.as_str()) {
        ("registered", _) => Some(format!("enroll its machine: gpuaas node enroll {name}")),
        ("needs_reimage", _) => Some(format!("reimage its machine, then: gpuaas node reset {name}")),
        ("retired", _) => Some(format!("delete it: gpuaas node delete {name}")),
        ("enrolled", _) | (_, "stale" | "unreachable") => {
            Some("on its machine, as operator: systemctl status gpuaas-agent".to_owned())
        }
        _ => None,
    }
}

pub(super) fn fixed(fixed: &FixedNode) -> String {
    let mut lines = vec![match fixed.changed {
        true => format!("{}: fix {} applied, stored in {}", fixed.node.name, fixed.fix, fixed.path),
        false => format!("{}: fix {} was applied already ({})", fixed.node.name, fixed.fix, fixed.path),
    }];
    lines.extend(fixed.applied.iter().map(|applied| match &applied.before {
        Some(before) => format!("  {}: {before} → {}", applied.name, applied.now),
        None => format!("  {}: {}", applied.name, applied.now),
    }));
    lines.extend(preflight_lines(&fixed.node));
    lines.join("\n")
}

fn first_line(node: &Node) -> Vec<String> {
    let since = format_age(&node.connectivity_since);
    let connectivity = match node.connectivity.as_str() {
        "connected" => format!("connected for {since}"),
        "never" => "never connected".to_owned(),
        other => format!("{other} for {since}"),
    };
    let mut parts = vec![node.state.clone(), connectivity];
    parts.extend(
        node.clock_skew_seconds
            .filter(|skew| *skew != 0)
            .map(|skew| format!("clock {} s {}", skew.unsigned_abs(), if skew > 0 { "ahead" } else { "behind" })),
    );
    parts.extend(node.agent_version.iter().map(|version| format!("agent {version}")));
    if let Some(facts) = &node.facts {
        parts.push(short_os_name(&facts.os));
        parts.push(cores(facts));
        parts.push(bytes(facts.memory_bytes));
        parts.extend(facts.machine.iter().flat_map(|machine| gpus(&machine.gpus)));
        parts.extend(facts.sandbox.then(|| "sandbox".to_owned()));
    }
    parts
}

/// Shortens `Debian GNU/Linux 12 (bookworm)` to `Debian 12`.
fn short_os_name(name: &str) -> String {
    name.split(" (").next().unwrap_or(name).replace(" GNU/Linux", "")
}

fn cores(facts: &NodeFacts) -> String {
    match &facts.machine {
        Some(of) if of.cpu_sockets > 1 => format!("{}×{} cores", of.cpu_sockets, of.cpu_cores / of.cpu_sockets),
        Some(of) => format!("{} cores", of.cpu_cores),
        None => format!("{} cores", facts.cpus),
    }
}

fn gpus(gpus: &[Gpu]) -> Vec<String> {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for gpu in gpus {
        let name = gpu.model.as_deref().map_or(gpu.pci_id.as_str(), |model| model.trim_start_matches("NVIDIA "));
        *kinds.entry(name).or_default() += 1;
    }
    kinds.into_iter().map(|(name, many)| format!("{many}×{name}")).collect()
}

fn machine_line(node: &Node, facts: &NodeFacts, machine: &MachineFacts) -> String {
    let mut parts = vec![format!("Linux {} {}", facts.kernel, facts.arch)];
    parts.extend((!machine.product.is_empty()).then(|| machine.product.clone()));
    parts.extend(facts.addresses.first().cloned());
    parts.extend(machine.default_route.as_ref().map(|route| {
        let via = route.gateway.as_ref().map(|gateway| format!("via {gateway} ")).unwrap_or_default();
        format!("{via}dev {} (MTU {})", route.link, route.mtu)
    }));
    let service = machine.clock_service.as_deref();
    parts.extend(match machine.clock.as_str() {
        "synchronized" => Some(format!("clock by {}", service.unwrap_or("an unknown service"))),
        "not_yet" | "no_time_service" => Some("clock not synchronized".to_owned()),
        _ => None,
    });
    parts.extend(node.inspected_at.iter().map(|at| format!("inspected {} ago", format_age(at))));
    format!("machine     {}", parts.join(" · "))
}

fn disk_line(disk: &DataDisk) -> String {
    let on = &disk.file_system;
    let mut parts = vec![
        format!("{} on {} ({})", disk.folder, on.device, on.kind),
        format!("{} free of {}", bytes(on.free_bytes), bytes(on.size_bytes)),
    ];
    parts.extend(
        disk.writes.iter().map(|writes| format!("write latency p99 {:.1} ms", f64::from(writes.p99_us) / 1_000.0)),
    );
    format!("disk        {}", parts.join(" · "))
}

fn preflight_lines(node: &Node) -> Vec<String> {
    let Some(preflight) = &node.preflight else { return Vec::new() };
    let is_blocking = |finding: &&PreflightFinding| finding.severity == "blocking";
    let blocking = preflight.findings.iter().filter(is_blocking).count();
    let warnings = preflight.findings.len() - blocking;
    let mut counts = vec![format!("✓ {} passed", preflight.passed)];
    counts.extend((blocking > 0).then(|| format!("✗ {blocking} blocking")));
    counts
        .extend((warnings > 0).then(|| format!("! {warnings} {}", if warnings == 1 { "warning" } else { "warnings" })));
    let mut lines = vec![format!("preflight   {}", counts.join("   "))];
    for finding in &preflight.findings {
        let mark = if is_blocking(&finding) { "✗" } else { "!" };
        // The control plane made the command; the prose comes from the node and is not trusted.
        let fix = finding
            .command
            .as_ref()
            .map_or_else(|| format!("Advice of the agent: {}", finding.fix), |fix| format!("Fix: {fix}"));
        lines.push(format!("  {mark} {}.  {fix}   ({})", finding.detail, finding.check));
        lines.extend(
            finding.evidence.iter().filter(|_| is_blocking(&finding)).map(|seen| format!("      evidence: {seen}")),
        );
        // Without this line, the finding is of the inspection whose age the line `machine` shows.
        lines.extend(finding.found_at.iter().filter(|at| node.inspected_at.as_ref() != Some(*at)).map(|at| {
            let by = finding.workload.as_ref().map(|name| format!("the preflight of workload {name}"));
            format!("      found {} ago by {}", format_age(at), by.as_deref().unwrap_or("an earlier inspection"))
        }));
    }
    lines
}

/// Formats a size in GiB, or in TiB from 1000 GiB.
fn bytes(bytes: u64) -> String {
    const GIB: u64 = 1 << 30;
    match bytes {
        tib if tib >= 1_000 * GIB => format!("{:.0} TiB", tib as f64 / (1_024 * GIB) as f64),
        gib => format!("{:.0} GiB", gib as f64 / GIB as f64),
    }
}

#[cfg(test)]
mod tests;

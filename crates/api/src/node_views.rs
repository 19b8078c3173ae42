//! Converts nodes to API types.

use gpuaas_api_types::{
    AppliedFix, DataDisk, DefaultRoute, FileSystem, FixedNode, Gpu, MachineChange, MachineFacts, Node, NodeFacts,
    NodeLedger, NodeProblem, Preflight, PreflightFinding, WriteLatency,
};
use gpuaas_engine::{
    Caller, CommandError,
    commands::fix::FixResult,
    ownership::{VisibleNode, reenroll_hint},
};
use gpuaas_model::{Check, Name};
use gpuaas_store::{EnrollmentRecord, NodeFinding, NodePreflight};
use gpuaas_wire::task::{self, ClockSync, HostFacts, Severity};

use crate::waiting;

/// Converts a node with all its details; `enrollment` is a string of it that can be redeemed now.
pub(crate) fn node(node: VisibleNode, enrollment: Option<&EnrollmentRecord>) -> Node {
    let record = node.into_record();
    let waiting = waiting::of_node(&record, enrollment);
    let machine = record.machine;
    let preflight = record.preflight.map(|report| preflight(report, &record.name));
    Node {
        id: record.id.to_string(),
        name: record.name.to_string(),
        region: record.region,
        labels: record.labels,
        state: record.state.to_string(),
        connectivity: record.connectivity.to_string(),
        connectivity_since: record.connectivity_since.to_string(),
        clock_skew_seconds: record.clock_skew_seconds,
        agent_version: record.agent_version,
        agent_problem: record.agent_problem.map(|problem| NodeProblem {
            code: problem.code.to_string(),
            detail: problem.detail,
            since: problem.since.to_string(),
            next: reenroll_hint(&record.name),
        }),
        ledger: record.ledger.map(|of| NodeLedger { id: of.id, written: of.written, fence: of.fence }),
        machine_id: record.machine_id,
        machine_changed: record
            .machine_changed
            .map(|change| MachineChange { at: change.at.to_string(), before: change.before }),
        facts: record.facts.map(|of_host| facts(of_host, machine)),
        preflight,
        inspected_at: record.inspected_at.map(|at| at.to_string()),
        waiting,
        allocation: None,
        created_at: record.created_at.to_string(),
    }
}

/// Converts the result of a fix, with the node's present state.
pub(crate) fn fixed(caller: &Caller, done: FixResult) -> Result<FixedNode, CommandError> {
    let applied = |of: task::Applied| AppliedFix { name: of.name, before: of.before, now: of.now };
    Ok(FixedNode {
        node: node(VisibleNode::of_platform(caller, done.node)?, None),
        fix: done.kind.to_string(),
        path: done.fixed.path,
        changed: done.fixed.changed,
        applied: done.fixed.applied.into_iter().map(applied).collect(),
    })
}

fn facts(facts: HostFacts, of_machine: Option<task::MachineFacts>) -> NodeFacts {
    NodeFacts {
        os: facts.os,
        kernel: facts.kernel,
        arch: facts.arch,
        cpus: facts.cpus,
        memory_bytes: facts.memory_bytes,
        addresses: facts.addresses,
        sandbox: facts.sandbox,
        machine: of_machine.map(machine),
    }
}

fn machine(facts: task::MachineFacts) -> MachineFacts {
    let (clock, clock_service) = clock(facts.clock);
    let gpu = |gpu: task::GpuFacts| Gpu {
        bus: gpu.bus,
        pci_id: gpu.pci_id,
        model: gpu.model,
        memory_bytes: gpu.memory_bytes,
    };
    let route = |route: task::RouteFacts| DefaultRoute { gateway: route.gateway, link: route.link, mtu: route.mtu };
    MachineFacts {
        cpu_model: facts.cpu_model,
        cpu_sockets: facts.cpu_sockets,
        cpu_cores: facts.cpu_cores,
        swap_bytes: facts.swap_bytes,
        product: facts.product,
        gpus: facts.gpus.into_iter().map(gpu).collect(),
        gpu_driver: facts.gpu_driver,
        file_systems: facts.file_systems.into_iter().map(file_system).collect(),
        data_disk: facts.data_disk.map(data_disk),
        default_route: facts.default_route.map(route),
        name_servers: facts.name_servers,
        clock: clock.to_owned(),
        clock_service,
    }
}

fn data_disk(disk: task::DataDisk) -> DataDisk {
    let writes = |of: task::WriteLatency| WriteLatency {
        writes: of.writes,
        p50_us: of.p50_us,
        p99_us: of.p99_us,
        max_us: of.max_us,
    };
    DataDisk { folder: disk.folder, file_system: file_system(disk.on), writes: disk.writes.map(writes) }
}

fn file_system(of: task::FileSystemFacts) -> FileSystem {
    FileSystem { path: of.path, device: of.device, kind: of.kind, size_bytes: of.size_bytes, free_bytes: of.free_bytes }
}

fn clock(clock: ClockSync) -> (&'static str, Option<String>) {
    match clock {
        ClockSync::ByMachine => ("by_machine", None),
        ClockSync::Synchronized { by } => ("synchronized", by),
        ClockSync::NotYet { by } => ("not_yet", Some(by)),
        ClockSync::NoTimeService => ("no_time_service", None),
        ClockSync::Unknown => ("unknown", None),
    }
}

fn preflight(report: NodePreflight, node: &Name) -> Preflight {
    let findings = report.findings.into_iter().map(|found| finding(found, node)).collect();
    Preflight { passed: report.passed, findings }
}

/// Converts a finding and adds the command that fixes it. The control plane, not the node, chooses the command.
fn finding(NodeFinding { finding, found }: NodeFinding, node: &Name) -> PreflightFinding {
    let (found_at, operation) = found.map_or((None, None), |found| (Some(found.at), found.operation));
    let fix = finding.check.parse::<Check>().ok().and_then(Check::fix);
    PreflightFinding {
        command: fix.map(|fix| format!("gpuaas node fix {node} {fix}")),
        check: finding.check,
        severity: match finding.severity {
            Severity::Warning => "warning",
            Severity::Blocking => "blocking",
        }
        .to_owned(),
        detail: finding.detail,
        evidence: finding.evidence,
        fix: finding.fix,
        found_at: found_at.map(|at| at.to_string()),
        workload: operation.as_ref().map(|(_, workload)| workload.to_string()),
        operation: operation.map(|(id, _)| id.to_string()),
    }
}

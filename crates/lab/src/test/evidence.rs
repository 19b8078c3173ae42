//! Evidence of why a scenario failed: kept in files that outlive the lab, and printed at the failure.

use std::{fs, time::Duration};

use anyhow::Context;
use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_api_types::{Event, Fault, OperationDetail};

use super::{check, control_plane::ControlPlane, following::Stream, parts::Prepared};
use crate::node::{Lab, Node};

/// Units whose journals explain most failures.
const UNITS: [&str; 4] = ["gpuaas-agent", "gpuaas-server", "rke2-server", "rke2-agent"];
/// Lines of a unit's journal that are printed.
const TAIL: usize = 12;
/// Events of an operation that are printed.
const EVENTS: usize = 15;
/// Longest command in a node.
const LOOK_MAX: Duration = Duration::from_secs(20);

/// Files in a scenario's folder: its input, the number of checks that passed, and why it failed.
const INPUT: &str = "given.json";
const PASSED: &str = "held";
const FAILURE: &str = "failure";

/// Empties a scenario's evidence folder and writes its input there; returns the file.
pub(super) fn write_input(scenario: &str, prepared: &Prepared) -> anyhow::Result<Utf8PathBuf> {
    let given = prepared.for_scenario(scenario);
    let folder = given.evidence();
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| folder.to_string())?;
    }
    fs::create_dir_all(folder).with_context(|| folder.to_string())?;
    let file = folder.join(INPUT);
    fs::write(&file, serde_json::to_vec(&given)?).with_context(|| file.to_string())?;
    Ok(file)
}

/// Reads the input of a scenario.
pub(super) fn read_input(file: &Utf8Path) -> anyhow::Result<Prepared> {
    let text = fs::read(file).with_context(|| file.to_string())?;
    serde_json::from_slice(&text).with_context(|| file.to_string())
}

/// Writes the number of checks that passed in this process.
pub(super) fn save_passed(folder: &Utf8Path) -> anyhow::Result<()> {
    fs::write(folder.join(PASSED), check::passed().to_string()).context("saving the number of passed checks")
}

/// Reads how many checks of a scenario passed the last time.
pub(super) fn passed(scenario: &str, prepared: &Prepared) -> anyhow::Result<u32> {
    let file = prepared.for_scenario(scenario).evidence().join(PASSED);
    fs::read_to_string(&file).with_context(|| file.to_string())?.parse().with_context(|| file.to_string())
}

/// Writes why this process fails; returns the error if that is impossible.
pub(super) fn save_failure(folder: &Utf8Path, error: anyhow::Error) -> anyhow::Result<()> {
    fs::write(folder.join(FAILURE), format!("{error:#}")).map_err(|_| error)
}

/// Reads why a scenario failed, if its process could write it.
pub(super) fn failure(scenario: &str, prepared: &Prepared) -> Option<String> {
    fs::read_to_string(prepared.for_scenario(scenario).evidence().join(FAILURE)).ok()
}

/// Saves every node's journal and prints the last lines of the important units. Never fails: it runs after another failure.
pub(super) fn gather(lab: &Lab, folder: &Utf8Path) {
    for node in lab.nodes().into_iter().flatten() {
        let file = folder.join(format!("{}.journal", node.name()));
        match output(&node, &["journalctl", "--no-pager", "--output=short-precise"]) {
            Ok(journal) => {
                let _ = fs::write(&file, journal);
            }
            Err(error) => eprintln!("  {}: {error:#}", node.name()),
        }
        for unit in UNITS {
            print_tail(&node, unit);
        }
    }
    eprintln!("  logs and journals: {folder}");
}

fn print_tail(node: &Node, unit: &str) {
    let lines = TAIL.to_string();
    let words = ["journalctl", "--no-pager", "--quiet", "--output=short-monotonic", "--unit", unit, "--lines", &lines];
    let Ok(journal) = output(node, &words) else { return };
    if !journal.trim().is_empty() {
        eprintln!("  {} {unit}", node.name());
        journal.lines().for_each(|line| eprintln!("    {line}"));
    }
}

fn output(node: &Node, argv: &[&str]) -> anyhow::Result<String> {
    Ok(String::from_utf8_lossy(&node.run_within(LOOK_MAX, argv)?.stdout).into_owned())
}

/// Describes why an operation ended as it did: its last events, each step that did not succeed, and last its fault with the next action.
pub(super) fn describe_operation(control_plane: &ControlPlane, detail: &OperationDetail) -> String {
    describe(detail, &control_plane.events(Stream::Project).unwrap_or_default())
}

fn describe(detail: &OperationDetail, events: &[Event]) -> String {
    let operation = &detail.operation;
    let mut text = String::new();
    let is_its = |event: &&Event| {
        event.subject_id == operation.id || event.data.get("operation").is_some_and(|id| *id == operation.id)
    };
    let its: Vec<&Event> = events.iter().filter(is_its).collect();
    for event in &its[its.len().saturating_sub(EVENTS)..] {
        text.push_str(&format!("\n    event {} {} {}", event.at, event.kind, event.data));
    }
    for step in detail.steps.iter().filter(|step| step.state != "succeeded") {
        text.push_str(&format!("\n    step {} is {} after {} attempts", step.key, step.state, step.attempts));
        text.extend(step.fault.iter().map(|fault| format!(": {}", describe_fault(fault))));
        text.extend(step.detail.iter().map(|detail| format!(" ({detail})")));
    }
    text.push_str(&format!("\n    the {} {} is {}", operation.kind, operation.id, operation.state));
    text.extend(operation.fault.iter().map(|fault| format!(": {}", describe_fault(fault))));
    text
}

/// Describes a fault with its evidence and the next action.
pub(super) fn describe_fault(fault: &Fault) -> String {
    let seen = fault.evidence.as_deref().unwrap_or("no evidence");
    let command = fault.command.as_ref().map_or_else(String::new, |command| format!(" ({command})"));
    format!("{}: {}; {seen}; next: {}{command}", fault.code, fault.summary, fault.next)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn failed_operation_ends_with_its_fault_and_the_next_action() {
        let fault = json!({
            "code": "disk_full", "summary": "node-1 has no space", "evidence": "write: no space", "next": "free some space",
            "command": "gpuaas workload resume w",
        });
        let detail = serde_json::from_value(json!({
            "operation": {
                "id": "operation-1", "workload": "w", "kind": "deploy", "state": "needs_attention", "requested_by": "lab",
                "created_at": "", "fault": fault,
            },
            "steps": [
                { "key": "node-1/install", "phase": "install", "state": "failed", "attempts": 3, "fault": fault },
                { "key": "node-1/fetch", "phase": "install", "state": "succeeded", "attempts": 1 },
            ],
        }));
        let event = |subject: &str| {
            serde_json::from_value::<Event>(json!({
                "stream": "project/p", "sequence": 1, "at": "", "kind": "step.failed", "subject_kind": "operation",
                "subject_id": subject, "data": {},
            }))
        };
        let events = ["operation-1", "another"].map(|subject| event(subject).expect("a valid event"));
        let text = describe(&detail.expect("a valid operation"), &events);
        let starts: Vec<&str> =
            text.lines().skip(1).map(|line| line.trim().split(' ').next().unwrap_or_default()).collect();
        assert_eq!(starts, ["event", "step", "the"], "{text}");
        assert!(text.ends_with("write: no space; next: free some space (gpuaas workload resume w)"), "{text}");
    }
}

//! What tells why a story failed: kept in files that outlive the lab, and said where it happened.

use std::{fs, time::Duration};

use anyhow::Context;
use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_api_types::{Event, Fault, OperationDetail};

use super::{
    check,
    control_plane::ControlPlane,
    following::Stream,
    prepare::{self, Prepared},
};
use crate::lab::node::{Lab, Node};

/// Units whose journals say why something did not come about.
const UNITS: [&str; 4] = ["gpuaas-agent", "gpuaas-server", "rke2-server", "rke2-agent"];
/// Lines of a unit's journal that are said.
const TAIL: usize = 12;
/// Events of an operation that are said.
const EVENTS: usize = 15;
/// Longest look into a node.
const LOOK_MAX: Duration = Duration::from_secs(20);

/// Within a story's folder: what it is given, and how many of its checks held.
const GIVEN: &str = "given.json";
const HELD: &str = "held";

fn folder_of(story: &str) -> anyhow::Result<Utf8PathBuf> {
    Ok(prepare::folder()?.join("evidence").join(story))
}

/// Empties a story's folder of evidence and writes down there what the story is given; returns that file.
pub(super) fn give(story: &str, prepared: &Prepared) -> anyhow::Result<Utf8PathBuf> {
    let folder = folder_of(story)?;
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.to_string())?;
    }
    fs::create_dir_all(&folder).with_context(|| folder.to_string())?;
    let file = folder.join(GIVEN);
    fs::write(&file, serde_json::to_vec(&prepared.for_story(&folder))?).with_context(|| file.to_string())?;
    Ok(file)
}

/// What a story is given.
pub(super) fn given(file: &Utf8Path) -> anyhow::Result<Prepared> {
    let text = fs::read(file).with_context(|| file.to_string())?;
    serde_json::from_slice(&text).with_context(|| file.to_string())
}

/// Writes down how many checks of this story held.
pub(super) fn keep_held(folder: &Utf8Path) -> anyhow::Result<()> {
    fs::write(folder.join(HELD), check::held().to_string()).context("counting the story's checks")
}

/// How many checks of a story held when it was told last.
pub(super) fn held(story: &str) -> anyhow::Result<u32> {
    let file = folder_of(story)?.join(HELD);
    fs::read_to_string(&file).with_context(|| file.to_string())?.parse().with_context(|| file.to_string())
}

/// Keeps every node's journal, and says the ends of those that matter. Fails at nothing: something else has failed before.
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
            say_tail(&node, unit);
        }
    }
    eprintln!("  logs and journals: {folder}");
}

fn say_tail(node: &Node, unit: &str) {
    let lines = TAIL.to_string();
    let words = ["journalctl", "--no-pager", "--quiet", "--output=short-monotonic", "--unit", unit, "--lines", &lines];
    let Ok(journal) = output(node, &words) else { return };
    if !journal.trim().is_empty() {
        eprintln!("  {} {unit}", node.name());
        journal.lines().for_each(|line| eprintln!("    {line}"));
    }
}

fn output(node: &Node, words: &[&str]) -> anyhow::Result<String> {
    Ok(String::from_utf8_lossy(&node.run_within(LOOK_MAX, words)?.stdout).into_owned())
}

/// Why an operation ended as it did: its fault, each step that did not succeed, and its last events.
pub(super) fn of_operation(control_plane: &ControlPlane, detail: &OperationDetail) -> String {
    let operation = &detail.operation;
    let mut told = format!("the {} {} is {}", operation.kind, operation.id, operation.state);
    told.extend(operation.fault.iter().map(|fault| format!("\n    {}", of_fault(fault))));
    for step in detail.steps.iter().filter(|step| step.state != "succeeded") {
        told.push_str(&format!("\n    step {} is {} after {} attempts", step.key, step.state, step.attempts));
        told.extend(step.fault.iter().map(|fault| format!(": {}", of_fault(fault))));
        told.extend(step.detail.iter().map(|detail| format!(" ({detail})")));
    }
    let is_its = |event: &&Event| {
        event.subject_id == operation.id || event.data.get("operation").is_some_and(|id| *id == operation.id)
    };
    let events = control_plane.events(Stream::Project).unwrap_or_default();
    let its: Vec<&Event> = events.iter().filter(is_its).collect();
    for event in &its[its.len().saturating_sub(EVENTS)..] {
        told.push_str(&format!("\n    event {} {} {}", event.at, event.kind, event.data));
    }
    told
}

fn of_fault(fault: &Fault) -> String {
    let seen = fault.evidence.as_deref().unwrap_or("nothing was seen");
    format!("{}: {}; {seen}", fault.code, fault.summary)
}

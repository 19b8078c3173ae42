//! The steps of a workload's life: what is requested of the platform, and what must be true afterwards.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{
    comparison::LABEL_VALUE,
    expectation::{Expected, Lifecycle, POLL_EVERY, Role},
    observation::{CONFIG, LABEL},
    work,
};
use crate::demo::running::{RunningDemo, WAIT_MAX, WORKLOAD};

/// Time in which a platform that reconciles by itself has corrected a drift. Afterwards, the demo requests a reconcile as a person does.
const PLATFORM_CORRECTS_WITHIN: Duration = Duration::from_secs(15);
/// Program of the distribution, relative to the node's root.
const PROGRAM: &str = "usr/local/bin/rke2";

/// A step.
pub(super) struct Step {
    pub(super) name: &'static str,
    /// The request in words.
    pub(super) requested: &'static str,
    /// Carries the step out, waits until its operation has succeeded, and changes the expectations accordingly.
    pub(super) act: fn(&RunningDemo, &mut Expected) -> anyhow::Result<()>,
}

/// The node of the server, the first agent's, the one that comes and goes, and the one that replaces it.
const SERVER: &str = "demo-1";
pub(super) const FIRST: &str = "demo-2";
pub(super) const ADDED: &str = "demo-3";
const REPLACING: &str = "demo-4";

/// The steps in their order.
pub(super) const STEPS: [Step; 12] = [
    Step { name: "deploy", requested: "deploy a server on demo-1 and an agent on demo-2", act: deploy },
    Step { name: "add", requested: "add an agent on demo-3", act: |running, expected| add(running, expected, 4) },
    Step { name: "drain", requested: "drain the agent on demo-3", act: drain },
    Step { name: "uncordon", requested: "uncordon it", act: uncordon },
    Step { name: "remove", requested: "remove it", act: remove },
    Step { name: "add-again", requested: "add demo-3 again", act: |running, expected| add(running, expected, 5) },
    Step { name: "replace", requested: "replace the agent on demo-3 by one on demo-4", act: replace },
    Step { name: "stop", requested: "stop the workload", act: stop },
    Step { name: "start", requested: "start it", act: start },
    Step {
        name: "drift",
        requested: "change a file and disable a unit by hand, and wait for the correction",
        act: drift,
    },
    Step {
        name: "repair",
        requested: "break the program on demo-2, kill the distribution, and repair the agent",
        act: repair,
    },
    Step { name: "decommission", requested: "decommission the workload", act: decommission },
];

/// Returns what must be true after the first step.
pub(super) fn after_deploy() -> Expected {
    Expected::running(SERVER, FIRST, 2)
}

fn deploy(running: &RunningDemo, expected: &mut Expected) -> anyhow::Result<()> {
    let config = serde_json::json!({ "node_labels": { LABEL: LABEL_VALUE } }).to_string();
    let placed = ["--name", WORKLOAD, "--server", SERVER, "--agent", FIRST, "--config", &config];
    running.gpuaas(&[&["workload", "deploy", "rke2"], &placed[..], &["--wait"]].concat())?;
    running.fetch_kubeconfig()?;
    for node in [SERVER, FIRST] {
        work::await_schedulable(running, node)?;
    }
    work::apply(running, expected.replicas)
}

/// Adds an agent, and more pods, of which at least one goes to it.
fn add(running: &RunningDemo, expected: &mut Expected, replicas: usize) -> anyhow::Result<()> {
    operate(running, &["add-member", WORKLOAD, "--agent", ADDED])?;
    work::await_schedulable(running, ADDED)?;
    work::scale(running, replicas)?;
    expected.add(ADDED);
    (expected.replicas, expected.busy) = (replicas, Some(ADDED));
    Ok(())
}

fn drain(running: &RunningDemo, expected: &mut Expected) -> anyhow::Result<()> {
    operate(running, &["drain-member", WORKLOAD, &member_on(running, ADDED)?, "--yes"])?;
    expected.set_drained(ADDED, true);
    expected.busy = None;
    Ok(())
}

fn uncordon(running: &RunningDemo, expected: &mut Expected) -> anyhow::Result<()> {
    operate(running, &["uncordon-member", WORKLOAD, &member_on(running, ADDED)?])?;
    expected.set_drained(ADDED, false);
    Ok(())
}

fn remove(running: &RunningDemo, expected: &mut Expected) -> anyhow::Result<()> {
    let ended = operate(running, &["remove-member", WORKLOAD, &member_on(running, ADDED)?, "--yes"])?;
    expected.remove(ADDED);
    ensure_clean(&ended, 1)
}

fn replace(running: &RunningDemo, expected: &mut Expected) -> anyhow::Result<()> {
    let old = member_on(running, ADDED)?;
    let ended = operate(running, &["replace-member", WORKLOAD, &old, "--by", REPLACING, "--yes"])?;
    expected.remove(ADDED);
    expected.add(REPLACING);
    expected.busy = None;
    ensure_clean(&ended, 1)
}

fn stop(running: &RunningDemo, expected: &mut Expected) -> anyhow::Result<()> {
    let pods = running.kubectl(&["get", "pods", "--output", "jsonpath={.items[*].metadata.name}"])?;
    operate(running, &["stop", WORKLOAD, "--yes"])?;
    expected.lifecycle = Lifecycle::Stopped;
    expected.kept = pods.split_whitespace().map(str::to_owned).collect();
    Ok(())
}

fn start(running: &RunningDemo, expected: &mut Expected) -> anyhow::Result<()> {
    operate(running, &["start", WORKLOAD])?;
    expected.lifecycle = Lifecycle::Running;
    Ok(())
}

fn drift(running: &RunningDemo, expected: &mut Expected) -> anyhow::Result<()> {
    let written = fs::read_to_string(running.root(FIRST).join(CONFIG)).context("reading the configuration")?;
    change_config(running)?;
    running.systemctl_ok(FIRST, &["disable", Role::Agent.unit()])?;
    await_correction(running, &written)?;
    expected.config = Some((FIRST, written));
    Ok(())
}

/// Changes the configuration file of an agent as a person with an editor does.
pub(super) fn change_config(running: &RunningDemo) -> anyhow::Result<()> {
    let path = running.root(FIRST).join(CONFIG);
    let mut file = fs::File::options().append(true).open(&path).with_context(|| format!("opening {path}"))?;
    file.write_all(b"# changed by hand\n").with_context(|| format!("changing {path}"))
}

/// Waits until the drift is gone. Requests a reconcile if the platform does not correct it by itself.
fn await_correction(running: &RunningDemo, written: &str) -> anyhow::Result<()> {
    let is_corrected = || -> anyhow::Result<bool> {
        let boot = running.systemctl(FIRST, &["is-enabled", Role::Agent.unit()])?;
        let config = fs::read_to_string(running.root(FIRST).join(CONFIG)).unwrap_or_default();
        Ok(config == written && String::from_utf8_lossy(&boot.stdout).trim() == "enabled")
    };
    let began = Instant::now();
    while began.elapsed() < PLATFORM_CORRECTS_WITHIN {
        if is_corrected()? {
            println!("    corrected by the platform itself after {:.1} s", began.elapsed().as_secs_f64());
            return Ok(());
        }
        std::thread::sleep(POLL_EVERY);
    }
    operate(running, &["reconcile", WORKLOAD])?;
    ensure!(is_corrected()?, "the reconcile succeeded, but {FIRST} still deviates");
    println!("    corrected by a reconcile that the demo requested");
    Ok(())
}

fn repair(running: &RunningDemo, _: &mut Expected) -> anyhow::Result<()> {
    let member = member_on(running, FIRST)?;
    let began = Instant::now();
    break_member(running)?;
    until("the report of the dead service", || Ok(health_of(running, &member)? == "degraded"))?;
    println!("    the API shows the dead service after {:.1} s", began.elapsed().as_secs_f64());
    operate(running, &["repair", WORKLOAD, "--scope", "member", "--member", &member, "--yes"]).map(drop)
}

/// Kills an agent's distribution and replaces its program by one that fails, so that no restart of the unit succeeds.
fn break_member(running: &RunningDemo) -> anyhow::Result<()> {
    let program = running.root(FIRST).join(PROGRAM);
    // A new file, because a program that runs cannot be written. Without any, the sandbox would run the machine's own.
    fs::remove_file(&program)
        .and_then(|()| fs::write(&program, "#!/bin/sh\nexit 1\n"))
        .and_then(|()| fs::set_permissions(&program, fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("replacing {program}"))?;
    let shown = running.systemctl_ok(FIRST, &["show", Role::Agent.unit()])?;
    let pid = shown.lines().find_map(|line| line.strip_prefix("MainPID=")?.parse::<i32>().ok());
    let pid = pid.and_then(Pid::from_raw).context("the unit has no main process")?;
    kill_process(pid, Signal::KILL).context("killing the distribution")
}

fn decommission(running: &RunningDemo, expected: &mut Expected) -> anyhow::Result<()> {
    let ended = operate(running, &["decommission", WORKLOAD, "--yes"])?;
    let members = expected.members.len();
    expected.lifecycle = Lifecycle::Decommissioned;
    expected.members.clear();
    ensure_clean(&ended, members)
}

/// Starts an operation with a `gpuaas workload` command, waits for its success, and returns it.
fn operate(running: &RunningDemo, arguments: &[&str]) -> anyhow::Result<Value> {
    running.gpuaas(&[&["workload"], arguments, &["--wait"]].concat())
}

/// Returns the name of the member on a node.
fn member_on(running: &RunningDemo, node: &str) -> anyhow::Result<String> {
    let members = members(running)?;
    let member = members.iter().find(|member| member["state"] != "removed" && member["node_name"] == node);
    member
        .and_then(|member| Some(member.get("name")?.as_str()?.to_owned()))
        .with_context(|| format!("there is no member on {node}"))
}

fn health_of(running: &RunningDemo, name: &str) -> anyhow::Result<String> {
    let members = members(running)?;
    let member = members.iter().find(|member| member["name"] == name);
    Ok(member.and_then(|member| member["health"].as_str()).unwrap_or_default().to_owned())
}

fn members(running: &RunningDemo) -> anyhow::Result<Vec<Value>> {
    let shown = running.gpuaas(&["workload", "show", WORKLOAD])?;
    Ok(shown.get("members").and_then(Value::as_array).cloned().unwrap_or_default())
}

/// Verifies that an operation reports this number of cleaned nodes, and that nothing is left on them.
fn ensure_clean(ended: &Value, nodes: usize) -> anyhow::Result<()> {
    let reports = ended.get("residue").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    ensure!(reports.len() == nodes, "{} of {nodes} nodes have a residue report", reports.len());
    for report in reports {
        let has = |field: &str| report.get(field).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        if has("items") || has("unchecked") {
            bail!("the platform reports residue: {report}");
        }
    }
    Ok(())
}

/// Waits until `holds` returns true.
fn until(what: &str, mut holds: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let began = Instant::now();
    while !holds()? {
        ensure!(began.elapsed() < WAIT_MAX, "{what} took too long");
        std::thread::sleep(POLL_EVERY);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_cleaned_node_needs_a_report_without_items() {
        let report = |items: Value, unchecked: Value| json!({ "member": "agent-2", "node_name": "demo-3", "items": items, "unchecked": unchecked });
        let clean = report(json!([]), json!([]));
        assert!(ensure_clean(&json!({ "residue": [clean] }), 1).is_ok());
        assert!(ensure_clean(&json!({}), 1).is_err());
        for left in [report(json!(["path /etc/cni"]), json!([])), report(json!([]), json!(["mounts: no rights"]))] {
            let refused = ensure_clean(&json!({ "residue": [left] }), 1).expect_err("something is left");
            assert!(refused.to_string().contains("demo-3"), "{refused}");
        }
    }
}

//! Verifications of the demo, and how to break the state behind each to see that it fails.

use std::{
    io::Read,
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use serde_json::Value;

use super::{
    report::Report,
    running::{RunningDemo, WORKLOAD},
};

const KUBE_NODES_READY: &str = "kube_nodes_ready";
const NODES_USE_OWN_CERTIFICATES: &str = "nodes_use_own_certificates";
const WORKLOAD_HEALTHY: &str = "workload_healthy";
const KUBECONFIG_SCOPED: &str = "kubeconfig_scoped";
const TASKS_AUDITED: &str = "tasks_audited";
const NODE_FILES_PRIVATE: &str = "node_files_private";
const NOTHING_LEFT: &str = "no_processes_left";

const ALL: [&str; 7] = [
    KUBE_NODES_READY,
    NODES_USE_OWN_CERTIFICATES,
    WORKLOAD_HEALTHY,
    KUBECONFIG_SCOPED,
    TASKS_AUDITED,
    NODE_FILES_PRIVATE,
    NOTHING_LEFT,
];

/// Audit log of the stand-in's apiserver.
const AUDIT_LOG: &str = "var/lib/rancher/rke2/server/logs/audit.log";

/// Longest time for which a task may be open when the demo ends: a drift check takes far less.
const OPEN_TASKS_MAX: Duration = Duration::from_secs(10);

/// Names of the verifications, each of which can be sabotaged.
pub(super) fn names() -> &'static [&'static str] {
    &ALL
}

pub(super) fn check_name(name: &str) -> anyhow::Result<()> {
    anyhow::ensure!(ALL.contains(&name), "unknown verification {name}; the verifications are {}", ALL.join(", "));
    Ok(())
}

/// Breaks the state behind one verification.
pub(super) fn sabotage(running: &RunningDemo, name: &str) -> anyhow::Result<()> {
    match name {
        KUBE_NODES_READY => running.kubectl(&["delete", "node", "demo-3"]).map(|_| ()),
        NODES_USE_OWN_CERTIFICATES => {
            let path = running.root("demo-1").join(AUDIT_LOG);
            let forged = std::fs::read_to_string(&path)?.replace("system:node:demo-2", "system:admin");
            Ok(std::fs::write(path, forged)?)
        }
        WORKLOAD_HEALTHY => stop_agent(running, "demo-3"),
        KUBECONFIG_SCOPED => {
            let admin = std::fs::read(running.root("demo-1").join("etc/rancher/rke2/rke2.yaml"))?;
            Ok(std::fs::write(running.kubeconfig(), admin)?)
        }
        TASKS_AUDITED => {
            running.systemctl_ok("demo-2", &["stop", "gpuaas-agent"])?;
            // Creates a task that is sent and never answered.
            let _ = running.gpuaas(&["node", "ping", "demo-2"]);
            Ok(())
        }
        NODE_FILES_PRIVATE => {
            let token = running.root("demo-2").join("etc/rancher/rke2/token");
            Ok(std::fs::set_permissions(token, std::fs::Permissions::from_mode(0o644))?)
        }
        NOTHING_LEFT => Ok(()),
        other => bail!("no sabotage is defined for {other}"),
    }
}

/// Verifications while everything runs.
pub(super) fn running(running: &RunningDemo, report: &mut Report) -> anyhow::Result<()> {
    kube_nodes_ready(running, report);
    nodes_use_own_certificates(running, report)?;
    workload_healthy(running, report)?;
    kubeconfig_scoped(running, report)?;
    tasks_audited(running, report)?;
    node_files_private(running, report);
    Ok(())
}

/// Verifications after everything ended.
pub(super) fn stopped(running: &RunningDemo, sabotage: Option<&str>, report: &mut Report) -> anyhow::Result<()> {
    let mut planted = match sabotage {
        Some(NOTHING_LEFT) => Some(plant(running)?),
        _ => None,
    };
    let left = running.processes()?;
    let names: Vec<String> = left.iter().map(|process| format!("{} {}", process.pid, process.command.trim())).collect();
    let evidence = if names.is_empty() { "no process names the demo's folder".to_owned() } else { names.join("; ") };
    report.verify(NOTHING_LEFT, names.is_empty(), evidence);
    if let Some(planted) = &mut planted {
        planted.kill()?;
        planted.wait()?;
    }
    Ok(())
}

/// Leaves a process running, and waits until it is visible: the environment of a new process can be read only a moment after its start.
fn plant(running: &RunningDemo) -> anyhow::Result<Child> {
    let mut planted = Command::new("sh")
        .args(["-c", "echo; read nothing"])
        .env("GPUAAS_SANDBOX_ROOT", running.root("demo-1"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("planting a process")?;
    let mut output = [0_u8; 1];
    planted.stdout.as_mut().context("stdout is not piped")?.read_exact(&mut output)?;
    Ok(planted)
}

fn kube_nodes_ready(running: &RunningDemo, report: &mut Report) {
    let seen =
        running.kubectl(&["get", "nodes", "-o", "json"]).and_then(|json| Ok(serde_json::from_str::<Value>(&json)?));
    let nodes = match seen {
        Ok(list) => list.get("items").and_then(Value::as_array).cloned().unwrap_or_default(),
        Err(error) => return report.verify(KUBE_NODES_READY, false, error.to_string()),
    };
    let mut states = Vec::new();
    for node in &nodes {
        let name = node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let conditions = node.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        let ready =
            conditions.filter(|condition| condition["type"] == "Ready").any(|condition| condition["status"] == "True");
        let version = node.pointer("/status/nodeInfo/kubeletVersion").cloned().unwrap_or_default();
        report.nodes.push(serde_json::json!({ "name": name, "ready": ready, "kubelet_version": version }));
        states.push(format!("{name} {}", if ready { "Ready" } else { "NotReady" }));
    }
    let ok = nodes.len() == 3 && states.iter().all(|one| one.ends_with(" Ready"));
    report.verify(KUBE_NODES_READY, ok, states.join(", "));
}

/// Verifies in the apiserver's audit log that each node wrote its own KubeNode and Lease with its own certificate.
fn nodes_use_own_certificates(running: &RunningDemo, report: &mut Report) -> anyhow::Result<()> {
    let log =
        std::fs::read_to_string(running.root("demo-1").join(AUDIT_LOG)).context("reading the apiserver's audit log")?;
    let records: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut missing = Vec::new();
    for node in ["demo-1", "demo-2", "demo-3"] {
        for resource in ["nodes", "leases"] {
            let wrote = records.iter().any(|record| {
                record["user"]["username"] == format!("system:node:{node}")
                    && record["objectRef"]["resource"] == resource
                    && record["verb"] == "create"
                    && record["responseStatus"]["code"] == 201
            });
            if !wrote {
                missing.push(format!("{node} did not create its own {resource}"));
            }
        }
    }
    let evidence = if missing.is_empty() {
        "system:node:NAME created each KubeNode and Lease".to_owned()
    } else {
        missing.join("; ")
    };
    report.verify(NODES_USE_OWN_CERTIFICATES, missing.is_empty(), evidence);
    Ok(())
}

fn workload_healthy(running: &RunningDemo, report: &mut Report) -> anyhow::Result<()> {
    let detail = running.gpuaas(&["workload", "show", WORKLOAD])?;
    let text = |path: &str| detail.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (lifecycle, health) = (text("/workload/lifecycle"), text("/workload/health"));
    let members = detail.get("members").and_then(Value::as_array).cloned().unwrap_or_default();
    let ready = members.iter().filter(|member| member["state"] == "ready" && member["health"] == "healthy").count();
    let ok = lifecycle == "running" && health == "healthy" && ready == 3;
    report.verify(WORKLOAD_HEALTHY, ok, format!("{lifecycle}, {health}, {ready} of {} members ready", members.len()));
    Ok(())
}

/// Verifies that the delivered file has a ServiceAccount's token and no client key, and that only its owner can read it.
fn kubeconfig_scoped(running: &RunningDemo, report: &mut Report) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(running.kubeconfig())?;
    let mode = std::fs::metadata(running.kubeconfig())?.permissions().mode() & 0o777;
    let who = running.kubectl(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]).unwrap_or_default();
    let ok = mode == 0o600 && !text.contains("client-key-data") && who.starts_with("system:serviceaccount:");
    report.verify(KUBECONFIG_SCOPED, ok, format!("mode {mode:o}, acts as {who:?}"));
    Ok(())
}

/// Verifies that every sent task has a key, a digest and both of its audit records. The platform may start a drift check at any time, so tasks
/// may be open.
fn tasks_audited(running: &RunningDemo, report: &mut Report) -> anyhow::Result<()> {
    let until = Instant::now() + OPEN_TASKS_MAX;
    let (ok, evidence) = loop {
        let (ok, evidence) = counted_tasks(running)?;
        if ok || Instant::now() > until {
            break (ok, evidence);
        }
        std::thread::sleep(Duration::from_millis(500));
    };
    report.verify(TASKS_AUDITED, ok, evidence);
    Ok(())
}

fn counted_tasks(running: &RunningDemo) -> anyhow::Result<(bool, String)> {
    let tasks = running.gpuaas(&["task", "list"])?;
    let tasks = tasks.as_array().cloned().unwrap_or_default();
    let count = |action: &str| -> anyhow::Result<usize> {
        let records = running.gpuaas_of_platform(&["audit", "list", "--action", action])?;
        Ok(records.as_array().map_or(0, Vec::len))
    };
    let (sent, ended) = (count("task.dispatch")?, count("task.complete")?);
    let signed = tasks.iter().filter(|task| task["key_id"].is_string() && task["envelope_sha256"].is_string()).count();
    let succeeded = tasks.iter().filter(|task| task["state"] == "succeeded").count();
    let ok = !tasks.is_empty() && [sent, ended, signed, succeeded].iter().all(|&number| number == tasks.len());
    let evidence = format!("{} tasks: {signed} signed, {sent} sent, {ended} ended, {succeeded} succeeded", tasks.len());
    Ok((ok, evidence))
}

fn node_files_private(running: &RunningDemo, report: &mut Report) {
    let mut open = Vec::new();
    let mut seen = 0;
    for node in ["demo-1", "demo-2", "demo-3"] {
        for file in ["etc/rancher/rke2/config.yaml", "etc/rancher/rke2/token", "var/lib/gpuaas-agent/identity.json"] {
            let path = running.root(node).join(file);
            match std::fs::metadata(&path).map(|metadata| metadata.permissions().mode() & 0o777) {
                Ok(0o600) => seen += 1,
                Ok(mode) => open.push(format!("{node}:/{file} is {mode:o}")),
                Err(error) => open.push(format!("{node}:/{file}: {error}")),
            }
        }
    }
    let evidence = if open.is_empty() { format!("{seen} secret files have mode 0600") } else { open.join("; ") };
    report.verify(NODE_FILES_PRIVATE, open.is_empty(), evidence);
}

/// Stops the distribution's agent service on a node and waits until the platform notices.
fn stop_agent(running: &RunningDemo, node: &str) -> anyhow::Result<()> {
    running.systemctl_ok(node, &["stop", "rke2-agent"])?;
    for _ in 0..200 {
        let detail = running.gpuaas(&["workload", "show", WORKLOAD])?;
        if detail.pointer("/workload/health").and_then(Value::as_str) == Some("degraded") {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    bail!("the workload did not become degraded in time")
}

//! Prepares the directories of sandbox nodes, and waits for their agents.

use std::{fs, time::Duration};

use anyhow::{Context, bail};
use camino::Utf8Path;
use futures::StreamExt;
use gpuaas_api_types::{EnrollNode, Node, RegisterNode};
use gpuaas_client::Client;
use gpuaas_model::Code;
use gpuaas_server::write_private;

use super::processes;
use crate::connection::ReadyNode;

/// Longest wait for every started node to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether a sandbox can be started.
pub(super) enum Prepared {
    Startable,
    /// Its agent could not connect; a sentence with the reason and the next step.
    Unusable(String),
}

/// Registers the node if it is new and writes the files that its init needs: the agent's unit and, if the node is to enroll, the enrollment
/// string. A node that was reset or deleted gets an empty sandbox, which is what reimaging is to a machine.
pub(super) async fn prepare(client: &Client, name: &str, root: &Utf8Path) -> anyhow::Result<Prepared> {
    let state = root.join("var/lib/gpuaas-agent");
    let has_identity = || state.join("identity.json").exists();
    let node = match client.get_node(name).await {
        Ok(node) => Some(node),
        Err(error) if error.code() == Code::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("reading node {name}")),
    };
    match node.as_ref().map(|node| node.state.as_str()) {
        Some("needs_reimage") => {
            return Ok(Prepared::Unusable(format!(
                "{name} needs a reimage: gpuaas node reset {name}; the next start empties and enrolls its sandbox"
            )));
        }
        Some("retired") => {
            return Ok(Prepared::Unusable(format!(
                "{name} is retired: gpuaas node delete {name}; the next start registers it again"
            )));
        }
        None | Some("registered") if has_identity() => {
            fs::remove_dir_all(root).with_context(|| format!("emptying {root}"))?;
        }
        _ => {}
    }
    write_unit(root)?;
    if has_identity() && node.as_ref().is_none_or(|node| node.state != "enrolled") {
        return Ok(Prepared::Startable);
    }
    let issued = match node {
        Some(_) => client.issue_enrollment(name, &EnrollNode::default()).await?,
        None => client.register_node(&RegisterNode { name: name.to_owned(), ..RegisterNode::default() }).await?,
    };
    fs::create_dir_all(&state).with_context(|| format!("creating {state}"))?;
    write_private(state.join("enroll").as_std_path(), issued.enrollment.string.as_bytes())?;
    Ok(Prepared::Startable)
}

/// Writes the agent's unit and enables it. Other enabled units stay enabled: they start with the sandbox.
fn write_unit(root: &Utf8Path) -> anyhow::Result<()> {
    let agent = processes::agent_program()?;
    let (units, init) = (root.join("etc/systemd/system"), root.join(".sandbox"));
    for folder in [&units, &init] {
        fs::create_dir_all(folder).with_context(|| format!("creating {folder}"))?;
    }
    let unit = format!(
        "[Unit]\nDescription=GPUaaS node agent\n\n[Service]\nType=notify\nExecStart={agent}\nRestart=always\nRestartSec=1s\n\
         TimeoutStartSec=0\n\n[Install]\nWantedBy=multi-user.target\n"
    );
    fs::write(units.join("gpuaas-agent.service"), unit)?;
    let enabled = init.join("enabled");
    if !enabled.exists() {
        fs::write(enabled, "gpuaas-agent.service")?;
    }
    Ok(())
}

/// Waits until every node is connected and has left the state `enrolled`. Checks again after each node event.
pub(super) async fn await_connected(client: &Client, nodes: &[ReadyNode]) -> anyhow::Result<()> {
    let mut missing = Vec::new();
    let wait = async {
        let mut events = Box::pin(client.follow_events(None, 0).await?);
        loop {
            let known = client.list_nodes(None, None).await?.items;
            missing = known.into_iter().filter(|known| is_missing(known, nodes)).collect();
            if missing.is_empty() {
                return anyhow::Ok(());
            }
            loop {
                let event = events.next().await.context("the event stream ended")??;
                if matches!(event.kind.as_str(), "node.activated" | "node.connectivity_changed") {
                    break;
                }
            }
        }
    };
    if let Ok(ended) = tokio::time::timeout(CONNECT_TIMEOUT, wait).await {
        return ended;
    }
    let missing: Vec<String> =
        missing.iter().map(|node| format!("{} is {} ({})", node.name, node.state, node.connectivity)).collect();
    bail!(
        "not connected after {} s: {}; see the reason in .sandbox/journal of the node's sandbox",
        CONNECT_TIMEOUT.as_secs(),
        missing.join(", ")
    )
}

/// Returns true if the node is one of `nodes` and tasks cannot reach it.
fn is_missing(node: &Node, nodes: &[ReadyNode]) -> bool {
    let is_reachable = node.state != "enrolled" && node.connectivity == "connected";
    !is_reachable && nodes.iter().any(|started| started.name == node.name)
}

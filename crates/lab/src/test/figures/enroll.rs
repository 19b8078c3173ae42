//! Duration of an enrollment on a booted node, from entering the command until the control plane reports the node active.

use anyhow::{Context, ensure};
use jiff::Timestamp;

use super::Figure;
use crate::{
    node::Node,
    test::{command_output::capture_script, control_plane::ControlPlane, following::Stream},
};

/// Upper limit.
const TARGET_S: f64 = 3.0;
/// Removes the agent completely.
const REMOVE: &str = "sh /usr/share/gpuaas-agent/install.sh --uninstall";

/// Enrolls the node and removes the agent again, `runs` times.
pub(super) fn measure(platform: &ControlPlane, node: &Node, runs: usize) -> anyhow::Result<[Figure; 2]> {
    let (mut until_active, mut until_ended) = (Vec::new(), Vec::new());
    for run in 1..=runs {
        let name = format!("enrolled-{run}");
        let command = platform.register(&name)?.command;
        let entered = Timestamp::now();
        let output = capture_script(node, &command)?;
        let ended = Timestamp::now();
        ensure!(output.contains("installed gpuaas-agent"), "the agent was already installed: {output}");
        let events = platform.events(Stream::Platform)?;
        let activated = events.iter().rev().find(|event| event.kind == "node.activated" && event.data["name"] == name);
        let active: Timestamp = activated.with_context(|| format!("{name} is not active"))?.at.parse()?;
        until_active.push(active.duration_since(entered).as_secs_f64());
        until_ended.push(ended.duration_since(entered).as_secs_f64());
        capture_script(node, REMOVE)?;
    }
    Ok([
        Figure::of("command entered until the node is active", "s", TARGET_S, until_active),
        Figure::of("command entered until it has ended", "s", None, until_ended),
    ])
}

//! Enrollment of machines: registered under a name, enrolled by the printed command, allocated to the project.

use std::time::Duration;

use anyhow::{Context, ensure};
use gpuaas_api_types::{Allocation, Enrollment, Node as Shown, RegisteredNode};

use super::{command_output, control_plane::ControlPlane};
use crate::node::Node;

/// Longest wait for anything that takes seconds.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);

impl ControlPlane {
    /// Registers a node; returns its enrollment.
    pub(crate) fn register(&self, name: &str) -> anyhow::Result<Enrollment> {
        Ok(self.gpuaas::<RegisteredNode>(&["node", "register", name])?.enrollment)
    }

    /// Runs the enrollment command on a machine and waits until the node is active and connected. Returns the command's output.
    pub(crate) fn enroll(&self, machine: &Node, name: &str, enrollment: &Enrollment) -> anyhow::Result<String> {
        let output = command_output::run_script(machine, &enrollment.command)?;
        let output = output.expect_success_with(&["connected to "])?.to_owned();
        self.wait_connected(name)?;
        Ok(output)
    }

    /// Registers a machine under its own name and enrolls it.
    pub(crate) fn register_and_enroll(&self, machine: &Node) -> anyhow::Result<()> {
        let name = machine.name().as_str();
        self.enroll(machine, name, &self.register(name)?).map(drop)
    }

    /// Returns a node as `gpuaas node show` prints it.
    pub(crate) fn show_node(&self, name: &str) -> anyhow::Result<Shown> {
        self.gpuaas(&["node", "show", name])
    }

    /// Waits until a node is active and connected: its agent connects a moment before the database shows it.
    pub(crate) fn wait_connected(&self, name: &str) -> anyhow::Result<()> {
        let look = || {
            let now = self.show_node(name)?;
            Ok((now.state == "active" && now.connectivity == "connected").then_some(()))
        };
        // Usually it is connected already, and no events need to be followed.
        match look()? {
            Some(()) => Ok(()),
            None => self.until(&format!("{name} is active and connected"), WAIT_MAX, look),
        }
    }

    /// Allocates a node to the project.
    pub(crate) fn allocate(&self, name: &str) -> anyhow::Result<Allocation> {
        let words = ["allocation", "create", "--node", name, "--wait", "--timeout", "60s"];
        let allocation: Allocation = self.gpuaas(&words)?;
        let Allocation { state, detail, .. } = &allocation;
        ensure!(state == "active", "the allocation of {name} is {state}: {}", detail.as_deref().unwrap_or_default());
        Ok(allocation)
    }
}

/// PID of the agent on a machine, in the machine's own numbering.
pub(crate) fn agent_of(machine: &Node) -> anyhow::Result<u32> {
    let pid = machine.capture(&["systemctl", "show", "--property", "MainPID", "--value", "gpuaas-agent"])?;
    pid.parse().ok().filter(|pid| *pid != 0).with_context(|| format!("the agent of {} does not run", machine.name()))
}

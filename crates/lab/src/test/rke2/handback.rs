//! Handing back a machine: its old identity becomes invalid, and after a reimage it is enrolled again.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use anyhow::{Context, ensure};
use gpuaas_api_types::{Allocation, RegisteredNode};

use crate::{
    node::Node,
    test::{check::check, control_plane::ControlPlane, machines::WAIT_MAX},
};

/// Releases the machine and enrolls it again.
pub(super) fn run_checks(control_plane: &ControlPlane, node: &Node, allocation: &Allocation) -> anyhow::Result<()> {
    let name = node.name().as_str();
    check("the allocation is released, and the machine needs to be reimaged", || {
        control_plane.gpuaas::<Allocation>(&["allocation", "release", &allocation.id, "--yes"])?;
        let shown = control_plane.show_node(name)?;
        ensure!(shown.state == "needs_reimage", "the node is {}", shown.state);
        Ok(())
    })?;
    check("its old identity is refused, also after a restart of the agent", || check_refused(control_plane, node))?;
    check("it cannot be allocated", || {
        let refused = control_plane.refused(&["allocation", "create", "--node", name])?;
        ensure!(refused.err.contains("needs_reimage"), "the allocation is refused for another reason: {}", refused.err);
        Ok(())
    })?;
    let old = node.capture(&["cat", "/etc/machine-id"])?;
    check("the machine is reimaged", || {
        node.reimage()?;
        let new = node.capture(&["cat", "/etc/machine-id"])?;
        ensure!(new != old, "the machine ID did not change");
        let left = node.run(&["test", "-e", "/usr/bin/gpuaas-agent"])?;
        ensure!(!left.status.success(), "the agent is still installed");
        Ok(())
    })?;
    check("a reset prints a command that enrolls it again, as another machine", || {
        let reset: RegisteredNode = control_plane.gpuaas(&["node", "reset", name, "--yes"])?;
        control_plane.enroll(node, name, &reset.enrollment)?;
        let (reported, new) = (control_plane.show_node(name)?.machine_id, node.capture(&["cat", "/etc/machine-id"])?);
        ensure!(reported.as_deref() == Some(new.as_str()), "the reported machine ID is {reported:?}, not {new}");
        Ok(())
    })?;
    check("it can be allocated to the project again", || control_plane.allocate(name).map(drop))
}

/// Checks that the agent's connection is closed and new ones are refused.
fn check_refused(control_plane: &ControlPlane, node: &Node) -> anyhow::Result<()> {
    let longest = WAIT_MAX.as_secs().to_string();
    let follow = ["journalctl", "--unit=gpuaas-agent", "--lines=0", "--follow", "--output=cat", "--no-pager"];
    let mut follow = node.command(&[&["timeout", &longest][..], &follow].concat())?;
    let mut journal = follow.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("following the journal")?;
    let refused = (|| {
        node.capture(&["systemctl", "restart", "--no-block", "gpuaas-agent"])?;
        // Each failed or ended connection logs one line. The third one proves refusal: earlier ones may stem from the end of an established
        // connection.
        let lines = BufReader::new(journal.stdout.take().context("stdout is not piped")?).lines();
        let mut failed = lines.map_while(Result::ok).filter(|line| line.contains("control connection"));
        failed.nth(2).context("the agent does not log that it is refused")
    })();
    journal.kill().and_then(|()| journal.wait())?;
    let line = refused?;
    let shown = control_plane.show_node(node.name().as_str())?;
    ensure!(shown.connectivity != "connected", "the node is connected, but its agent logs: {line}");
    ensure!(shown.state == "needs_reimage", "the node is {}", shown.state);
    Ok(())
}

//! Handing back a machine: its old identity becomes invalid, and after a reimage it is enrolled again.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use anyhow::{Context, ensure};
use gpuaas_api_types::{Allocation, RegisteredNode};

use crate::lab::{
    node::Node,
    test::{check::check, control_plane::ControlPlane, machines::PATIENCE},
};

/// Releases the machine and enrolls it again.
pub(super) fn tell(control_plane: &ControlPlane, node: &Node, allocation: &Allocation) -> anyhow::Result<()> {
    let name = node.name().as_str();
    check("the allocation is released, and the machine needs to be reimaged", || {
        control_plane.gpuaas::<Allocation>(&["allocation", "release", &allocation.id])?;
        let shown = control_plane.shown(name)?;
        ensure!(shown.state == "needs_reimage", "it is {}", shown.state);
        Ok(())
    })?;
    check("its old identity is refused, also by an agent that has just started", || is_refused(control_plane, node))?;
    check("it is given to nobody", || {
        let refused = control_plane.refused(&["allocation", "create", "--node", name])?;
        ensure!(refused.err.contains("needs_reimage"), "it is refused for another reason: {}", refused.err);
        Ok(())
    })?;
    let old = node.says(&["cat", "/etc/machine-id"])?;
    check("its machine is reimaged", || {
        node.reimage()?;
        let new = node.says(&["cat", "/etc/machine-id"])?;
        ensure!(new != old, "it is the same machine");
        let left = node.run(&["test", "-e", "/usr/bin/gpuaas-agent"])?;
        ensure!(!left.status.success(), "the agent is still there");
        Ok(())
    })?;
    check("a reset prints a line that brings it in again, as another machine", || {
        let reset: RegisteredNode = control_plane.gpuaas(&["node", "reset", name])?;
        control_plane.enroll(node, name, &reset.enrollment)?;
        let (told, new) = (control_plane.shown(name)?.machine_id, node.says(&["cat", "/etc/machine-id"])?);
        ensure!(told.as_deref() == Some(new.as_str()), "its machine is {told:?}, and not {new}");
        Ok(())
    })?;
    check("the project may have it again", || control_plane.allocate(name).map(drop))
}

/// Checks that the agent's connection is closed and new ones are refused.
fn is_refused(control_plane: &ControlPlane, node: &Node) -> anyhow::Result<()> {
    let longest = PATIENCE.as_secs().to_string();
    let follow = ["journalctl", "--unit=gpuaas-agent", "--lines=0", "--follow", "--output=cat", "--no-pager"];
    let mut follow = node.command(&[&["timeout", &longest][..], &follow].concat())?;
    let mut journal = follow.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("following the journal")?;
    let refused = (|| {
        node.says(&["systemctl", "restart", "--no-block", "gpuaas-agent"])?;
        // Each failed or ended connection logs one line. The third one proves refusal: earlier ones may stem from the end of an established
        // connection.
        let lines = BufReader::new(journal.stdout.take().context("its output")?).lines();
        let mut failed = lines.map_while(Result::ok).filter(|line| line.contains("control connection"));
        failed.nth(2).context("the agent does not say that it is refused")
    })();
    journal.kill().and_then(|()| journal.wait())?;
    let said = refused?;
    let shown = control_plane.shown(node.name().as_str())?;
    ensure!(shown.connectivity != "connected", "it is connected, and its agent says: {said}");
    ensure!(shown.state == "needs_reimage", "it is {}", shown.state);
    Ok(())
}

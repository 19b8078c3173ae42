//! The scenario of the host contract: runs, on a machine booted by systemd, the suite that every host of an agent passes, and the cases
//! that only such a machine can pass.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
};

use anyhow::{Context, bail, ensure};
use camino::Utf8Path;

use super::{
    check::{check, count},
    parts::{Part, Prepared},
};
use crate::node::{Lab, Node};

/// The test binary.
pub const TEST: &str = "systemd_contract";
/// The helper program that the test expects in the same folder.
pub const HELPER: &str = "contract-node";
/// Folder of both on the node.
const NODE_FOLDER: &str = "/opt/contract";
/// Environment variable that permits the test to change the machine.
const CONSENT: &str = "GPUAAS_ON_BOOTED_NODE=1";

/// Runs the scenario.
pub(super) fn run_scenario(lab: &Lab, given: &Prepared) -> anyhow::Result<()> {
    let nodes = lab.nodes()?;
    let [node, ..] = nodes.as_slice() else { bail!("the lab has no node") };
    copy_to_node(given.path(Part::Contract)?, node)?;
    let test = format!("{NODE_FOLDER}/{TEST}");
    let cases = node.capture(&[&test, "--list"])?.lines().filter(|line| line.ends_with(": test")).count();
    ensure!(cases > 0, "the test lists no case");
    check(&format!("the host contract's {cases} cases pass on a booted machine"), || {
        let passed = run(node, &test)?;
        ensure!(usize::try_from(passed)? == cases, "{passed} of {cases} cases passed; the others did not run");
        // The check itself counts as one.
        count(passed - 1);
        Ok(())
    })
}

fn copy_to_node(from: &Utf8Path, node: &Node) -> anyhow::Result<()> {
    let there = node.root().join(NODE_FOLDER.trim_start_matches('/'));
    fs::create_dir_all(&there).with_context(|| there.to_string())?;
    for name in [TEST, HELPER] {
        fs::copy(from.join(name), there.join(name)).with_context(|| from.join(name).to_string())?;
    }
    Ok(())
}

/// Runs the test in the node; returns the number of cases that passed. Forwards the rest of its output as it arrives.
fn run(node: &Node, test: &str) -> anyhow::Result<u32> {
    let mut command = node.command(&["timeout", "--kill-after=5", "600", "env", CONSENT, test, "--color=never"])?;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("running the contract")?;
    let output = BufReader::new(child.stdout.take().context("stdout is not piped")?);
    let mut passed = 0;
    for line in output.lines() {
        let line = line?;
        match line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) {
            Some((_, outcome)) if outcome.trim() == "ok" => passed += 1,
            _ if line.trim().is_empty() => {}
            _ => println!("    {line}"),
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "the test ended with {status} after {passed} passed cases");
    Ok(passed)
}

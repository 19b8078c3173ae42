//! The scenario of the host contract: runs, on a machine booted by systemd, the suite that every host of an agent passes, and the cases
//! that only such a machine can pass.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
};

use anyhow::{Context, bail, ensure};
use camino::{Utf8Path, Utf8PathBuf};
use cargo_metadata::{Message, TargetKind};

use super::{
    check::{check, count},
    prepare::{self, Part, Prepared},
};
use crate::{
    lab::node::{Lab, Node},
    shell,
};

/// The test binary, and the helper program that it expects in the same folder.
const TEST: &str = "systemd_contract";
const HELPER: &str = "contract-node";
/// Folder of both on the node.
const THERE: &str = "/opt/contract";
/// Environment variable that permits the test to change the machine.
const CONSENT: &str = "GPUAAS_ON_BOOTED_NODE=1";

/// Builds both into a separate folder, with the same features as all other tests.
pub(super) fn build() -> anyhow::Result<Utf8PathBuf> {
    eprintln!("==> building the host contract");
    let words = ["test", "--workspace", "--all-features", "--locked", "--no-run", "--quiet", "--test", TEST];
    let mut cargo = shell::cargo(&[&words[..], &["--message-format", "json-render-diagnostics"]].concat());
    let mut child = cargo.stdout(Stdio::piped()).spawn().context("starting cargo")?;
    let output = BufReader::new(child.stdout.take().context("its output")?);
    let mut built = Vec::new();
    for message in Message::parse_stream(output) {
        if let Message::CompilerArtifact(artifact) = message?
            && let Some(executable) = artifact.executable
            && artifact.target.kind.iter().any(|kind| matches!(kind, TargetKind::Test | TargetKind::Bin))
        {
            built.push((artifact.target.name, executable));
        }
    }
    ensure!(child.wait()?.success(), "the host contract does not build");
    let folder = prepare::folder()?.join("contract");
    fs::create_dir_all(&folder).with_context(|| folder.to_string())?;
    for name in [TEST, HELPER] {
        let found = built.iter().find(|(target, _)| target == name);
        let (_, executable) = found.with_context(|| format!("cargo built no {name}"))?;
        fs::copy(executable, folder.join(name)).with_context(|| executable.to_string())?;
    }
    Ok(folder)
}

/// Runs the scenario.
pub(super) fn tell(lab: &Lab, given: &Prepared) -> anyhow::Result<()> {
    let nodes = lab.nodes()?;
    let [node, ..] = nodes.as_slice() else { bail!("a node is needed") };
    lay_down(given.path(Part::Contract)?, node)?;
    let test = format!("{THERE}/{TEST}");
    let cases = node.says(&[&test, "--list"])?.lines().filter(|line| line.ends_with(": test")).count();
    ensure!(cases > 0, "the test has no case");
    check(&format!("the host contract's {cases} cases hold on a booted machine"), || {
        let passed = run(node, &test)?;
        ensure!(usize::try_from(passed)? == cases, "{passed} of {cases} cases passed, and the others were not run");
        // The check itself counts as one.
        count(passed - 1);
        Ok(())
    })
}

fn lay_down(from: &Utf8Path, node: &Node) -> anyhow::Result<()> {
    let there = node.root().join(THERE.trim_start_matches('/'));
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
    let output = BufReader::new(child.stdout.take().context("its output")?);
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
    ensure!(status.success(), "it ended with {status} after {passed} cases that passed");
    Ok(passed)
}

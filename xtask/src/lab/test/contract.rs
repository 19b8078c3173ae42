//! The story of the host contract: on a machine that systemd has booted, the suite that every host of an agent passes, and what such a machine
//! alone promises.

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

/// The test binary, and the program that it expects beside it.
const TEST: &str = "systemd_contract";
const HELPER: &str = "contract-node";
/// Where both lie on the node.
const THERE: &str = "/opt/contract";
/// Says to the test that it may use the machine up.
const CONSENT: &str = "GPUAAS_ON_BOOTED_NODE=1";

/// Builds both into a folder of their own, with the features that every other test is built with.
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

/// Tells it.
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
        // It is counted itself.
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

/// Runs it in the node; returns how many cases passed. What it says of others is shown as it comes.
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

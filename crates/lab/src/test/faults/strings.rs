//! Enrollment strings that are damaged, expired, used, or made for another node or control plane.

use anyhow::{Context, ensure};
use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use gpuaas_api_types::Enrollment;
use serde_json::Value;

use super::{
    clock::ShiftedClock,
    command_output::{capture_script, run_script},
    environment::{Environment, check_unchanged},
    table::CellResult,
};
use crate::{
    node::Node,
    test::{control_plane::ControlPlane, site::Site},
};

/// Prefix of enrollment strings.
const PREFIX: &str = "gpuaas1.";
/// More than the lifetime of an enrollment string.
const SIXTEEN_MINUTES: &str = "+16m";
/// First of the two ports of a second control plane.
pub(super) const OTHER_PORT: u16 = 7543;

/// One character is changed.
pub(super) fn changed(environment: &mut Environment<'_>) -> anyhow::Result<CellResult> {
    let node = environment.machine()?;
    let (_, Enrollment { string, command }) = environment.register("changed")?;
    let at = string.len() / 2;
    let with = if &string[at..=at] == "A" { "B" } else { "A" };
    let mut other = string.clone();
    other.replace_range(at..=at, with);
    let output = run_script(&node, &command.replace(&string, &other))?;
    let outcome = output.expect_refusal("install_string_damaged", 4, "copy the complete line")?;
    check_unchanged(&node)?;
    let compared = format!(
        "cd /tmp; printf %s '{string}' >printed; printf %s '{other}' >given; cmp printed given; rm printed given"
    );
    CellResult::new(outcome, [format!("cmp: {}", run_script(&node, &compared)?.out)])
}

/// The machine is already enrolled as another node.
pub(super) fn for_another_node(environment: &mut Environment<'_>) -> anyhow::Result<CellResult> {
    let member = environment.enrolled("settled")?;
    let (name, enrollment) = environment.register("elsewhere")?;
    let output = run_script(&member.node, &enrollment.command)?;
    let outcome = output.expect_refusal("install_already_enrolled", 5, "install.sh --uninstall")?;
    let status = capture_script(&member.node, "gpuaas-agent status")?;
    ensure!(
        status.lines().any(|line| line == format!("name {}", member.name)),
        "the agent is another node now: {status}"
    );
    ensure!(environment.platform.show_node(&name)?.state == "registered", "another machine enrolled as {name}");
    CellResult::new(outcome, [format!("gpuaas-agent status: {status}")])
}

/// The token in the string was issued for another node.
pub(super) fn with_a_token_of_another_node(environment: &mut Environment<'_>) -> anyhow::Result<CellResult> {
    let node = environment.machine()?;
    let (_, ours) = environment.register("ours")?;
    let (_, theirs) = environment.register("theirs")?;
    let (mut mixed, other) = (decoded(&ours.string)?, decoded(&theirs.string)?);
    mixed["token"] = other["token"].clone();
    let mixed_string = encoded(&mixed);
    let output = run_script(&node, &ours.command.replace(&ours.string, &mixed_string))?;
    let outcome = output.expect_refusal("enrollment_token_mismatch", 6, "gpuaas node enroll")?;
    // The node's base64 and sed read the content of the strings.
    let node_of = |string: &str| {
        capture_script(
            &node,
            &format!(
                "echo '{string}' | cut -d. -f2 | tr _- /+ | base64 -d 2>/dev/null | sed 's/.*\"node\":\"\\([^\"]*\\).*/\\1/'"
            ),
        )
    };
    let proof = format!(
        "base64 -d: the string is for node {}, its token is from the string for node {}",
        node_of(&mixed_string)?,
        node_of(&theirs.string)?
    );
    CellResult::new(outcome, [proof])
}

/// The string comes from another control plane than the one that answers, as after a reinstallation at the same address.
pub(super) fn of_another_control_plane(environment: &mut Environment<'_>) -> anyhow::Result<CellResult> {
    let node = environment.machine()?;
    let url = environment.platform.url();
    let before = ControlPlane::start_at(
        environment.lab,
        environment.given,
        Site::new("before", OTHER_PORT).with_public_url(&url),
    )?;
    let theirs = before.register("of-before")?;
    let (_, ours) = environment.register("foreign")?;
    let output = run_script(&node, &ours.command.replace(&ours.string, &theirs.string))?;
    let outcome = output.expect_refusal("install_authority_mismatch", 4, "print a new line there")?;
    check_unchanged(&node)?;
    let pinned = decoded(&theirs.string)?["ca_sha256"].as_str().context("the string pins no authority")?.to_owned();
    let answers = answering_authority(&node, &url)?;
    ensure!(answers != pinned, "both control planes have the same authority");
    CellResult::new(
        outcome,
        [format!("sha256sum: the server has the authority {}…, the string pins {}…", &answers[..12], &pinned[..12])],
    )
}

/// Another machine has used the string.
pub(super) fn used(environment: &mut Environment<'_>) -> anyhow::Result<CellResult> {
    let (first, second) = (environment.enrolled("used")?, environment.machine()?);
    let output = run_script(&second, &first.enrollment.command)?;
    let outcome = output.expect_refusal("enrollment_used", 4, "gpuaas node enroll")?;
    let has = |node: &Node| {
        capture_script(
            node,
            "test -e /var/lib/gpuaas-agent/identity.json && echo identity.json || echo 'no identity.json'",
        )
    };
    let proof = format!("ls: {} has {}, {} has {}", first.node.name(), has(&first.node)?, second.name(), has(&second)?);
    ensure!(proof.contains("has no identity.json"), "the second machine has an identity: {proof}");
    CellResult::new(outcome, [proof])
}

/// The string has expired for both sides, by a clock that is preloaded into the control plane and the script.
pub(super) fn expired(environment: &mut Environment<'_>) -> anyhow::Result<CellResult> {
    let (node, clock) = (environment.machine()?, ShiftedClock::at(SIXTEEN_MINUTES)?);
    let site = Site::new("later", OTHER_PORT);
    let mut later = ControlPlane::start_at(environment.lab, environment.given, site)?;
    let enrollment = later.register("late")?;
    later.restart_with(&clock.environment())?;
    let output = clock.run_script(&node, &enrollment.command)?;
    let outcome = output.expect_refusal("enrollment_expired", 4, "gpuaas node enroll")?;
    let expires = decoded(&enrollment.string)?["expires_at"].to_string();
    let now = clock.run_script(&node, "date -u +%FT%TZ")?.expect_success()?.to_owned();
    CellResult::new(outcome, [format!("date: {now} on the node, the string expires at {expires}")])
}

/// Two machines use the string at the same time.
pub(super) fn at_two_machines_at_once(environment: &mut Environment<'_>) -> anyhow::Result<CellResult> {
    let (one, other) = (environment.machine()?, environment.machine()?);
    let (name, enrollment) = environment.register("one-of-two")?;
    let timed = format!("b=$(date +%s%3N); {}; s=$?; echo $b $(date +%s%3N) >/tmp/ran; exit $s", enrollment.command);
    let (first, second, timed): (&Node, &Node, &str) = (&one, &other, &timed);
    let ends = std::thread::scope(|scope| {
        let runs = [first, second].map(|node| scope.spawn(move || run_script(node, timed)));
        runs.map(|run| run.join().map_err(|_| anyhow::anyhow!("a run panicked")))
    });
    let [first_output, second_output] = ends;
    let both = [(first, first_output??), (second, second_output??)];
    let (won, lost): (Vec<_>, Vec<_>) = both.iter().partition(|(_, output)| output.status == Some(0));
    let ([(winner, output)], [(loser, refused)]) = (won.as_slice(), lost.as_slice()) else {
        anyhow::bail!(
            "not exactly one of the two enrolled: {both:?}",
            both = both.iter().map(|(_, output)| output).collect::<Vec<_>>()
        );
    };
    output.expect_success_with(&["enrolled as ", "connected to "])?;
    let outcome = refused.expect_refusal("enrollment_used", 4, "gpuaas node enroll")?;
    ensure!(
        environment.platform.show_node(&name)?.state == "active",
        "{name} is {}",
        environment.platform.show_node(&name)?.state
    );
    let ran = |node: &Node| -> anyhow::Result<(u64, u64)> {
        let output = capture_script(node, "cat /tmp/ran")?;
        let (began, ended) = output.split_once(' ').context("parsing two times")?;
        Ok((began.parse()?, ended.parse()?))
    };
    let (winning, losing) = (ran(winner)?, ran(loser)?);
    ensure!(winning.0 < losing.1 && losing.0 < winning.1, "the two runs did not overlap: {winning:?} {losing:?}");
    let since = winning.0.min(losing.0);
    let describe =
        |node: &Node, ran: (u64, u64)| format!("{} ran from {} to {} ms", node.name(), ran.0 - since, ran.1 - since);
    CellResult::new(
        format!("{} enrolled; {}: {outcome}", winner.name(), loser.name()),
        [format!("date: {}, {}", describe(winner, winning), describe(loser, losing))],
    )
}

/// Digest of the certificate authority that answers at a control plane's address, computed by the node's own programs.
fn answering_authority(node: &Node, url: &str) -> anyhow::Result<String> {
    let text = format!("curl -sk {url}/install/authority.pem | openssl x509 -outform DER | sha256sum | cut -c1-64");
    capture_script(node, &text)
}

/// Decodes the content of an enrollment string.
fn decoded(string: &str) -> anyhow::Result<Value> {
    let body =
        string.strip_prefix(PREFIX).and_then(|rest| rest.rsplit_once('.')).context("not an enrollment string")?.0;
    Ok(serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body)?)?)
}

/// Encodes an enrollment string with a valid checksum.
fn encoded(content: &Value) -> String {
    let body = URL_SAFE_NO_PAD.encode(content.to_string());
    let check = hex::encode(digest(&SHA256, body.as_bytes()));
    format!("{PREFIX}{body}.{}", &check[..8])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn encoded_string_is_decoded() {
        let content = json!({ "token": "t", "node": "n" });
        assert_eq!(decoded(&encoded(&content)).expect("a valid string"), content);
        assert!(decoded("gpuaas1.").is_err());
    }
}

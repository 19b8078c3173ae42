//! Enrollment strings that are damaged, expired, used, or made for another node or control plane.

use anyhow::{Context, ensure};
use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use gpuaas_api_types::Enrollment;
use serde_json::Value;

use super::{
    clock::OtherClock,
    said::{in_shell, says},
    table::Told,
    world::{World, must_be_untouched},
};
use crate::lab::{
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
pub(super) fn changed(world: &mut World<'_>) -> anyhow::Result<Told> {
    let node = world.machine()?;
    let (_, Enrollment { string, command }) = world.line("changed")?;
    let at = string.len() / 2;
    let with = if &string[at..=at] == "A" { "B" } else { "A" };
    let mut other = string.clone();
    other.replace_range(at..=at, with);
    let said = in_shell(&node, &command.replace(&string, &other))?;
    let outcome = said.refused("install_string_damaged", 4, "copy the whole line")?;
    must_be_untouched(&node)?;
    let compared = format!(
        "cd /tmp; printf %s '{string}' >printed; printf %s '{other}' >given; cmp printed given; rm printed given"
    );
    Told::new(outcome, [format!("cmp: {}", in_shell(&node, &compared)?.out)])
}

/// The machine is already enrolled as another node.
pub(super) fn for_another_node(world: &mut World<'_>) -> anyhow::Result<Told> {
    let member = world.enrolled("settled")?;
    let (name, enrollment) = world.line("elsewhere")?;
    let said = in_shell(&member.node, &enrollment.command)?;
    let outcome = said.refused("install_already_enrolled", 5, "install.sh --uninstall")?;
    let status = says(&member.node, "gpuaas-agent status")?;
    ensure!(status.lines().any(|line| line == format!("name {}", member.name)), "it is another node now: {status}");
    ensure!(world.platform.shown(&name)?.state == "registered", "{name} came in by another machine");
    Told::new(outcome, [format!("gpuaas-agent status: {status}")])
}

/// The token in the string was issued for another node.
pub(super) fn with_a_token_of_another_node(world: &mut World<'_>) -> anyhow::Result<Told> {
    let node = world.machine()?;
    let (_, ours) = world.line("ours")?;
    let (_, theirs) = world.line("theirs")?;
    let (mut mixed, other) = (decoded(&ours.string)?, decoded(&theirs.string)?);
    mixed["token"] = other["token"].clone();
    let mixed_string = encoded(&mixed);
    let said = in_shell(&node, &ours.command.replace(&ours.string, &mixed_string))?;
    let outcome = said.refused("enrollment_foreign", 6, "gpuaas node enroll")?;
    // The node's base64 and sed read the content of the strings.
    let node_of = |string: &str| {
        says(
            &node,
            &format!(
                "echo '{string}' | cut -d. -f2 | tr _- /+ | base64 -d 2>/dev/null | sed 's/.*\"node\":\"\\([^\"]*\\).*/\\1/'"
            ),
        )
    };
    let proof = format!(
        "base64 -d: the string is for node {}, its token is from the one for {}",
        node_of(&mixed_string)?,
        node_of(&theirs.string)?
    );
    Told::new(outcome, [proof])
}

/// The string comes from another control plane than the one that answers, as after a reinstallation at the same address.
pub(super) fn of_another_control_plane(world: &mut World<'_>) -> anyhow::Result<Told> {
    let node = world.machine()?;
    let url = world.platform.url();
    let before = ControlPlane::at(world.lab, world.given, Site::new("before", OTHER_PORT).called(&url))?;
    let theirs = before.register("of-before")?;
    let (_, ours) = world.line("foreign")?;
    let said = in_shell(&node, &ours.command.replace(&ours.string, &theirs.string))?;
    let outcome = said.refused("install_authority_foreign", 4, "print a new line there")?;
    must_be_untouched(&node)?;
    let pinned = decoded(&theirs.string)?["ca_sha256"].as_str().context("it pins an authority")?.to_owned();
    let answers = answering_authority(&node, &url)?;
    ensure!(answers != pinned, "both have one authority");
    Told::new(outcome, [format!("sha256sum: {}… answers, the string pins {}…", &answers[..12], &pinned[..12])])
}

/// Another machine has used the string.
pub(super) fn used(world: &mut World<'_>) -> anyhow::Result<Told> {
    let (first, second) = (world.enrolled("used")?, world.machine()?);
    let said = in_shell(&second, &first.enrollment.command)?;
    let outcome = said.refused("enrollment_used", 4, "gpuaas node enroll")?;
    let has = |node: &Node| {
        says(node, "test -e /var/lib/gpuaas-agent/identity.json && echo identity.json || echo 'no identity.json'")
    };
    let proof = format!("ls: {} has {}, {} has {}", first.node.name(), has(&first.node)?, second.name(), has(&second)?);
    ensure!(proof.contains("has no identity.json"), "the second machine has an identity: {proof}");
    Told::new(outcome, [proof])
}

/// The string has expired for both sides, by a clock that is preloaded into the control plane and the script.
pub(super) fn expired(world: &mut World<'_>) -> anyhow::Result<Told> {
    let (node, clock) = (world.machine()?, OtherClock::at(SIXTEEN_MINUTES)?);
    let site = Site::new("later", OTHER_PORT);
    let mut later = ControlPlane::at(world.lab, world.given, site)?;
    let enrollment = later.register("late")?;
    later.again_with(&clock.environment())?;
    let said = clock.in_shell(&node, &enrollment.command)?;
    let outcome = said.refused("enrollment_expired", 4, "gpuaas node enroll")?;
    let expires = decoded(&enrollment.string)?["expires_at"].to_string();
    let now = clock.in_shell(&node, "date -u +%FT%TZ")?.well()?.to_owned();
    Told::new(outcome, [format!("date: {now} on the node, the string expires at {expires}")])
}

/// Two machines use the string at the same time.
pub(super) fn at_two_machines_at_once(world: &mut World<'_>) -> anyhow::Result<Told> {
    let (one, other) = (world.machine()?, world.machine()?);
    let (name, enrollment) = world.line("one-of-two")?;
    let timed = format!("b=$(date +%s%3N); {}; s=$?; echo $b $(date +%s%3N) >/tmp/ran; exit $s", enrollment.command);
    let (first, second, timed): (&Node, &Node, &str) = (&one, &other, &timed);
    let ends = std::thread::scope(|scope| {
        let runs = [first, second].map(|node| scope.spawn(move || in_shell(node, timed)));
        runs.map(|run| run.join().map_err(|_| anyhow::anyhow!("a run panicked")))
    });
    let [first_said, second_said] = ends;
    let both = [(first, first_said??), (second, second_said??)];
    let (won, lost): (Vec<_>, Vec<_>) = both.iter().partition(|(_, said)| said.status == Some(0));
    let ([(winner, said)], [(loser, refused)]) = (won.as_slice(), lost.as_slice()) else {
        anyhow::bail!(
            "not one of the two came in: {both:?}",
            both = both.iter().map(|(_, said)| said).collect::<Vec<_>>()
        );
    };
    said.well_with(&["enrolled as ", "connected to "])?;
    let outcome = refused.refused("enrollment_used", 4, "gpuaas node enroll")?;
    ensure!(world.platform.shown(&name)?.state == "active", "{name} is {}", world.platform.shown(&name)?.state);
    let ran = |node: &Node| -> anyhow::Result<(u64, u64)> {
        let said = says(node, "cat /tmp/ran")?;
        let (began, ended) = said.split_once(' ').context("two times")?;
        Ok((began.parse()?, ended.parse()?))
    };
    let (winning, losing) = (ran(winner)?, ran(loser)?);
    ensure!(winning.0 < losing.1 && losing.0 < winning.1, "they did not run at once: {winning:?} {losing:?}");
    let since = winning.0.min(losing.0);
    let words =
        |node: &Node, ran: (u64, u64)| format!("{} ran from {} to {} ms", node.name(), ran.0 - since, ran.1 - since);
    Told::new(
        format!("{} came in; {}: {outcome}", winner.name(), loser.name()),
        [format!("date: {}, {}", words(winner, winning), words(loser, losing))],
    )
}

/// Digest of the certificate authority that answers at a control plane's address, computed by the node's own programs.
fn answering_authority(node: &Node, url: &str) -> anyhow::Result<String> {
    let text = format!("curl -sk {url}/install/authority.pem | openssl x509 -outform DER | sha256sum | cut -c1-64");
    says(node, &text)
}

/// Decodes the content of an enrollment string.
fn decoded(string: &str) -> anyhow::Result<Value> {
    let body = string.strip_prefix(PREFIX).and_then(|rest| rest.rsplit_once('.')).context("no enrollment string")?.0;
    Ok(serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body)?)?)
}

/// Encodes an enrollment string with a valid checksum.
fn encoded(says: &Value) -> String {
    let body = URL_SAFE_NO_PAD.encode(says.to_string());
    let check = hex::encode(digest(&SHA256, body.as_bytes()));
    format!("{PREFIX}{body}.{}", &check[..8])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_string_that_is_put_together_anew_is_whole() {
        let says = json!({ "token": "t", "node": "n" });
        assert_eq!(decoded(&encoded(&says)).expect("it is one"), says);
        assert!(decoded("gpuaas1.").is_err());
    }
}

//! Control planes that cannot be reached, each for another reason.

use anyhow::{Context, ensure};
use gpuaas_api_types::Enrollment;

use super::{
    command_output::{CommandOutput, capture_script, run_script},
    environment::{Environment, check_unchanged},
    proxy::Proxy,
    strings::OTHER_PORT,
    table::CellResult,
};
use crate::{
    node::Node,
    test::{control_plane::ControlPlane, site::Site},
};

/// A name that the lab's DNS server does not know.
const NAME: &str = "cp.gpuaas-lab.test";
/// Path of the script that was fetched before the fault.
const SCRIPT: &str = "/root/install.sh";

/// The name does not resolve.
pub(super) fn dns(environment: &mut Environment<'_>) -> anyhow::Result<CellResult> {
    let node = environment.machine()?;
    let site = Site::new("named", OTHER_PORT).with_public_url(&format!("https://{NAME}:{OTHER_PORT}"));
    let other = ControlPlane::start_at(environment.lab, environment.given, site)?;
    let enrollment = other.register("by-name")?;
    fetch_script(environment, &node)?;
    let curl = command_stops_at_curl(&node, &enrollment, 6)?;
    let outcome = by_script(&node, &enrollment)?.expect_refusal(
        "install_name_unresolved",
        7,
        "check this machine's name resolution",
    )?;
    check_unchanged(&node)?;
    let resolved =
        run_script(&node, &format!("getent ahosts {NAME}; echo \"getent exits with $?\"; cat /etc/resolv.conf"))?;
    ensure!(resolved.out.contains("getent exits with 2"), "the name resolves: {}", resolved.out);
    capture_script(&node, &format!("echo {} {NAME} >>/etc/hosts", environment.lab.gateway()))?;
    run_script(&node, &enrollment.command)?.expect_success_with(&["connected to "])?;
    CellResult::new(format!("{curl}; {outcome}; with the name resolved, it enrolled"), [resolved.out])
}

/// The connection is refused.
pub(super) fn refused(environment: &mut Environment<'_>) -> anyhow::Result<CellResult> {
    let node = environment.machine()?;
    let mut other = ControlPlane::start_at(environment.lab, environment.given, Site::new("silent", OTHER_PORT))?;
    let enrollment = other.register("refused")?;
    fetch_script(environment, &node)?;
    other.kill()?;
    let curl = command_stops_at_curl(&node, &enrollment, 7)?;
    let outcome = by_script(&node, &enrollment)?.expect_refusal(
        "install_connection_refused",
        7,
        "check that the control plane runs there",
    )?;
    check_unchanged(&node)?;
    let dialled = run_script(&node, &format!("bash -c '</dev/tcp/{}/{OTHER_PORT}'", environment.lab.gateway()))?;
    ensure!(dialled.err.contains("Connection refused"), "a server listens on the port: {dialled:?}");
    other.restart()?;
    run_script(&node, &enrollment.command)?.expect_success_with(&["connected to "])?;
    CellResult::new(format!("{curl}; {outcome}; with the control plane started, it enrolled"), [dialled.err])
}

/// Another server with another key answers at the address.
pub(super) fn tls_pin(environment: &mut Environment<'_>) -> anyhow::Result<CellResult> {
    let node = environment.machine()?;
    let mut original = ControlPlane::start_at(environment.lab, environment.given, Site::new("genuine", OTHER_PORT))?;
    let enrollment = original.register("pinned")?;
    fetch_script(environment, &node)?;
    original.kill()?;
    let _impostor = ControlPlane::start_at(environment.lab, environment.given, Site::new("impostor", OTHER_PORT))?;
    let curl = command_stops_at_curl(&node, &enrollment, 90)?;
    let outcome =
        by_script(&node, &enrollment)?.expect_refusal("install_authority_mismatch", 4, "intercepts the connection")?;
    check_unchanged(&node)?;
    let pinned = enrollment
        .command
        .split_once("sha256//")
        .and_then(|(_, rest)| rest.split_once('\''))
        .context("the command contains no pin")?
        .0;
    let pin_of = format!(
        "openssl s_client -connect {}:{OTHER_PORT} </dev/null 2>/dev/null | openssl x509 -pubkey -noout |
            openssl pkey -pubin -outform DER | openssl dgst -sha256 -binary | base64",
        environment.lab.gateway()
    );
    let answers = capture_script(&node, &pin_of)?;
    ensure!(answers != pinned && !answers.is_empty(), "the answering server has the pinned key: {answers}");
    CellResult::new(
        format!("{curl}; {outcome}"),
        [format!("openssl: the server has the key {answers}, the command pins {pinned}")],
    )
}

/// The control plane is reachable only through a proxy.
pub(super) fn proxy(environment: &mut Environment<'_>) -> anyhow::Result<CellResult> {
    let (node, gateway) = (environment.machine()?, environment.lab.gateway());
    let (_, enrollment) = environment.register("proxied")?;
    let proxy = Proxy::listen(gateway)?;
    let closed = |verb: &str| {
        format!("iptables -{verb} OUTPUT -p tcp -d {gateway} --dport 7443 -j REJECT --reject-with tcp-reset")
    };
    capture_script(&node, &closed("A"))?;
    let line = format!("export https_proxy=http://{gateway}:{}; {}", proxy.port(), enrollment.command);
    let output = run_script(&node, &line)?;
    let outcome = output.expect_refusal("install_proxy_only", 7, "let this machine reach the ports 7443 and 7444")?;
    check_unchanged(&node)?;
    let rules = capture_script(&node, "iptables -S OUTPUT")?;
    ensure!(rules.contains("--dport 7443"), "no rule blocks the port: {rules}");
    let requests = proxy.requests();
    ensure!(
        requests.iter().any(|line| line.contains(":7443")),
        "the proxy received no request for the port: {requests:?}"
    );
    capture_script(&node, &closed("D"))?;
    run_script(&node, &line)?.expect_success_with(&["connected to "])?;
    CellResult::new(
        format!("{outcome}; reached directly, it enrolled"),
        [format!("iptables: {rules}; requests to the proxy: {}", requests.join(", "))],
    )
}

/// Fetches the script from the main control plane, which is always reachable.
fn fetch_script(environment: &Environment<'_>, node: &Node) -> anyhow::Result<()> {
    capture_script(node, &format!("curl -fsSk {}/install.sh -o {SCRIPT}", environment.platform.url())).map(drop)
}

fn by_script(node: &Node, enrollment: &Enrollment) -> anyhow::Result<CommandOutput> {
    run_script(node, &format!("GPUAAS_ENROLL='{}' sh {SCRIPT}", enrollment.string))
}

/// Checks that the command runs nothing if its curl exits with `status`; returns curl's message.
fn command_stops_at_curl(node: &Node, enrollment: &Enrollment, status: i32) -> anyhow::Result<String> {
    let output: CommandOutput = node.run(&["bash", "-c", &format!("set -o pipefail; {}", enrollment.command)])?.into();
    ensure!(output.status == Some(status) && output.out.is_empty(), "curl did not end with {status}: {output:?}");
    check_unchanged(node)?;
    let message = output.err.lines().last().unwrap_or_default();
    ensure!(message.starts_with(&format!("curl: ({status})")), "curl printed no reason: {output:?}");
    Ok(message.to_owned())
}

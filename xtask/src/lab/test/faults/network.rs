//! Control planes that cannot be reached, each for another reason.

use anyhow::{Context, ensure};
use gpuaas_api_types::Enrollment;

use super::{
    proxy::Proxy,
    said::{Said, in_shell, says},
    strings::OTHER_PORT,
    table::Told,
    world::{World, must_be_untouched},
};
use crate::lab::{
    node::Node,
    test::{control_plane::ControlPlane, site::Site},
};

/// A name that the lab's DNS server does not know.
const NAME: &str = "cp.gpuaas-lab.test";
/// Path of the script that was fetched before the fault.
const SCRIPT: &str = "/root/install.sh";

/// The name does not resolve.
pub(super) fn dns(world: &mut World<'_>) -> anyhow::Result<Told> {
    let node = world.machine()?;
    let site = Site::new("named", OTHER_PORT).called(&format!("https://{NAME}:{OTHER_PORT}"));
    let other = ControlPlane::at(world.lab, world.given, site)?;
    let enrollment = other.register("by-name")?;
    fetch_script(world, &node)?;
    let curl = line_stops_at_curl(&node, &enrollment, 6)?;
    let outcome =
        by_script(&node, &enrollment)?.refused("install_name_unresolved", 7, "see what resolves names here")?;
    must_be_untouched(&node)?;
    let asked = in_shell(&node, &format!("getent ahosts {NAME}; echo \"getent exits with $?\"; cat /etc/resolv.conf"))?;
    ensure!(asked.out.contains("getent exits with 2"), "the name leads somewhere: {}", asked.out);
    says(&node, &format!("echo {} {NAME} >>/etc/hosts", world.lab.gateway()))?;
    in_shell(&node, &enrollment.command)?.well_with(&["connected to "])?;
    Told::new(format!("{curl}; {outcome}; with the name known, it came in"), [asked.out])
}

/// The connection is refused.
pub(super) fn refused(world: &mut World<'_>) -> anyhow::Result<Told> {
    let node = world.machine()?;
    let mut other = ControlPlane::at(world.lab, world.given, Site::new("silent", OTHER_PORT))?;
    let enrollment = other.register("refused")?;
    fetch_script(world, &node)?;
    other.kill()?;
    let curl = line_stops_at_curl(&node, &enrollment, 7)?;
    let outcome = by_script(&node, &enrollment)?.refused(
        "install_connection_refused",
        7,
        "see whether the control plane runs there",
    )?;
    must_be_untouched(&node)?;
    let dialled = in_shell(&node, &format!("bash -c '</dev/tcp/{}/{OTHER_PORT}'", world.lab.gateway()))?;
    ensure!(dialled.err.contains("Connection refused"), "somebody listens: {dialled:?}");
    other.again()?;
    in_shell(&node, &enrollment.command)?.well_with(&["connected to "])?;
    Told::new(format!("{curl}; {outcome}; started, it came in"), [dialled.err])
}

/// Another server with another key answers at the address.
pub(super) fn tls_pin(world: &mut World<'_>) -> anyhow::Result<Told> {
    let node = world.machine()?;
    let mut genuine = ControlPlane::at(world.lab, world.given, Site::new("genuine", OTHER_PORT))?;
    let enrollment = genuine.register("pinned")?;
    fetch_script(world, &node)?;
    genuine.kill()?;
    let _impostor = ControlPlane::at(world.lab, world.given, Site::new("impostor", OTHER_PORT))?;
    let curl = line_stops_at_curl(&node, &enrollment, 90)?;
    let outcome =
        by_script(&node, &enrollment)?.refused("install_authority_foreign", 4, "somebody stands in between")?;
    must_be_untouched(&node)?;
    let pinned =
        enrollment.command.split_once("sha256//").and_then(|(_, rest)| rest.split_once('\'')).context("a pin")?.0;
    let pin_of = format!(
        "openssl s_client -connect {}:{OTHER_PORT} </dev/null 2>/dev/null | openssl x509 -pubkey -noout |
            openssl pkey -pubin -outform DER | openssl dgst -sha256 -binary | base64",
        world.lab.gateway()
    );
    let answers = says(&node, &pin_of)?;
    ensure!(answers != pinned && !answers.is_empty(), "the pin holds: {answers}");
    Told::new(format!("{curl}; {outcome}"), [format!("openssl: {answers} answers, the line pins {pinned}")])
}

/// The control plane is reachable only through a proxy.
pub(super) fn proxy(world: &mut World<'_>) -> anyhow::Result<Told> {
    let (node, gateway) = (world.machine()?, world.lab.gateway());
    let (_, enrollment) = world.line("proxied")?;
    let proxy = Proxy::listen(gateway)?;
    let closed = |verb: &str| {
        format!("iptables -{verb} OUTPUT -p tcp -d {gateway} --dport 7443 -j REJECT --reject-with tcp-reset")
    };
    says(&node, &closed("A"))?;
    let line = format!("export https_proxy=http://{gateway}:{}; {}", proxy.port(), enrollment.command);
    let said = in_shell(&node, &line)?;
    let outcome = said.refused("install_proxy_only", 7, "let this machine reach the ports 7443 and 7444")?;
    must_be_untouched(&node)?;
    let rules = says(&node, "iptables -S OUTPUT")?;
    ensure!(rules.contains("--dport 7443"), "the way is open: {rules}");
    let asked = proxy.asked();
    ensure!(asked.iter().any(|line| line.contains(":7443")), "nobody asked the proxy: {asked:?}");
    says(&node, &closed("D"))?;
    in_shell(&node, &line)?.well_with(&["connected to "])?;
    Told::new(
        format!("{outcome}; reached directly, it came in"),
        [format!("iptables: {rules}; the proxy heard: {}", asked.join(", "))],
    )
}

/// Fetches the script from the main control plane, which is always reachable.
fn fetch_script(world: &World<'_>, node: &Node) -> anyhow::Result<()> {
    says(node, &format!("curl -fsSk {}/install.sh -o {SCRIPT}", world.platform.url())).map(drop)
}

fn by_script(node: &Node, enrollment: &Enrollment) -> anyhow::Result<Said> {
    in_shell(node, &format!("GPUAAS_ENROLL='{}' sh {SCRIPT}", enrollment.string))
}

/// Checks that the command runs nothing if its curl exits with `status`; returns curl's message.
fn line_stops_at_curl(node: &Node, enrollment: &Enrollment, status: i32) -> anyhow::Result<String> {
    let said: Said = node.run(&["bash", "-c", &format!("set -o pipefail; {}", enrollment.command)])?.into();
    ensure!(said.status == Some(status) && said.out.is_empty(), "curl should end with {status}: {said:?}");
    must_be_untouched(node)?;
    let words = said.err.lines().last().unwrap_or_default();
    ensure!(words.starts_with(&format!("curl: ({status})")), "curl does not say why: {said:?}");
    Ok(words.to_owned())
}

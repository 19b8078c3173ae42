//! The lab's network: one bridge, and for each node a network namespace of its own, new with every boot.
//!
//! Guarantees: nodes and this machine reach each other by address; nothing of a boot's network (links, routes, firewall rules) outlives it.
//!
//! Deliberately absent: a way out. What a node needs comes from this machine or from another node.

pub(super) mod firewall;
mod subnet;

use std::{
    fs::File,
    io::Write,
    net::Ipv4Addr,
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{
    mounts,
    name::NodeName,
    packages,
    place::{self, BRIDGE, LINKS},
    refusal::Refusal,
};
use crate::shell;
pub(crate) use subnet::Subnet;

/// A node's link as it is named inside.
const INSIDE: &str = "eth0";

/// The first subnet that no route of this machine leads into.
pub(super) fn free_subnet() -> anyhow::Result<Subnet> {
    let routes = json(&["-4", "route", "show", "table", "all"])?;
    let routes: Vec<&str> = routes.iter().filter_map(|route| route.get("dst")?.as_str()).collect();
    let free = Subnet::candidates().find(|subnet| !routes.iter().any(|route| subnet.overlaps(route)));
    free.ok_or_else(|| Refusal::Machine("its routes lead into every subnet that a lab may have".to_owned()).into())
}

/// Makes the bridge, with this machine on it.
pub(super) fn make_bridge(subnet: &Subnet) -> anyhow::Result<()> {
    let address = format!("{}/{}", subnet.gateway(), Subnet::PREFIX);
    // Without one of its own it has the lowest of its links, and nodes would know an old one whenever another node comes or goes.
    let mac = subnet::mac(subnet.gateway());
    // Known at once, and to everybody: no spanning tree delays it.
    batch(
        &mut packages::program("ip"),
        &[
            format!("link add name {BRIDGE} address {mac} type bridge stp_state 0 forward_delay 0"),
            format!("address add {address} dev {BRIDGE}"),
            format!("link set dev {BRIDGE} up"),
        ],
    )
}

/// Gives a node's next boot a network namespace, linked to the bridge under its address.
pub(super) fn attach(node: &NodeName, subnet: &Subnet, address: Ipv4Addr) -> anyhow::Result<()> {
    let (netns, link) = (place::netns_of(node), place::link_of(node));
    let into = format!("--net={netns}");
    File::create(&netns).with_context(|| netns.to_string())?;
    shell::capture(packages::program("unshare").args([into.as_str(), "true"]))?;
    let mac = subnet::mac(address);
    batch(
        &mut packages::program("ip"),
        &[
            format!("link add name {link} type veth peer name {INSIDE} address {mac} netns {netns}"),
            format!("link set dev {link} master {BRIDGE} up"),
        ],
    )?;
    batch(
        packages::program("nsenter").args([into.as_str(), "ip"]),
        &[
            "link set dev lo up".to_owned(),
            format!("address add {address}/{} dev {INSIDE}", Subnet::PREFIX),
            format!("link set dev {INSIDE} up"),
            format!("route add default via {}", subnet.gateway()),
        ],
    )
}

/// Takes the namespace of a boot away, whether it is there or not. The node's processes have ended.
pub(super) fn detach(node: &NodeName) -> anyhow::Result<()> {
    // First the link: a namespace takes its own links along only later, and the next boot needs the name.
    delete_link(&place::link_of(node))?;
    mounts::unmount_below(&place::netns_of(node))
}

/// Every link of this machine that is the lab's.
pub(super) fn links() -> anyhow::Result<Vec<String>> {
    // Nobody can have made one then.
    if !packages::is_there("ip") {
        return Ok(Vec::new());
    }
    let links = json(&["link", "show"])?;
    let names = links.iter().filter_map(|link| link.get("ifname")?.as_str());
    Ok(names.filter(|name| name.starts_with(LINKS)).map(str::to_owned).collect())
}

/// Makes sure that there is no such link.
pub(super) fn delete_link(name: &str) -> anyhow::Result<()> {
    let is_there = || anyhow::Ok(links()?.iter().any(|link| link == name));
    if is_there()?
        && let Err(error) = shell::capture(packages::program("ip").args(["link", "delete", "dev", name]))
        // It may go by itself with the other end.
        && is_there()?
    {
        return Err(error);
    }
    Ok(())
}

/// What `ip` says.
fn json(arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
    let text = shell::capture(packages::program("ip").arg("-json").args(arguments))?;
    // Nothing at all where there is nothing to list.
    if text.trim().is_empty() { Ok(Vec::new()) } else { serde_json::from_str(&text).context("what ip lists") }
}

/// Runs `lines` as one batch of the `ip` that `command` begins.
fn batch(command: &mut Command, lines: &[String]) -> anyhow::Result<()> {
    let mut ip = command.args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().context("ip")?;
    // It stops reading at the first line that fails; what it says then is more than that its end of the pipe is closed.
    let written = ip.stdin.take().context("its input")?.write_all((lines.join("\n") + "\n").as_bytes());
    let output = ip.wait_with_output()?;
    ensure!(output.status.success(), "ip: {}: {}", lines.join("; "), String::from_utf8_lossy(&output.stderr).trim());
    written.context("writing to ip")
}

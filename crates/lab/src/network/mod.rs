//! The lab's network: one bridge, and one network namespace per node, created for every boot.
//!
//! Guarantees: nodes and this machine reach each other by address. Links, routes and firewall rules of a boot do not outlive it.
//!
//! Deliberately absent: access to outside networks. Nodes get everything from this machine or from other nodes.

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
    name::{LINKS, NodeName},
    packages,
    place::{self, BRIDGE},
    refusal::Refusal,
};
use crate::shell;
pub(crate) use subnet::Subnet;

/// Name of a node's link inside its namespace.
const INSIDE: &str = "eth0";

/// Returns the first candidate subnet that overlaps no route of this machine.
pub(super) fn free_subnet() -> anyhow::Result<Subnet> {
    let routes = json(&["-4", "route", "show", "table", "all"])?;
    let routes: Vec<&str> = routes.iter().filter_map(|route| route.get("dst")?.as_str()).collect();
    let free = Subnet::candidates().find(|subnet| !routes.iter().any(|route| subnet.overlaps(route)));
    free.ok_or_else(|| Refusal::Machine("every subnet that a lab can use overlaps one of its routes".to_owned()).into())
}

/// Creates the bridge and gives this machine its address on it.
pub(super) fn make_bridge(subnet: &Subnet) -> anyhow::Result<()> {
    let address = format!("{}/{}", subnet.gateway(), Subnet::PREFIX);
    // A bridge without an own address takes the lowest one of its links, so the nodes' ARP caches would be stale whenever a node joins or
    // leaves.
    let mac = subnet::mac(subnet.gateway());
    // Without spanning tree, new links forward at once.
    batch(
        &mut packages::program("ip"),
        &[
            format!("link add name {BRIDGE} address {mac} type bridge stp_state 0 forward_delay 0"),
            format!("address add {address} dev {BRIDGE}"),
            format!("link set dev {BRIDGE} up"),
        ],
    )
}

/// Creates the network namespace for a node's next boot and links it to the bridge with the node's address.
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

/// Removes the network namespace of a boot, if it exists. The node's processes have ended.
pub(super) fn detach(node: &NodeName) -> anyhow::Result<()> {
    // The link goes first: the kernel removes a namespace's links with a delay, and the next boot needs the name.
    delete_link(&place::link_of(node))?;
    mounts::unmount_below(&place::netns_of(node))
}

/// Lists the links of this machine that belong to the lab.
pub(super) fn links() -> anyhow::Result<Vec<String>> {
    // Without `ip`, the lab cannot have created one.
    if !packages::is_installed("ip") {
        return Ok(Vec::new());
    }
    let links = json(&["link", "show"])?;
    let names = links.iter().filter_map(|link| link.get("ifname")?.as_str());
    Ok(names.filter(|name| name.starts_with(LINKS)).map(str::to_owned).collect())
}

/// Deletes the link, if it exists.
pub(super) fn delete_link(name: &str) -> anyhow::Result<()> {
    let is_there = || anyhow::Ok(links()?.iter().any(|link| link == name));
    if is_there()?
        && let Err(error) = shell::capture(packages::program("ip").args(["link", "delete", "dev", name]))
        // The link may disappear together with its peer.
        && is_there()?
    {
        return Err(error);
    }
    Ok(())
}

/// Runs `ip` and parses its JSON output.
fn json(arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
    let text = shell::capture(packages::program("ip").arg("-json").args(arguments))?;
    // `ip` prints nothing for an empty list.
    if text.trim().is_empty() {
        Ok(Vec::new())
    } else {
        serde_json::from_str(&text).context("parsing the output of ip")
    }
}

/// Runs `lines` as one batch of the `ip` command that `command` begins.
fn batch(command: &mut Command, lines: &[String]) -> anyhow::Result<()> {
    let mut ip = command.args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().context("ip")?;
    // `ip` stops reading at the first failing line. Its message explains more than the write error of the closed pipe.
    let written = ip.stdin.take().context("stdin is not piped")?.write_all((lines.join("\n") + "\n").as_bytes());
    let output = ip.wait_with_output()?;
    ensure!(output.status.success(), "ip: {}: {}", lines.join("; "), String::from_utf8_lossy(&output.stderr).trim());
    written.context("writing to ip")
}

//! Node names: a DNS server for the nodes, and lines in `/etc/hosts` for this machine.
//!
//! Guarantees: every node resolves the full and the short name of every node before the first one boots. This machine's resolver stays
//! unchanged.

use std::{fs, process::Stdio};

use anyhow::Context;
use camino::Utf8PathBuf;

use super::{
    cgroups, hosts_file,
    network::Subnet,
    packages,
    place::{self, DOMAIN, SERVICES, group},
    plan::Plan,
    resource::Resource,
    state::Journal,
};
use crate::shell;

/// Serves the nodes' names on the bridge and adds them to this machine's `/etc/hosts`.
pub(super) fn serve(plans: &[Plan], subnet: Subnet, journal: &mut Journal) -> anyhow::Result<()> {
    let in_full = |plan: &Plan| format!("{} {}.{DOMAIN}", plan.address, plan.name);
    let lines: Vec<String> = plans.iter().map(in_full).collect();
    let file = Utf8PathBuf::from(place::RUN).join("hosts");
    fs::write(&file, lines.join("\n") + "\n").with_context(|| file.to_string())?;
    let words = command_line(subnet, &file);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // dnsmasq goes into the background once it serves.
    let mut server = cgroups::detached(&group(SERVICES), &words)?;
    shell::capture(server.env("PATH", packages::path()).stdin(Stdio::null()))
        .context("starting the lab's DNS server")?;
    journal.record(Resource::HostsFile)?;
    hosts_file::add(&lines)
}

fn command_line(subnet: Subnet, hosts: &Utf8PathBuf) -> Vec<String> {
    let log = Utf8PathBuf::from(place::RUN).join("dns.log");
    [
        "dnsmasq",
        "--conf-file=/dev/null",
        "--user=root",
        "--pid-file=",
        // Listen on the bridge only: other DNS servers of this machine keep their addresses.
        "--bind-interfaces",
        "--except-interface=lo",
        &format!("--listen-address={}", subnet.gateway()),
        // Serve the lab's names only: no upstream servers and not this machine's hosts file.
        "--no-resolv",
        "--no-hosts",
        &format!("--addn-hosts={hosts}"),
        &format!("--domain={DOMAIN}"),
        "--expand-hosts",
        // Answer unknown names of this domain locally.
        &format!("--local=/{DOMAIN}/"),
        "--domain-needed",
        &format!("--log-facility={log}"),
    ]
    .map(str::to_owned)
    .to_vec()
}

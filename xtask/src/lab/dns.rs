//! Names of nodes: a DNS server of the lab's own for the nodes, lines in `/etc/hosts` for this machine.
//!
//! Guarantees: every node resolves every node's name, in full and in short, from the moment on at which the first one boots. This machine's own
//! resolver is left as it is.

use std::{fs, process::Stdio};

use anyhow::Context;
use camino::Utf8PathBuf;

use super::{
    cgroups, hosts_file,
    kind::Plan,
    network::Subnet,
    packages,
    place::{self, DOMAIN, SERVICES, group},
    state::Journal,
    thing::Thing,
};
use crate::shell;

/// Serves the nodes' names on the bridge, and tells them to this machine.
pub(super) fn serve(plans: &[Plan], subnet: Subnet, journal: &mut Journal) -> anyhow::Result<()> {
    let in_full = |plan: &Plan| format!("{} {}.{DOMAIN}", plan.address, plan.name);
    let lines: Vec<String> = plans.iter().map(in_full).collect();
    let file = Utf8PathBuf::from(place::RUN).join("hosts");
    fs::write(&file, lines.join("\n") + "\n").with_context(|| file.to_string())?;
    let words = words(subnet, &file);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // It goes into the background when it serves.
    let mut server = cgroups::detached(&group(SERVICES), &words)?;
    shell::capture(server.env("PATH", packages::path()).stdin(Stdio::null())).context("the lab's DNS server")?;
    journal.making(Thing::HostsFile)?;
    hosts_file::add(&lines)
}

fn words(subnet: Subnet, hosts: &Utf8PathBuf) -> Vec<String> {
    let log = Utf8PathBuf::from(place::RUN).join("dns.log");
    [
        "dnsmasq",
        "--conf-file=/dev/null",
        "--user=root",
        "--pid-file=",
        // On the bridge alone; a server of this machine's own keeps its addresses.
        "--bind-interfaces",
        "--except-interface=lo",
        &format!("--listen-address={}", subnet.gateway()),
        // Nothing but the lab's names: what others there are is nobody's business in it, and known nowhere.
        "--no-resolv",
        "--no-hosts",
        &format!("--addn-hosts={hosts}"),
        &format!("--domain={DOMAIN}"),
        "--expand-hosts",
        // What is not there in this domain is nowhere.
        &format!("--local=/{DOMAIN}/"),
        "--domain-needed",
        &format!("--log-facility={log}"),
    ]
    .map(str::to_owned)
    .to_vec()
}

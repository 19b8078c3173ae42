//! Firewall rules that accept the lab's traffic where this machine's firewall would drop it.
//!
//! Guarantees: a machine whose firewall accepts everything gets no rule. Every rule carries the lab's mark.
//!
//! Deliberately absent: handling of other nftables tables that drop packets; an accepting rule elsewhere does not overrule them.

use anyhow::Context;

use crate::{
    packages,
    place::{BRIDGE, MARK},
    shell,
};

const IPTABLES: &str = "iptables";

/// Returns the arguments for the rules that are needed: one for traffic across the bridge, one for traffic from nodes to this machine.
pub(crate) fn needed() -> anyhow::Result<Vec<Vec<String>>> {
    // Bridged packets pass through iptables only if this sysctl is 1.
    let bridged = std::fs::read_to_string("/proc/sys/net/bridge/bridge-nf-call-iptables").unwrap_or_default();
    let mut needed = Vec::new();
    if bridged.trim() == "1" && is_closed("FORWARD")? {
        needed.push(accept_rule(&["FORWARD", "-i", BRIDGE, "-o", BRIDGE]));
    }
    if is_closed("INPUT")? {
        needed.push(accept_rule(&["INPUT", "-i", BRIDGE]));
    }
    Ok(needed)
}

fn accept_rule(rule: &[&str]) -> Vec<String> {
    let accepted = ["-m", "comment", "--comment", MARK, "-j", "ACCEPT"];
    rule.iter().chain(&accepted).map(|word| (*word).to_owned()).collect()
}

/// Inserts a rule at the head of its chain.
pub(crate) fn insert(rule: &[String]) -> anyhow::Result<()> {
    iptables("-I", rule)
}

/// Deletes all copies of a rule, if any.
pub(crate) fn delete(rule: &[String]) -> anyhow::Result<()> {
    while found()?.iter().any(|existing| existing == rule) {
        iptables("-D", rule)?;
    }
    Ok(())
}

/// Lists all rules of the lab.
pub(crate) fn found() -> anyhow::Result<Vec<Vec<String>>> {
    if !packages::is_installed(IPTABLES) {
        return Ok(Vec::new());
    }
    let rules = shell::capture(packages::program(IPTABLES).args(["-w", "-S"]))?;
    Ok(marked(&rules))
}

fn marked(rules: &str) -> Vec<Vec<String>> {
    let added = rules.lines().filter_map(|line| line.strip_prefix("-A "));
    added
        .map(|rule| rule.split(' ').map(|word| word.trim_matches('"').to_owned()).collect::<Vec<_>>())
        .filter(|words| words.windows(2).any(|pair| pair == ["--comment", MARK]))
        .collect()
}

/// Reports whether a chain does anything except accept everything.
fn is_closed(chain: &str) -> anyhow::Result<bool> {
    let rules =
        shell::capture(packages::program(IPTABLES).args(["-w", "-S", chain])).context("reading the firewall")?;
    Ok(rules.lines().any(|line| line.trim() != format!("-P {chain} ACCEPT")))
}

fn iptables(action: &str, rule: &[String]) -> anyhow::Result<()> {
    shell::capture(packages::program(IPTABLES).args(["-w", action]).args(rule)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_the_lab_are_found_among_others() {
        let rule = accept_rule(&["FORWARD", "-i", BRIDGE, "-o", BRIDGE]);
        let text = format!(
            "-P FORWARD DROP\n-A FORWARD -j DOCKER-USER\n-A {}\n-A INPUT -m comment --comment \"a gpuaas-lab b\" -j DROP\n",
            rule.join(" ")
        );
        assert_eq!(marked(&text), [rule]);
    }
}

//! Rules of the packet filter, as listed by its own programs: `nft`, and `iptables-save` of either variant.
//!
//! Guarantees: every table of the kernel that an installed program can list is read, and the answer is `None` if no such program is
//! installed; a listing can have any length, because only matching rules are kept.
//!
//! Absent: changes of rules, and BPF programs attached to a link, which are not rules.

use std::{process::Stdio, time::Duration};

use camino::{Utf8Path, Utf8PathBuf};
use futures::StreamExt;
use tokio::process::Command;
use tokio_util::codec::{FramedRead, LinesCodec};

use crate::{error::HostError, host::FIREWALL_RULES_MAX, program::spawn};

/// Longest rule that is read, in bytes.
const RULE_BYTES_MAX: usize = 64 * 1_024;
/// Longest time for one listing; a node of a large cluster has tens of thousands of rules.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Folders that are searched for the programs.
const FOLDERS: &[&str] = &["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin"];

/// Returns the chains and rules that contain one of the texts, each with its table; `None` if no program that lists them is installed.
pub(crate) async fn rules(substrings: &[String]) -> Result<Option<Vec<String>>, HostError> {
    let listings = listings(&find, &uses_legacy);
    if listings.is_empty() {
        return Ok(None);
    }
    let mut found = Vec::new();
    for listing in listings {
        list(&listing, substrings, &mut found).await?;
    }
    Ok(Some(found))
}

/// A program with its arguments.
type Listing = (Utf8PathBuf, &'static [&'static str]);

/// Returns the programs that together list all rules. `nft` also shows the rules that iptables keeps in nftables. Only the legacy programs
/// show the kernel's legacy tables; they run only if such tables exist, because running them creates the tables.
fn listings(find: &dyn Fn(&str) -> Option<Utf8PathBuf>, uses_legacy: &dyn Fn(&str) -> bool) -> Vec<Listing> {
    let mut listings: Vec<Listing> = Vec::new();
    let nft = find("nft");
    let has_nft = nft.is_some();
    listings.extend(nft.map(|program| (program, &["list", "ruleset"][..])));
    for (names, current, legacy) in [
        ("ip_tables_names", "iptables-save", "iptables-legacy-save"),
        ("ip6_tables_names", "ip6tables-save", "ip6tables-legacy-save"),
    ] {
        let current = find(current);
        if uses_legacy(names) {
            listings.extend(find(legacy).or_else(|| current.clone()).map(|program| (program, &[][..])));
        }
        if !has_nft {
            listings.extend(current.map(|program| (program, &[][..])));
        }
    }
    listings.dedup();
    listings
}

fn find(program: &str) -> Option<Utf8PathBuf> {
    FOLDERS.iter().map(|folder| Utf8Path::new(folder).join(program)).find(|path| path.exists())
}

/// Returns true if the kernel has legacy tables.
fn uses_legacy(names: &str) -> bool {
    std::fs::read_to_string(format!("/proc/net/{names}")).is_ok_and(|names| !names.trim().is_empty())
}

async fn list((program, arguments): &Listing, substrings: &[String], found: &mut Vec<String>) -> Result<(), HostError> {
    let fail = |message: String| HostError::Program { program: program.clone(), message };
    let mut command = Command::new(program.as_std_path());
    // The agent's own environment may contain its enrollment token.
    command.args(*arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.kill_on_drop(true);
    let mut child = spawn(&mut command).map_err(|error| fail(error.to_string()))?;
    let Some(stdout) = child.stdout.take() else { return Err(fail("standard output is not captured".to_owned())) };
    let mut lines = FramedRead::new(stdout, LinesCodec::new_with_max_length(RULE_BYTES_MAX));
    let reading = async {
        let mut reader = Reader::default();
        while let Some(line) = lines.next().await {
            let rule = reader.read(&line.map_err(|error| fail(error.to_string()))?);
            if let Some(rule) = rule.filter(|rule| substrings.iter().any(|substring| rule.contains(substring.as_str())))
            {
                found.push(rule);
            }
            if found.len() >= FIREWALL_RULES_MAX {
                return Ok(());
            }
        }
        let status = child.wait().await.map_err(|error| fail(error.to_string()))?;
        if status.success() { Ok(()) } else { Err(fail(status.to_string())) }
    };
    let ended = tokio::time::timeout(TIMEOUT, reading).await;
    ended.unwrap_or_else(|_| Err(fail(format!("timed out after {} s", TIMEOUT.as_secs()))))
}

/// Parses a listing of either kind of program, line by line.
#[derive(Default)]
struct Reader {
    /// The enclosing blocks: a table, and in nft's listing a chain.
    inside: Vec<String>,
}

impl Reader {
    /// Returns the chain or rule of a line, with its table. The chain's name is not added to its rules: otherwise a word in the chain's
    /// name would match every rule of the chain.
    fn read(&mut self, line: &str) -> Option<String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || line == "COMMIT" {
            return None;
        }
        if let Some(table) = line.strip_prefix('*') {
            self.inside = vec![table.to_owned()];
            return None;
        }
        if line == "}" {
            self.inside.pop();
            return None;
        }
        let text = line.strip_suffix('{').unwrap_or(line).trim();
        let table = self.inside.first().cloned();
        if line.ends_with('{') {
            self.inside.push(text.to_owned());
        }
        Some(table.map_or_else(|| text.to_owned(), |table| format!("{table}: {text}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(listing: &str) -> Vec<String> {
        let mut reader = Reader::default();
        listing.lines().filter_map(|line| reader.read(line)).collect()
    }

    #[test]
    fn iptables_rules_include_their_table() {
        let saved = "# Generated\n*nat\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n*filter\n:INPUT ACCEPT [1:2]\nCOMMIT\n";
        assert_eq!(
            read(saved),
            ["nat: :KUBE-SERVICES - [0:0]", "nat: -A PREROUTING -j KUBE-SERVICES", "filter: :INPUT ACCEPT [1:2]"]
        );
    }

    #[test]
    fn nft_rules_include_their_table() {
        let listed = "table ip nat {\n\tchain KUBE-SERVICES {\n\t\tip daddr { 10.0.0.1, 10.0.0.2 } drop\n\t}\n\tchain INPUT {\n\t}\n}\n\
                      table inet other {\n\tset s {\n\t\telements = { 10.0.0.1,\n\t\t\t     10.0.0.2 }\n\t}\n}\n";
        assert_eq!(
            read(listed),
            [
                "table ip nat",
                "table ip nat: chain KUBE-SERVICES",
                "table ip nat: ip daddr { 10.0.0.1, 10.0.0.2 } drop",
                "table ip nat: chain INPUT",
                "table inet other",
                "table inet other: set s",
                "table inet other: elements = { 10.0.0.1,",
                "table inet other: 10.0.0.2 }",
            ]
        );
    }

    #[test]
    fn each_rule_is_listed_by_one_program() {
        let programs = |has: &'static [&'static str], legacy: &'static [&'static str]| -> Vec<String> {
            let find = |name: &str| has.contains(&name).then(|| Utf8PathBuf::from(name));
            let found = listings(&find, &|names| legacy.contains(&names));
            found.into_iter().map(|(program, _)| program.into_string()).collect()
        };
        assert_eq!(programs(&[], &["ip_tables_names"]), [""; 0]);
        assert_eq!(programs(&["nft", "iptables-save", "ip6tables-save"], &[]), ["nft"]);
        assert_eq!(
            programs(&["iptables-save", "ip6tables-save"], &["ip_tables_names"]),
            ["iptables-save", "ip6tables-save"]
        );
        let all = &["nft", "iptables-save", "iptables-legacy-save"];
        assert_eq!(programs(all, &["ip_tables_names"]), ["nft", "iptables-legacy-save"]);
    }
}

//! Mounts, links, addresses, routes, sysctls, firewall rules and known files and folders, as the kernel and its tools list them.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Context;
use serde_json::Value;

use super::Resources;
use crate::{packages, shell};

/// Prefixes of sysctls whose values change without anyone setting them.
const VOLATILE_SYSCTLS: [&str; 15] = [
    "fs/aio-nr",
    "fs/dentry-state",
    "fs/file-nr",
    "fs/inode-nr",
    "fs/inode-state",
    "fs/quota/",
    "kernel/hung_task_detect_count",
    "kernel/ns_last_pid",
    "kernel/perf_event_max_sample_rate",
    "kernel/pty/nr",
    "kernel/random/",
    "net/netfilter/nf_conntrack_count",
    // Generated for the first socket that asks for it.
    "net/ipv4/tcp_fastopen_key",
    "vm/stat_refresh",
    // Written by every process that compacts memory.
    "vm/compact_memory",
];
/// Folders to list, each with its depth.
const FOLDERS: [(&str, u8); 3] = [("/run", 4), ("/var/lib", 1), ("/etc", 1)];
/// Files whose content is compared.
const FILES: [&str; 2] = ["/etc/hosts", "/etc/resolv.conf"];
/// Programs that list firewall rules. A program that is not installed lists nothing, because nothing can have used it.
const FIREWALLS: [(&str, &[&str]); 3] =
    [("iptables-save", &[]), ("ip6tables-save", &[]), ("nft", &["list", "ruleset"])];

/// Collects all of it.
pub(super) fn all() -> anyhow::Result<Resources> {
    let mut resources = Resources::new();
    resources.insert("mounts".to_owned(), mounts()?);
    resources.insert(
        "links".to_owned(),
        ip(&["-json", "link", "show"], &["ifname"], &["link_type", "operstate", "mtu", "master"])?,
    );
    resources.insert("addresses".to_owned(), addresses()?);
    for family in ["-4", "-6"] {
        let routes = ["-json", family, "route", "show", "table", "all"];
        resources.insert(
            format!("routes {family}"),
            ip(&routes, &["dst", "dev", "table", "type"], &["gateway", "prefsrc"])?,
        );
    }
    resources.insert("sysctls".to_owned(), sysctls());
    for (program, arguments) in FIREWALLS {
        resources.insert(format!("rules of {program}"), rules(program, arguments)?);
    }
    resources.insert("paths".to_owned(), paths());
    Ok(resources)
}

/// Lists mounts by mount point and source; equal ones are numbered.
fn mounts() -> anyhow::Result<BTreeMap<String, String>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next().unwrap_or_default(), before.next().unwrap_or_default());
        insert_numbered(
            &mut found,
            format!("{point} ({root} of {})", after.split(' ').take(2).collect::<Vec<_>>().join(" ")),
            String::new(),
        );
    }
    Ok(found)
}

fn addresses() -> anyhow::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for link in ip_json(&["-json", "address", "show"])? {
        let name = text(&link, "ifname");
        for address in link.get("addr_info").and_then(Value::as_array).into_iter().flatten() {
            insert_numbered(
                &mut found,
                format!("{}/{} on {name}", text(address, "local"), text(address, "prefixlen")),
                String::new(),
            );
        }
    }
    Ok(found)
}

fn ip(arguments: &[&str], name: &[&str], detail: &[&str]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for entry in ip_json(arguments)? {
        let words = |fields: &[&str]| {
            let words = fields.iter().map(|field| text(&entry, field)).filter(|word| !word.is_empty());
            words.collect::<Vec<_>>().join(" ")
        };
        insert_numbered(&mut found, words(name), words(detail));
    }
    Ok(found)
}

fn ip_json(arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
    let text = shell::capture(packages::program("ip").args(arguments))?;
    if text.trim().is_empty() {
        Ok(Vec::new())
    } else {
        serde_json::from_str(&text).context("parsing the output of ip")
    }
}

fn text(value: &Value, field: &str) -> String {
    match value.get(field) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

fn insert_numbered(found: &mut BTreeMap<String, String>, name: String, detail: String) {
    let names = std::iter::once(name.clone()).chain((2..).map(|number| format!("{name} #{number}")));
    if let Some(free) = names.into_iter().find(|name| !found.contains_key(name)) {
        found.insert(free, detail);
    }
}

/// Reads every value below `/proc/sys` that is readable and changes only when set.
fn sysctls() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    walk(Path::new("/proc/sys"), u8::MAX, &mut |path, is_folder| {
        let name = path.strip_prefix("/proc/sys").unwrap_or(path).to_string_lossy().into_owned();
        if !is_folder && !VOLATILE_SYSCTLS.iter().any(|prefix| name.starts_with(prefix)) {
            found.extend(fs::read_to_string(path).ok().map(|value| (name, value.trim().to_owned())));
        }
    });
    found
}

/// Lists the rules, each line once, without counters and times.
fn rules(program: &str, arguments: &[&str]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    if packages::is_installed(program) {
        let output = shell::capture(packages::program(program).args(arguments))?;
        for line in output.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
            insert_numbered(&mut found, line.split(" [").next().unwrap_or(line).to_owned(), String::new());
        }
    }
    Ok(found)
}

fn paths() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (folder, depth) in FOLDERS {
        walk(Path::new(folder), depth, &mut |path, is_folder| {
            let kind = if is_folder { "folder" } else { "file" };
            found.insert(path.to_string_lossy().into_owned(), kind.to_owned());
        });
    }
    for file in FILES {
        found.insert(format!("{file} (content)"), fs::read_to_string(file).unwrap_or_default());
    }
    found
}

/// Lists the content of a folder down to `depth`; follows no links.
fn walk(folder: &Path, depth: u8, take: &mut impl FnMut(&Path, bool)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        take(&entry.path(), is_folder);
        if is_folder && depth > 1 {
            walk(&entry.path(), depth - 1, take);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_entries_are_numbered() {
        let mut found = BTreeMap::new();
        for _ in 0..3 {
            insert_numbered(&mut found, "a".to_owned(), String::new());
        }
        assert_eq!(found.into_keys().collect::<Vec<_>>(), ["a", "a #2", "a #3"]);
    }

    #[test]
    fn listed_sysctls_do_not_change_by_themselves() {
        let (first, second) = (sysctls(), sysctls());
        assert!(first.contains_key("kernel/ostype"), "{} sysctls were read", first.len());
        assert_eq!(first, second);
    }
}

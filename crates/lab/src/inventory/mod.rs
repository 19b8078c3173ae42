//! Inventory of everything on this machine that a lab can create, as the kernel and its tools list it.
//!
//! Guarantees: independent of the lab's code: it reads no state file and no list of created things. Comparing two
//! inventories shows new processes, namespaces and cgroups, and everything else that was added, removed or changed.
//!
//! Other users may be active on the machine. A process counts as the lab's if it has [`MARK`] in its environment (children inherit it),
//! lives in a namespace that did not exist before, or has a command line that names the lab. A cgroup that contains a process of another
//! user counts as theirs. Changes attributed to others are counted and reported.

mod listed;
mod processes;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use camino::Utf8Path;
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use processes::Process;

/// The environment variable that marks the processes that a test starts.
pub(super) const MARK: &str = "GPUAAS_LAB_TEST";

/// Details by kind and name.
type Resources = BTreeMap<String, BTreeMap<String, String>>;

/// Everything that exists at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Inventory {
    processes: BTreeMap<String, Process>,
    /// Process identifiers by cgroup.
    cgroups: BTreeMap<String, BTreeSet<String>>,
    things: Resources,
}

/// The difference between two inventories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// Changes that only a lab can have made, one per line.
    pub(super) lines: Vec<String>,
    /// Number of changes attributed to others.
    pub(super) others: usize,
}

/// Runs the hidden command: prints the inventory, or what is new compared with the one in `since`.
pub(super) fn run(since: Option<&Utf8Path>) -> anyhow::Result<()> {
    let now = Inventory::take()?;
    let Some(file) = since else {
        println!("{}", serde_json::to_string_pretty(&now)?);
        return Ok(());
    };
    let text = std::fs::read(file).with_context(|| file.to_string())?;
    let before: Inventory = serde_json::from_slice(&text).with_context(|| file.to_string())?;
    let difference = before.diff(&now);
    println!("  {}; attributed to others: {}", now.counts(), difference.others);
    if difference.lines.is_empty() { Ok(()) } else { Err(Refusal::Residue(difference.lines).into()) }
}

impl Inventory {
    /// Takes the inventory.
    pub(super) fn take() -> anyhow::Result<Self> {
        let processes = processes::all()?;
        let cgroups = processes::by_cgroup(&processes)?;
        Ok(Self { processes, cgroups, things: listed::all()? })
    }

    /// Number of things of each kind, as text for people.
    pub(super) fn counts(&self) -> String {
        let namespaces = namespaces(self.processes.values());
        let of =
            [("processes", self.processes.len()), ("namespaces", namespaces.len()), ("cgroups", self.cgroups.len())];
        let resources = self.things.iter().map(|(kind, resources)| (kind.as_str(), resources.len()));
        of.into_iter().chain(resources).map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
    }

    /// Compares with a later inventory.
    pub(super) fn diff(&self, later: &Self) -> Difference {
        let mut difference = Difference::default();
        let old = namespaces(self.processes.values());
        let (new, ours): (Vec<_>, BTreeSet<&String>) = {
            let new: Vec<_> = later.processes.iter().filter(|(id, _)| !self.processes.contains_key(*id)).collect();
            let ours = new.iter().filter(|(_, process)| process.belongs_to_lab(&old)).map(|(id, _)| *id).collect();
            (new, ours)
        };
        for (id, process) in new {
            if ours.contains(id) {
                difference.lines.push(format!("+ process {id}: {}", process.command));
            } else {
                difference.others += 1;
            }
        }
        difference.lines.extend(self.new_namespaces(later, &ours));
        for (group, members) in later.cgroups.iter().filter(|(group, _)| !self.cgroups.contains_key(*group)) {
            if members.iter().any(|member| !ours.contains(member)) {
                difference.others += 1;
            } else {
                difference.lines.push(format!("+ cgroup {group}"));
            }
        }
        for (kind, resources) in &later.things {
            let before = self.things.get(kind).cloned().unwrap_or_default();
            difference.lines.extend(changes(kind, &before, resources));
        }
        difference
    }

    /// Lists new namespaces in which a process of the lab lives. A namespace without processes is held by a mount and is listed as one.
    fn new_namespaces(&self, later: &Self, ours: &BTreeSet<&String>) -> Vec<String> {
        let old = namespaces(self.processes.values());
        let lab_processes = later.processes.iter().filter(|(id, _)| ours.contains(id)).map(|(_, process)| process);
        namespaces(lab_processes).difference(&old).map(|namespace| format!("+ namespace {namespace}")).collect()
    }
}

fn namespaces<'a>(processes: impl Iterator<Item = &'a Process>) -> BTreeSet<String> {
    processes.flat_map(|process| process.namespaces.iter().cloned()).collect()
}

fn changes(kind: &str, before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let added = after.iter().filter_map(|(name, detail)| match before.get(name) {
        None => Some(format!("+ {kind} {name} {detail}")),
        Some(earlier) if earlier != detail => Some(format!("~ {kind} {name}: {earlier} -> {detail}")),
        Some(_) => None,
    });
    let removed = before.keys().filter(|name| !after.contains_key(*name)).map(|name| format!("- {kind} {name}"));
    added.chain(removed).map(|line| line.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(command: &str, namespace: &str) -> Process {
        Process { command: command.to_owned(), is_marked: false, namespaces: BTreeSet::from([namespace.to_owned()]) }
    }

    fn inventory(processes: &[(&str, Process)]) -> Inventory {
        let processes = processes.iter().map(|(id, process)| ((*id).to_owned(), process.clone())).collect();
        Inventory { processes, ..Inventory::default() }
    }

    #[test]
    fn residue_of_a_lab_is_distinguished_from_changes_by_others() {
        let mut before = inventory(&[("1", process("init", "net:[1]"))]);
        let mut after = inventory(&[
            ("1", process("init", "net:[1]")),
            ("2", process("make", "net:[1]")),
            ("3", Process { is_marked: true, ..process("dnsmasq", "net:[1]") }),
            ("4", process("/sbin/init", "net:[2]")),
            ("5", process("nspawn --machine=gpuaas-lab-node-1", "net:[1]")),
        ]);
        after.cgroups = [("cpu/theirs", "2"), ("cpu/ours", "4")]
            .map(|(group, member)| (group.to_owned(), BTreeSet::from([member.to_owned()])))
            .into_iter()
            .chain([("cpu/empty".to_owned(), BTreeSet::new())])
            .collect();
        let link = |name: &str, detail: &str| BTreeMap::from([(name.to_owned(), detail.to_owned())]);
        before.things =
            BTreeMap::from([("link".to_owned(), link("eth0", "up")), ("mount".to_owned(), link("/mnt", "tmpfs"))]);
        after.things =
            BTreeMap::from([("link".to_owned(), link("eth0", "down")), ("mount".to_owned(), BTreeMap::new())]);
        let difference = before.diff(&after);
        let expected = [
            "+ process 3: dnsmasq",
            "+ process 4: /sbin/init",
            "+ process 5: nspawn --machine=gpuaas-lab-node-1",
            "+ namespace net:[2]",
            "+ cgroup cpu/empty",
            "+ cgroup cpu/ours",
            "~ link eth0: up -> down",
            "- mount /mnt",
        ];
        assert_eq!((difference.lines, difference.others), (expected.map(str::to_owned).to_vec(), 2));
    }

    #[test]
    fn inventory_does_not_differ_from_itself() {
        let now = inventory(&[("4", process("/sbin/init", "net:[2]"))]);
        assert_eq!(now.diff(&now), Difference::default());
    }
}

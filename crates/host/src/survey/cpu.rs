//! Processors, swap, and the firmware's name for the machine.

use std::collections::BTreeSet;

use super::Tree;

/// The processors of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus {
    /// The model name; empty if the kernel does not report one.
    pub model: String,
    /// Number of occupied sockets; at least 1.
    pub sockets: u32,
    /// Cores of all sockets; at least 1.
    pub cores: u32,
}

/// Reads the processors from the kernel's topology; without one, each logical CPU counts as a core.
pub fn cpus(tree: &Tree) -> Cpus {
    let info = tree.text("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let (mut sockets, mut cores) = (BTreeSet::new(), BTreeSet::new());
    let folder = "/sys/devices/system/cpu";
    let numbers = tree.names(folder).into_iter().filter(|name| {
        name.strip_prefix("cpu")
            .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()) && !number.is_empty())
    });
    for cpu in numbers {
        let id = |what: &str| tree.line(&format!("{folder}/{cpu}/topology/{what}"));
        let (socket, core) = (id("physical_package_id"), id("core_id"));
        if !socket.is_empty() {
            sockets.insert(socket.clone());
            cores.insert((socket, core));
        }
    }
    let count = |many: usize| u32::try_from(many).unwrap_or(u32::MAX);
    let logical = info.lines().filter(|line| line.starts_with("processor")).count();
    Cpus {
        model: model.map(|(_, name)| name.trim().to_owned()).unwrap_or_default(),
        sockets: count(sockets.len()).max(1),
        cores: if cores.is_empty() { count(logical).max(1) } else { count(cores.len()) },
    }
}

/// Returns the size of the swap space in bytes, used or not; 0 in a sandbox.
pub fn swap_bytes(tree: &Tree) -> u64 {
    let table = tree.own_text("/proc/swaps").unwrap_or_default();
    let kib = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    kib.sum::<u64>().saturating_mul(1_024)
}

/// Returns the machine's vendor and product name from the firmware; empty if it reports none.
pub fn product(tree: &Tree) -> String {
    let line = |what: &str| tree.own_text(&format!("/sys/class/dmi/id/{what}")).unwrap_or_default().trim().to_owned();
    let (vendor, name) = (line("sys_vendor"), line("product_name"));
    if name.starts_with(&vendor) { name } else { format!("{vendor} {name}").trim().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{super::tree::tests::machine, *};

    #[test]
    fn two_sockets_of_two_cores_with_two_threads_are_four_cores() {
        let mut files = vec![("/proc/cpuinfo".to_owned(), "processor\t: 0\nmodel name\t: Example 9000\n".to_owned())];
        for cpu in 0..8 {
            let topology = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
            files.push((format!("{topology}/physical_package_id"), format!("{}\n", cpu % 2)));
            files.push((format!("{topology}/core_id"), format!("{}\n", cpu / 2 % 2)));
        }
        files.push(("/sys/devices/system/cpu/cpufreq/boost".to_owned(), "1\n".to_owned()));
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let (_folder, tree) = machine(&files);
        assert_eq!(cpus(&tree), Cpus { model: "Example 9000".into(), sockets: 2, cores: 4 });
    }

    #[test]
    fn without_a_topology_each_logical_cpu_is_a_core() {
        let (_folder, tree) = machine(&[("/proc/cpuinfo", "processor : 0\nprocessor : 1\nprocessor : 2\n")]);
        assert_eq!(cpus(&tree), Cpus { model: String::new(), sockets: 1, cores: 3 });
    }

    #[test]
    fn swap_is_the_sum_of_its_devices_and_a_machine_without_has_none() {
        let table = "Filename\tType\t\tSize\tUsed\tPriority\n/dev/sda2 partition 2097148 0 -2\n/swap file 1024 0 -3\n";
        let (_folder, tree) = machine(&[("/proc/swaps", table)]);
        assert_eq!(swap_bytes(&tree), (2_097_148 + 1_024) * 1_024);
        let (_folder, none) = machine(&[("/proc/swaps", "Filename Type Size Used Priority\n")]);
        assert_eq!((swap_bytes(&none), swap_bytes(&machine(&[]).1)), (0, 0));
    }

    #[test]
    fn a_product_has_its_makers_name_once() {
        let dmi = |vendor, name| {
            machine(&[("/sys/class/dmi/id/sys_vendor", vendor), ("/sys/class/dmi/id/product_name", name)])
        };
        assert_eq!(product(&dmi("Dell Inc.\n", "PowerEdge XE9680\n").1), "Dell Inc. PowerEdge XE9680");
        assert_eq!(product(&dmi("VMware, Inc.", "VMware, Inc. Virtual Platform").1), "VMware, Inc. Virtual Platform");
        assert_eq!(product(&machine(&[]).1), "");
    }
}

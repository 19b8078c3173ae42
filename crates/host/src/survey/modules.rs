//! Kernel modules: which are loaded, and which could be.

use super::Tree;

/// The state of a kernel module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleState {
    /// Loaded, or built into the running kernel.
    Present,
    /// Not loaded, but installed.
    Loadable,
    /// Not installed.
    Missing,
    /// Not loaded, and it is unknown if it is installed: there is no module list of the running kernel.
    Unknown,
}

/// Paths that exist once the kernel has a module's function, loaded or built in.
const TRACES: &[(&str, &str)] = &[
    ("br_netfilter", "/proc/sys/net/bridge"),
    ("nf_conntrack", "/proc/sys/net/netfilter"),
    ("ip_tables", "/proc/net/ip_tables_names"),
];

/// Returns the state of a module. `-` and `_` in its name are equivalent.
pub fn module_state(tree: &Tree, name: &str) -> ModuleState {
    let name = name.replace('-', "_");
    if is_present(tree, &name) {
        return ModuleState::Present;
    }
    let folder = format!("/lib/modules/{}", tree.line("/proc/sys/kernel/osrelease"));
    let contains = |file: &str| {
        let list = tree.text(&format!("{folder}/{file}"))?;
        Some(list.lines().any(|line| module_of(line.split(':').next().unwrap_or_default()) == name))
    };
    match (contains("modules.builtin"), contains("modules.dep")) {
        (Some(true), _) => ModuleState::Present,
        (_, Some(true)) => ModuleState::Loadable,
        (_, Some(false)) => ModuleState::Missing,
        (_, None) => ModuleState::Unknown,
    }
}

fn is_present(tree: &Tree, name: &str) -> bool {
    let loaded = tree.text("/proc/modules").unwrap_or_default();
    let is_file_system = || {
        let known = tree.text("/proc/filesystems").unwrap_or_default();
        known.lines().any(|line| line.split_whitespace().last() == Some(name))
    };
    let has_trace = || TRACES.iter().any(|(module, path)| *module == name && tree.exists(path));
    loaded.lines().any(|line| line.split(' ').next() == Some(name))
        // Built-in modules with parameters have a folder here.
        || tree.exists(&format!("/sys/module/{name}"))
        || is_file_system()
        || has_trace()
}

/// Returns a module's name from its file, such as `kernel/net/bridge/br_netfilter.ko.xz`.
fn module_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or_default();
    file.split(".ko").next().unwrap_or_default().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::{super::tree::tests::machine, *};

    #[test]
    fn module_is_present_loadable_missing_or_unknown() {
        let (_folder, tree) = machine(&[
            ("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
            ("/proc/modules", "br_netfilter 36864 0 - Live 0x0\nbridge 311296 1 br_netfilter, Live 0x0\n"),
            ("/proc/filesystems", "nodev\toverlay\n\text4\n"),
            ("/sys/module/zswap/parameters/enabled", "N\n"),
            ("/proc/sys/net/netfilter/nf_conntrack_max", "65536\n"),
            ("/lib/modules/6.1.0-18-amd64/modules.builtin", "kernel/fs/ext4/ext4.ko\n"),
            (
                "/lib/modules/6.1.0-18-amd64/modules.dep",
                "kernel/drivers/net/vxlan/vxlan.ko.xz: kernel/net/ipv4/udp_tunnel.ko.xz\nkernel/net/sched/act-x.ko:\n",
            ),
        ]);
        for (name, state) in [
            ("br_netfilter", ModuleState::Present),
            ("br-netfilter", ModuleState::Present),
            ("overlay", ModuleState::Present),
            ("zswap", ModuleState::Present),
            ("nf_conntrack", ModuleState::Present),
            ("ext4", ModuleState::Present),
            ("vxlan", ModuleState::Loadable),
            ("act_x", ModuleState::Loadable),
            ("udp_tunnel", ModuleState::Missing),
            ("netfilter", ModuleState::Missing),
        ] {
            assert_eq!(module_state(&tree, name), state, "{name}");
        }
    }

    #[test]
    fn module_is_unknown_without_the_kernels_module_files() {
        let (_folder, tree) = machine(&[
            ("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
            ("/lib/modules/6.1.0-21-amd64/modules.dep", "kernel/drivers/net/vxlan/vxlan.ko.xz:\n"),
        ]);
        assert_eq!(module_state(&tree, "vxlan"), ModuleState::Unknown);
    }
}

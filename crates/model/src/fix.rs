//! Safe fixes for nodes: a closed set. Each fix owns one file with fixed contents.

use crate::state::text_enum;

text_enum! {
    /// Every safe fix. The agent has the values compiled in and accepts none from outside.
    FixKind {
        /// Raises inotify limits: every container log and every mounted secret uses watches.
        Inotify = "inotify",
        /// Turns IP forwarding on and sends bridged packets through the packet filter.
        Forwarding = "forwarding",
        /// Loads the kernel modules that containers and their network need, now and at boot.
        Modules = "modules",
    }
}

impl FixKind {
    /// File that makes the fix survive a reboot. Only the fix uses it, so other settings stay untouched and removing the file
    /// reverts the fix.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Inotify => "/etc/sysctl.d/60-gpuaas-inotify.conf",
            Self::Forwarding => "/etc/sysctl.d/60-gpuaas-forwarding.conf",
            Self::Modules => "/etc/modules-load.d/60-gpuaas.conf",
        }
    }

    /// Kernel parameters and their minimum values. Higher values stay unchanged.
    pub const fn sysctls(self) -> &'static [(&'static str, u64)] {
        match self {
            // Values from RKE2's documentation.
            Self::Inotify => &[("fs.inotify.max_user_instances", 8_192), ("fs.inotify.max_user_watches", 524_288)],
            Self::Forwarding => &[("net.ipv4.ip_forward", 1), ("net.bridge.bridge-nf-call-iptables", 1)],
            Self::Modules => &[],
        }
    }

    /// Kernel modules that must be loaded.
    pub const fn modules(self) -> &'static [&'static str] {
        match self {
            Self::Inotify | Self::Forwarding => &[],
            // Container file systems; packet filter on bridges; connection tracking; canal's overlay network between nodes.
            Self::Modules => &["overlay", "br_netfilter", "nf_conntrack", "vxlan"],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_fix_writes_its_own_file_that_is_read_at_boot() {
        let paths: BTreeSet<&str> = FixKind::ALL.iter().map(|fix| fix.path()).collect();
        assert_eq!(paths.len(), FixKind::ALL.len());
        for fix in FixKind::ALL {
            let folder = if fix.modules().is_empty() { "/etc/sysctl.d/" } else { "/etc/modules-load.d/" };
            let name = fix.path().strip_prefix(folder).expect("a file in the folder that is read at boot");
            assert!(name.starts_with("60-gpuaas") && name.ends_with(".conf"), "{name}");
            assert_eq!(
                fix.sysctls().is_empty(),
                !fix.modules().is_empty(),
                "{fix} sets parameters or loads modules, not both"
            );
        }
    }
}

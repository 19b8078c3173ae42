//! Fixes that are safe to send to a node: a closed set, each with one file of its own and what that file says.

use crate::state::text_enum;

text_enum! {
    /// Every fix there is. An agent carries out what is compiled into it: nobody sends it a value.
    FixKind {
        /// More instances and watches of inotify: every container's log and every mounted secret takes some.
        Inotify = "inotify",
        /// Packets of pods are forwarded, and bridged ones are seen by the packet filter.
        Forwarding = "forwarding",
        /// Kernel modules that containers and their network need are loaded now and at boot.
        Modules = "modules",
    }
}

impl FixKind {
    /// The file that keeps it over a reboot: its own, so that nobody's settings are touched and removing it takes the fix back.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Inotify => "/etc/sysctl.d/60-gpuaas-inotify.conf",
            Self::Forwarding => "/etc/sysctl.d/60-gpuaas-forwarding.conf",
            Self::Modules => "/etc/modules-load.d/60-gpuaas.conf",
        }
    }

    /// Kernel parameters with the least value that each must have. Values above it stay as they are.
    pub const fn sysctls(self) -> &'static [(&'static str, u64)] {
        match self {
            // What RKE2's own documents ask for.
            Self::Inotify => &[("fs.inotify.max_user_instances", 8_192), ("fs.inotify.max_user_watches", 524_288)],
            Self::Forwarding => &[("net.ipv4.ip_forward", 1), ("net.bridge.bridge-nf-call-iptables", 1)],
            Self::Modules => &[],
        }
    }

    /// Kernel modules that must be there.
    pub const fn modules(self) -> &'static [&'static str] {
        match self {
            Self::Inotify | Self::Forwarding => &[],
            // Containers' file systems; the filter on bridges; connections in the packet filter; canal's network between nodes.
            Self::Modules => &["overlay", "br_netfilter", "nf_conntrack", "vxlan"],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_fix_has_a_file_of_its_own_where_the_system_reads_it_at_boot() {
        let paths: BTreeSet<&str> = FixKind::ALL.iter().map(|fix| fix.path()).collect();
        assert_eq!(paths.len(), FixKind::ALL.len());
        for fix in FixKind::ALL {
            let folder = if fix.modules().is_empty() { "/etc/sysctl.d/" } else { "/etc/modules-load.d/" };
            let name = fix.path().strip_prefix(folder).expect("the folder that is read for it");
            assert!(name.starts_with("60-gpuaas") && name.ends_with(".conf"), "{name}");
            assert_eq!(fix.sysctls().is_empty(), !fix.modules().is_empty(), "{fix} is of one kind");
        }
    }
}

//! What a preflight looks for: stable names of findings. `docs/findings.md` explains each.

use crate::{fix::FixKind, state::text_enum};

text_enum! {
    /// Every check of a preflight, under the name that its finding has.
    Check {
        /// Something listens on a port that is needed.
        PortTaken = "port_taken",
        /// Files of an earlier cluster.
        Leftover = "leftover",
        /// Network links of an earlier cluster.
        LinksLeft = "links_left",
        /// Rules of an earlier cluster in the packet filter.
        RulesLeft = "rules_left",
        /// Mounts of an earlier cluster, or one where an uninstall removes the folder.
        MountsLeft = "mounts_left",
        /// What the app's own uninstall would delete though it did not make it.
        Endangered = "endangered",
        /// Too little room.
        DiskSpace = "disk_space",
        /// Writes reach the disk too slowly for etcd.
        DiskSlow = "disk_slow",
        /// Programs may not run where they are to lie.
        NoExec = "noexec",
        /// Nothing can be written where the app has to write.
        ReadOnly = "read_only",
        /// A folder that the agent writes in is behind a link, and it follows none.
        FolderLinked = "folder_linked",
        /// Fewer processors than wanted.
        CpuFew = "cpu_few",
        /// Less memory than wanted.
        MemoryLittle = "memory_little",
        /// Swap is in use.
        SwapOn = "swap_on",
        /// The limits of inotify are low.
        InotifyLow = "inotify_low",
        /// Packets are not forwarded, or bridged ones pass by the packet filter.
        ForwardingOff = "forwarding_off",
        /// Kernel modules are not loaded, and can be.
        ModulesUnloaded = "modules_unloaded",
        /// Kernel modules are not there.
        ModulesMissing = "modules_missing",
        /// Control groups are of the first version alone.
        CgroupV1 = "cgroup_v1",
        /// There is no default route.
        RouteMissing = "route_missing",
        /// Packets of the default route's link are too small to carry those of pods.
        MtuSmall = "mtu_small",
        /// Packets between nodes may arrive with wrong checksums.
        ChecksumOffload = "checksum_offload",
        /// Name servers that only the host itself reaches, or none.
        ResolverLocal = "resolver_local",
        /// More name servers or search domains than pods are given.
        ResolverLong = "resolver_long",
        /// The clock is not kept in time.
        ClockUnsynchronized = "clock_unsynchronized",
        /// The host's name is none that Kubernetes takes.
        HostName = "host_name",
        /// A firewall decides besides the cluster's own rules.
        FirewallActive = "firewall_active",
        /// NetworkManager takes links and routes of pods for its own.
        NetworkManager = "network_manager",
        /// The program that lists and sets packet filter rules is not there.
        IptablesMissing = "iptables_missing",
        /// SELinux forbids what containers need.
        SelinuxPolicy = "selinux_policy",
        /// fapolicyd forbids what containers need.
        Fapolicyd = "fapolicyd",
        /// The app's unit is masked or replaced.
        UnitMasked = "unit_masked",
        /// The app's unit is changed by files beside it.
        UnitOverridden = "unit_overridden",
        /// Variables in the environment of the app's units change settings that the platform makes.
        SettingsOverridden = "settings_overridden",
        /// A proxy is set that nodes would reach each other through.
        ProxyIncomplete = "proxy_incomplete",
    }
}

impl Check {
    /// The fix that takes its finding away, if there is one that is safe.
    pub const fn fix(self) -> Option<FixKind> {
        match self {
            Self::InotifyLow => Some(FixKind::Inotify),
            Self::ForwardingOff => Some(FixKind::Forwarding),
            Self::ModulesUnloaded => Some(FixKind::Modules),
            Self::PortTaken
            | Self::Leftover
            | Self::LinksLeft
            | Self::RulesLeft
            | Self::MountsLeft
            | Self::Endangered
            | Self::DiskSpace
            | Self::DiskSlow
            | Self::NoExec
            | Self::ReadOnly
            | Self::FolderLinked
            | Self::CpuFew
            | Self::MemoryLittle
            | Self::SwapOn
            | Self::ModulesMissing
            | Self::CgroupV1
            | Self::RouteMissing
            | Self::MtuSmall
            | Self::ChecksumOffload
            | Self::ResolverLocal
            | Self::ResolverLong
            | Self::ClockUnsynchronized
            | Self::HostName
            | Self::FirewallActive
            | Self::NetworkManager
            | Self::IptablesMissing
            | Self::SelinuxPolicy
            | Self::Fapolicyd
            | Self::UnitMasked
            | Self::UnitOverridden
            | Self::SettingsOverridden
            | Self::ProxyIncomplete => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_fix_takes_one_finding_away() {
        let fixes: Vec<FixKind> = Check::ALL.iter().filter_map(|check| check.fix()).collect();
        assert_eq!(fixes.iter().collect::<BTreeSet<_>>().len(), fixes.len());
        assert_eq!(fixes.len(), FixKind::ALL.len());
    }
}

//! Preflight checks: the stable names of findings. `docs/findings.md` explains each.

use crate::{fix::FixKind, state::text_enum};

text_enum! {
    /// Every preflight check. A finding has the name of its check.
    Check {
        /// Another process listens on a required port.
        PortTaken = "port_taken",
        /// Files of an earlier cluster are left.
        Leftover = "leftover",
        /// Network interfaces of an earlier cluster are left.
        LeftoverLinks = "leftover_links" | "links_left",
        /// Packet filter rules of an earlier cluster are left.
        LeftoverFirewallRules = "leftover_firewall_rules" | "rules_left",
        /// Mounts of an earlier cluster are left, or something is mounted in a directory that an uninstall removes.
        LeftoverMounts = "leftover_mounts" | "mounts_left",
        /// The app's uninstall script would delete files that the app did not create.
        UninstallWouldDelete = "uninstall_would_delete" | "endangered",
        /// Too little free disk space.
        DiskSpace = "disk_space",
        /// Disk writes are too slow for etcd.
        DiskSlow = "disk_slow",
        /// The file system for the app's programs is mounted `noexec`.
        NoExec = "noexec",
        /// A directory that the app must write to is read-only.
        ReadOnly = "read_only",
        /// A directory that the agent writes to is reached through a symbolic link, which the agent refuses to follow.
        FolderIsSymlink = "folder_is_symlink" | "folder_linked",
        /// Fewer processors than the app requires.
        InsufficientCpu = "insufficient_cpu" | "cpu_few",
        /// Less memory than the app requires.
        InsufficientMemory = "insufficient_memory" | "memory_little",
        /// Swap is in use.
        SwapOn = "swap_on",
        /// The inotify limits are too low.
        InotifyLow = "inotify_low",
        /// IP forwarding is off, or bridged packets bypass the packet filter.
        ForwardingOff = "forwarding_off",
        /// Kernel modules are not loaded but available.
        ModulesUnloaded = "modules_unloaded",
        /// Kernel modules are missing.
        ModulesMissing = "modules_missing",
        /// The host has only cgroup v1.
        CgroupV1 = "cgroup_v1",
        /// The host has no default route.
        RouteMissing = "route_missing",
        /// The MTU of the default route's interface is too small for pod traffic.
        MtuSmall = "mtu_small",
        /// Checksum offload may corrupt packets between nodes.
        ChecksumOffload = "checksum_offload",
        /// The resolver lists no name server, or only ones that the host alone can reach.
        ResolverLocal = "resolver_local",
        /// The resolver lists more name servers or search domains than pods receive.
        ResolverLimitsExceeded = "resolver_limits_exceeded" | "resolver_long",
        /// The clock is not synchronized.
        ClockUnsynchronized = "clock_unsynchronized",
        /// The host name is not a valid Kubernetes node name.
        HostName = "host_name",
        /// A firewall filters packets in addition to the cluster's rules.
        FirewallActive = "firewall_active",
        /// NetworkManager manages the pod network's interfaces and routes.
        NetworkManager = "network_manager",
        /// The `iptables` program is missing.
        IptablesMissing = "iptables_missing",
        /// SELinux blocks what containers need.
        SelinuxPolicy = "selinux_policy",
        /// fapolicyd blocks what containers need.
        Fapolicyd = "fapolicyd",
        /// The app's unit is masked or replaced.
        UnitMasked = "unit_masked",
        /// Drop-in files change the app's unit.
        UnitOverridden = "unit_overridden",
        /// Environment variables of the app's units override settings that the platform writes.
        SettingsOverridden = "settings_overridden",
        /// A proxy is set and does not exclude the addresses of the nodes.
        ProxyIncomplete = "proxy_incomplete",
        /// A member was given up on the node, so what it left there is unknown. The control plane finds this, not the agent.
        RemovalUnproven = "removal_unproven",
    }
}

impl Check {
    /// Returns the safe fix that resolves the finding, if there is one.
    pub const fn fix(self) -> Option<FixKind> {
        match self {
            Self::InotifyLow => Some(FixKind::Inotify),
            Self::ForwardingOff => Some(FixKind::Forwarding),
            Self::ModulesUnloaded => Some(FixKind::Modules),
            Self::PortTaken
            | Self::Leftover
            | Self::LeftoverLinks
            | Self::LeftoverFirewallRules
            | Self::LeftoverMounts
            | Self::UninstallWouldDelete
            | Self::DiskSpace
            | Self::DiskSlow
            | Self::NoExec
            | Self::ReadOnly
            | Self::FolderIsSymlink
            | Self::InsufficientCpu
            | Self::InsufficientMemory
            | Self::SwapOn
            | Self::ModulesMissing
            | Self::CgroupV1
            | Self::RouteMissing
            | Self::MtuSmall
            | Self::ChecksumOffload
            | Self::ResolverLocal
            | Self::ResolverLimitsExceeded
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
            | Self::ProxyIncomplete
            | Self::RemovalUnproven => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_fix_resolves_one_finding() {
        let fixes: Vec<FixKind> = Check::ALL.iter().filter_map(|check| check.fix()).collect();
        assert_eq!(fixes.iter().collect::<BTreeSet<_>>().len(), fixes.len());
        assert_eq!(fixes.len(), FixKind::ALL.len());
    }
}

//! Why an installation failed on the machine: reported by `install.sh` before an agent runs, and by the agent during enrollment.
//!
//! Errors that the control plane returns are [`crate::Code`]s; the faults here never reach it.

use crate::{ExitStatus, state::text_enum};

text_enum! {
    /// Why an installation failed. `docs/errors/` has a page for each.
    InstallFault {
        /// The installer does not run as root.
        NotRoot = "install_not_root",
        /// The machine was not booted with systemd.
        NoSystemd = "install_no_systemd",
        /// The kernel lacks a system call for safe path lookup.
        KernelTooOld = "install_kernel_too_old",
        /// There is no package for the machine's architecture.
        ArchitectureUnsupported = "install_architecture_unsupported",
        /// A program that is needed to download or verify packages is missing.
        ToolMissing = "install_tool_missing",
        /// Another installation is running on this machine.
        Busy = "install_busy",
        /// No enrollment string was given.
        StringMissing = "install_string_missing",
        /// The text is not an enrollment string.
        StringUnknown = "install_string_unknown",
        /// The enrollment string has an unsupported format version.
        StringVersion = "install_string_version",
        /// The enrollment string is damaged: a character was lost or changed.
        StringDamaged = "install_string_damaged",
        /// The machine is not enrolled.
        NotEnrolled = "install_not_enrolled",
        /// The machine is enrolled as another node, or by another control plane.
        AlreadyEnrolled = "install_already_enrolled",
        /// The control plane's name does not resolve.
        NameUnresolved = "install_name_unresolved",
        /// The control plane's address refuses connections or has no route.
        ConnectionRefused = "install_connection_refused",
        /// The control plane's address does not answer in time.
        TimedOut = "install_timed_out",
        /// The connection broke during a transfer.
        ConnectionBroken = "install_connection_broken",
        /// The TLS handshake failed.
        TlsFailed = "install_tls_failed",
        /// The server presents another authority than the enrollment string pins: another control plane, or an interception.
        AuthorityMismatch = "install_authority_mismatch",
        /// The server presents the pinned authority, but no certificate of it that is valid for the name.
        TlsUntrusted = "install_tls_untrusted",
        /// A proxy is set but cannot be reached.
        ProxyUnreachable = "install_proxy_unreachable",
        /// A proxy is set and refuses the connection.
        ProxyRefused = "install_proxy_refused",
        /// The control plane can be reached only through a proxy, which agents do not support.
        ProxyOnly = "install_proxy_only",
        /// A download failed for another reason.
        DownloadFailed = "install_download_failed",
        /// A package does not match the package list.
        PackageDamaged = "install_package_damaged",
        /// The machine's package manager rejected the package.
        PackageRefused = "install_package_refused",
        /// A directory that the installer must write to is read-only.
        FolderReadOnly = "install_folder_read_only",
        /// The directory for programs is mounted `noexec`.
        FolderNoexec = "install_folder_noexec",
        /// The agent's unit is masked.
        UnitMasked = "install_unit_masked",
        /// The agent's unit does not start.
        UnitFailed = "install_unit_failed",
        /// The node is enrolled but its channel is not connected.
        NotConnected = "install_not_connected",
        /// A workload still runs on this machine.
        WorkloadPresent = "install_workload_present",
    }
}

impl InstallFault {
    /// Returns the exit status that `install.sh` and the agent use for the fault.
    pub const fn exit(self) -> ExitStatus {
        match self {
            Self::NotRoot => ExitStatus::Unauthorized,
            Self::NotEnrolled => ExitStatus::NotFound,
            Self::NoSystemd
            | Self::KernelTooOld
            | Self::ArchitectureUnsupported
            | Self::ToolMissing
            | Self::StringMissing
            | Self::StringUnknown
            | Self::StringVersion
            | Self::StringDamaged
            | Self::AuthorityMismatch
            | Self::TlsUntrusted
            | Self::PackageDamaged
            | Self::FolderReadOnly
            | Self::FolderNoexec
            | Self::UnitMasked => ExitStatus::Refused,
            Self::Busy | Self::AlreadyEnrolled | Self::WorkloadPresent => ExitStatus::Conflict,
            Self::NameUnresolved
            | Self::ConnectionRefused
            | Self::ConnectionBroken
            | Self::TlsFailed
            | Self::ProxyUnreachable
            | Self::ProxyRefused
            | Self::ProxyOnly
            | Self::NotConnected => ExitStatus::Unreachable,
            Self::TimedOut => ExitStatus::TimedOut,
            Self::DownloadFailed | Self::PackageRefused | Self::UnitFailed => ExitStatus::Failed,
        }
    }
}

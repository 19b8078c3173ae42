//! Why a machine could not be brought in, as seen on the machine: by `install.sh` before there is an agent, and by the agent as it enrolls.
//!
//! What the control plane refuses is a [`crate::Code`]; here is what it never hears of.

use crate::{ExitStatus, state::text_enum};

text_enum! {
    /// Why a machine could not be brought in. Each has its page under `docs/errors/`.
    InstallFault {
        /// Whoever runs it is not root.
        NotRoot = "install_not_root",
        /// The machine was not booted with systemd.
        NoSystemd = "install_no_systemd",
        /// The machine's kernel cannot look paths up safely.
        KernelTooOld = "install_kernel_too_old",
        /// There is no package for the machine's architecture.
        ArchitectureUnsupported = "install_architecture_unsupported",
        /// A program is missing without which nothing can be fetched or checked.
        ToolMissing = "install_tool_missing",
        /// Another installation runs on this machine.
        Busy = "install_busy",
        /// No enrollment string was given.
        StringMissing = "install_string_missing",
        /// The text is no enrollment string.
        StringUnknown = "install_string_unknown",
        /// The enrollment string is of another format.
        StringVersion = "install_string_version",
        /// A character of the enrollment string was lost or changed.
        StringDamaged = "install_string_damaged",
        /// The machine is not enrolled.
        NotEnrolled = "install_not_enrolled",
        /// The machine is enrolled as another node, or by another control plane.
        AlreadyEnrolled = "install_already_enrolled",
        /// The control plane's name leads nowhere.
        NameUnresolved = "install_name_unresolved",
        /// Nobody listens at the control plane's address, or nothing leads there.
        ConnectionRefused = "install_connection_refused",
        /// The control plane's address does not answer in time.
        TimedOut = "install_timed_out",
        /// The connection broke in the middle.
        ConnectionBroken = "install_connection_broken",
        /// Whoever answers does not speak TLS as the control plane does.
        TlsFailed = "install_tls_failed",
        /// Whoever answers is another control plane than the enrollment string is of, or somebody in between.
        AuthorityForeign = "install_authority_foreign",
        /// Whoever answers cannot prove itself by the authority that the enrollment string pins.
        TlsUntrusted = "install_tls_untrusted",
        /// A proxy is set, and cannot be reached.
        ProxyUnreachable = "install_proxy_unreachable",
        /// A proxy is set, and refuses.
        ProxyRefused = "install_proxy_refused",
        /// The control plane is reached through a proxy alone, and agents use none.
        ProxyOnly = "install_proxy_only",
        /// A download failed in another way.
        DownloadFailed = "install_download_failed",
        /// A package is not the one that the list names.
        PackageDamaged = "install_package_damaged",
        /// The machine's package manager did not take the package.
        PackageRefused = "install_package_refused",
        /// A folder that must be written cannot be.
        FolderReadOnly = "install_folder_read_only",
        /// Nothing may be executed in the folder of programs.
        FolderNoexec = "install_folder_noexec",
        /// Somebody masked the agent's unit.
        UnitMasked = "install_unit_masked",
        /// The agent's unit does not start.
        UnitFailed = "install_unit_failed",
        /// The node is enrolled, and its channel does not stand.
        NotConnected = "install_not_connected",
        /// A workload of the platform still runs here.
        WorkloadPresent = "install_workload_present",
    }
}

impl InstallFault {
    /// The exit status of the script, and of the agent where it says it.
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
            | Self::AuthorityForeign
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

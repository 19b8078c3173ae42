//! Errors that end the agent or one of its tasks.

use camino::Utf8PathBuf;
use gpuaas_host::HostError;
use gpuaas_model::{Code, ExitStatus, InstallFault};
use gpuaas_trust::EnrollmentError;
use gpuaas_wire::session::AgentProblem;

/// An error that ends the agent or one of its tasks.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The node is not enrolled, and no enrollment string is available.
    #[error("this node is not enrolled: put an enrollment string into {0}")]
    NotEnrolled(String),
    /// The machine is already enrolled as another node or with another control plane.
    #[error("this machine is already enrolled as {0}")]
    AlreadyEnrolled(String),
    /// The enrollment string is invalid.
    #[error(transparent)]
    Enrollment(#[from] EnrollmentError),
    /// The control plane refused to enroll this node.
    #[error("the control plane refused: {detail} ({code}); {next}")]
    EnrollmentRefused {
        /// Stable code of the refusal.
        code: Code,
        /// Description of the refusal.
        detail: String,
        /// Action for the operator.
        next: String,
    },
    /// The control plane refused a request.
    #[error("the control plane refused: {0}")]
    Refused(String),
    /// The control plane cannot be reached, or its certificate does not match the enrollment string.
    #[error("the control plane cannot be reached: {0}")]
    Unreachable(String),
    /// The control plane's certificate is expired or not yet valid by the node's clock.
    #[error(
        "this node's clock is at least {seconds} s {way}, by the control plane's certificate ({})",
        Code::ClockSkewed
    )]
    Skewed {
        /// Smallest possible deviation of the clock, in seconds.
        seconds: u64,
        /// Direction of the deviation: ahead or behind.
        way: &'static str,
    },
    /// An operation of the host failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The identity or its key cannot be used: this machine cannot prove which node it is.
    #[error("{file} {what}")]
    Identity {
        /// Path of the file.
        file: Utf8PathBuf,
        /// Defect of the file, as the rest of a sentence.
        what: String,
    },
    /// The ledger cannot be used: this node takes no tasks.
    #[error("{}", .0.detail)]
    Ledger(AgentProblem),
    /// A file of the agent's own state is damaged.
    #[error("the agent's own state is damaged: {0}")]
    State(String),
}

impl AgentError {
    /// Formats the error for the command line: one sentence with its code, the next action, the page of the code and the exit status.
    pub fn user_message(&self) -> String {
        let (code, next) = (self.code_name(), self.next());
        let what = match self {
            Self::EnrollmentRefused { detail, .. } => detail.clone(),
            other => other.to_string(),
        };
        let code_suffix = if what.contains(code) { String::new() } else { format!(" ({code})") };
        let status = self.exit() as u8;
        format!(
            "error: {what}{code_suffix}\n  {next}\n  see https://CONTROL-PLANE/docs/errors/{code} · exit status {status}"
        )
    }

    /// Returns the exit status of an agent that ends with this error.
    pub fn exit(&self) -> ExitStatus {
        match self {
            Self::EnrollmentRefused { code, .. } => code.exit(),
            Self::Skewed { .. } => Code::ClockSkewed.exit(),
            Self::Unreachable(_) => Code::ServerUnreachable.exit(),
            // This status is reserved for damage: the systemd unit does not restart on it.
            Self::Identity { .. } | Self::Ledger(_) => ExitStatus::Damaged,
            _ => self.fault().map_or_else(|| self.code().exit(), InstallFault::exit),
        }
    }

    /// Returns true if the enrollment string can never be used on this machine.
    pub(crate) fn makes_string_unusable(&self) -> bool {
        use Code::{
            EnrollmentExpired, EnrollmentInvalid, EnrollmentTokenMismatch, EnrollmentUsed, MachineNotReimaged,
            ReimageUnverified,
        };
        match self {
            Self::AlreadyEnrolled(_) | Self::Enrollment(_) => true,
            Self::EnrollmentRefused { code, .. } => {
                matches!(
                    code,
                    EnrollmentUsed
                        | EnrollmentExpired
                        | EnrollmentTokenMismatch
                        | EnrollmentInvalid
                        | MachineNotReimaged
                        | ReimageUnverified
                )
            }
            Self::NotEnrolled(_)
            | Self::Refused(_)
            | Self::Unreachable(_)
            | Self::Skewed { .. }
            | Self::Host(_)
            | Self::Identity { .. }
            | Self::Ledger(_)
            | Self::State(_) => false,
        }
    }

    fn fault(&self) -> Option<InstallFault> {
        Some(match self {
            Self::Host(HostError::NotBooted(_)) => InstallFault::NoSystemd,
            Self::Host(HostError::KernelTooOld { .. }) => InstallFault::KernelTooOld,
            Self::NotEnrolled(_) => InstallFault::NotEnrolled,
            Self::AlreadyEnrolled(_) => InstallFault::AlreadyEnrolled,
            Self::Enrollment(EnrollmentError::NotEnrollmentString) => InstallFault::StringUnknown,
            Self::Enrollment(EnrollmentError::Version) => InstallFault::StringVersion,
            Self::Enrollment(EnrollmentError::Damaged) => InstallFault::StringDamaged,
            _ => return None,
        })
    }

    fn code_name(&self) -> &'static str {
        match self {
            Self::EnrollmentRefused { code, .. } => code.as_str(),
            Self::Skewed { .. } => Code::ClockSkewed.as_str(),
            Self::Unreachable(_) => Code::ServerUnreachable.as_str(),
            other => other.fault().map_or_else(|| other.code().as_str(), InstallFault::as_str),
        }
    }

    fn next(&self) -> String {
        let next = match self {
            Self::EnrollmentRefused { next, .. } => return next.clone(),
            Self::Host(HostError::NotBooted(_)) => "use a machine that was booted with systemd",
            Self::Host(HostError::KernelTooOld { .. }) => {
                "use Linux 5.6 or newer, or remove the restriction that blocks openat2 for the agent's unit"
            }
            Self::NotEnrolled(_) => "run the line that gpuaas node register NODE or gpuaas node enroll NODE prints",
            Self::AlreadyEnrolled(_) => "to enroll it as another node, remove the agent first: install.sh --uninstall",
            Self::Enrollment(_) => {
                "copy the complete line that gpuaas node register NODE printed, or print a new one: gpuaas node enroll NODE"
            }
            Self::Skewed { .. } => "set the node's clock, for example with NTP; the same string works until it expires",
            Self::Unreachable(_) => {
                "check that this machine can reach the control plane, then run the same command again"
            }
            Self::Host(error) if error.is_full() => "free disk space on this machine, then run the same command again",
            Self::Ledger(_) => {
                "keep a copy of the file, and enroll this machine again as the same node: on the control plane \
                 gpuaas node enroll NODE, then on this machine the line that it prints"
            }
            Self::Identity { .. } => {
                "keep a copy of the file, and enroll this machine again as the same node: on the control plane \
                 gpuaas node enroll NODE --force --reason TEXT, then on this machine the line that it prints"
            }
            Self::Refused(_) | Self::Host(_) | Self::State(_) => "see the agent's journal: journalctl -u gpuaas-agent",
        };
        next.to_owned()
    }

    /// Returns the stable code of a task that is refused because of this error.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Host(error) if error.is_full() => Code::DiskFull,
            Self::Identity { .. } => Code::AgentIdentityDamaged,
            Self::Ledger(_) => Code::AgentLedgerDamaged,
            Self::NotEnrolled(_)
            | Self::AlreadyEnrolled(_)
            | Self::EnrollmentRefused { .. }
            | Self::Enrollment(_)
            | Self::Refused(_)
            | Self::Unreachable(_)
            | Self::Skewed { .. }
            | Self::Host(_)
            | Self::State(_) => Code::HostFailed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_message_has_code_next_action_and_exit_status() {
        let used = AgentError::EnrollmentRefused {
            code: Code::EnrollmentUsed,
            detail: "this enrollment token was used before".to_owned(),
            next: "issue a new one: gpuaas node enroll".to_owned(),
        };
        assert_eq!(
            used.user_message(),
            "error: this enrollment token was used before (enrollment_used)\n  issue a new one: gpuaas node enroll\n  \
             see https://CONTROL-PLANE/docs/errors/enrollment_used · exit status 4"
        );
        let skewed = AgentError::Skewed { seconds: 3_600, way: "behind" };
        assert_eq!(skewed.user_message().matches("clock_skewed").count(), 2, "{}", skewed.user_message());
        for (error, code, status) in [
            (AgentError::from(EnrollmentError::Damaged), "install_string_damaged", 4),
            (AgentError::from(HostError::KernelTooOld { release: "4.18".to_owned() }), "install_kernel_too_old", 4),
            (AgentError::AlreadyEnrolled("gpu-07".to_owned()), "install_already_enrolled", 5),
            (AgentError::Unreachable("x".to_owned()), "server_unreachable", 7),
            (AgentError::State("x".to_owned()), "host_failed", 1),
            (
                AgentError::Identity { file: "/identity.json".into(), what: "is damaged".to_owned() },
                "agent_identity_damaged",
                9,
            ),
        ] {
            let message = error.user_message();
            assert!(message.contains(&format!("/docs/errors/{code} · exit status {status}")), "{message}");
        }
    }
}

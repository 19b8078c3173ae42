//! Faults: failures on a node or in a cluster, with evidence and a next action.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

use crate::{FixKind, Timestamp, state::text_enum};

text_enum! {
    /// Class of a fault; decides `recovery` and who must act.
    FaultClass {
        /// The platform can repeat the same step unchanged.
        Retryable = "retryable",
        /// A person must look into it, and possibly change something outside the platform, before the operation is resumed.
        Manual = "manual" | "repairable",
        /// Only decommissioning remains.
        Terminal = "terminal",
    }
}

/// A failure, shown under WHY, EVIDENCE and NEXT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Stable code with a page under `docs/errors/`.
    pub code: String,
    /// Who can recover from the fault, and how.
    pub class: FaultClass,
    /// One sentence: what failed, and where.
    pub summary: String,
    /// Supporting observation, if there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evidence: Option<Evidence>,
    /// Recommended action.
    pub next: NextAction,
}

/// An observation with its source and time; the text has at most [`Evidence::TEXT_BYTES_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Source of the observation, for example `journal rke2-agent`.
    pub source: String,
    /// Time of the observation, if the source gives one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<Timestamp>,
    /// The observed text.
    pub text: String,
}

/// Marks the place where text was truncated.
pub const CUT_MARK: &str = " …[cut]";

/// Recommended action for a person. Only its constructors build it, each with the command that does what the text says, so that text and
/// command cannot disagree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NextAction {
    /// One sentence.
    pub text: String,
    /// Command line that performs the action, if there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub command: Option<String>,
}

impl NextAction {
    /// An action without a command, or none at all.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), command: None }
    }

    /// Do `first`, then resume the workload's operation.
    pub fn then_resume(first: &str, workload: impl Display) -> Self {
        Self::with_command(format!("{first}, then resume"), format!("gpuaas workload resume {workload}"))
    }

    /// Resume the workload's operation, because of `reason`.
    pub fn resume(reason: &str, workload: impl Display) -> Self {
        Self::with_command(format!("resume: {reason}"), format!("gpuaas workload resume {workload}"))
    }

    /// Decommission the workload and deploy it again, because of `reason`.
    pub fn redeploy(reason: &str, workload: impl Display) -> Self {
        Self::with_command(
            format!("decommission the workload and deploy it again: {reason}"),
            format!("gpuaas workload decommission {workload}"),
        )
    }

    /// Resume what was cancelled, or remove what it left.
    pub fn resume_or_remove(workload: impl Display) -> Self {
        Self::with_command(
            format!("remove what it left: gpuaas workload decommission {workload}; or resume it"),
            format!("gpuaas workload resume {workload}"),
        )
    }

    /// Read the log of a member.
    pub fn read_log(workload: impl Display, member: &str) -> Self {
        Self::with_command(
            format!("see the log of {member}"),
            format!("gpuaas workload logs {workload} --member {member}"),
        )
    }

    /// Inspect a node for `purpose`.
    pub fn show_node(purpose: &str, node: impl Display) -> Self {
        Self::with_command(purpose, format!("gpuaas node show {node}"))
    }

    /// Apply a fix to a node, as `text` says.
    pub fn fix(text: impl Into<String>, node: impl Display, fix: FixKind) -> Self {
        Self::with_command(text, format!("gpuaas node fix {node} {fix}"))
    }

    fn with_command(text: impl Into<String>, command: String) -> Self {
        Self { text: text.into(), command: Some(command) }
    }
}

impl Evidence {
    /// Maximum length of the text in bytes.
    pub const TEXT_BYTES_MAX: usize = 1_024;

    /// Creates evidence. Longer text is cut at a character boundary and ends with [`CUT_MARK`].
    pub fn new(source: impl Into<String>, at: Option<Timestamp>, text: &str) -> Self {
        let text = match text.len() <= Self::TEXT_BYTES_MAX {
            true => text.to_owned(),
            false => {
                let end = text.floor_char_boundary(Self::TEXT_BYTES_MAX - CUT_MARK.len());
                format!("{}{CUT_MARK}", &text[..end])
            }
        };
        Self { source: source.into(), at, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_is_cut_at_a_character() {
        let whole = "ü".repeat(Evidence::TEXT_BYTES_MAX / 2);
        assert_eq!(Evidence::new("journal", None, &whole).text, whole);
        for before in ["", "x"] {
            let cut = Evidence::new("journal", None, &format!("{before}{whole}ü")).text;
            assert!(cut.len() > Evidence::TEXT_BYTES_MAX - 2 && cut.len() <= Evidence::TEXT_BYTES_MAX, "{}", cut.len());
            assert!(cut.ends_with(CUT_MARK));
        }
    }
}

//! Faults: failures on a node or in a cluster, with evidence and a next action.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

use crate::{Timestamp, cut, state::text_enum};

text_enum! {
    /// Class of a fault; decides `recovery` and who must act.
    FaultClass {
        /// The platform can repeat the same step unchanged.
        Retryable = "retryable",
        /// A repair removes the cause: it restarts or reinstalls services, so a person decides when.
        Repairable = "repairable",
        /// A person must look into it, and possibly change something outside the platform, before the operation is resumed.
        Manual = "manual",
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

impl Fault {
    /// Returns this fault for the repair that failed with it. The repair that it advises has just been done, so the page of its code comes next.
    #[must_use]
    pub fn after_repair(self) -> Self {
        let Some(repair) = &self.next.command else { return self };
        let text = format!("a repair did not remove the cause; repeat it: {repair}; or see what else helps");
        let next = NextAction::with_command(text, format!("gpuaas explain {}", self.code));
        Self { next, ..self }
    }
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

    /// Ask the operator to do `what` on a node, then resume the workload's operation: a tenant has no shell there.
    pub fn ask_operator(what: &str, node: impl Display, workload: impl Display) -> Self {
        Self::then_resume(&format!("ask the operator to {what} on {node}"), workload)
    }

    /// Resume the workload's operation, because of `reason`.
    pub fn resume(reason: &str, workload: impl Display) -> Self {
        Self::with_command(format!("resume: {reason}"), format!("gpuaas workload resume {workload}"))
    }

    /// Whether the command resumes the workload's newest operation.
    pub fn resumes(&self, workload: impl Display) -> bool {
        self.command.as_deref() == Some(format!("gpuaas workload resume {workload}").as_str())
    }

    /// Repair one member of the workload, because of `reason`.
    pub fn repair_member(reason: &str, workload: impl Display, member: &str) -> Self {
        Self::with_command(
            format!("repair {member}: {reason}"),
            format!("gpuaas workload repair {workload} --scope member --member {member}"),
        )
    }

    /// Repair a member that no operation brings up any more, or remove it.
    pub fn repair_or_remove_member(workload: impl Display, member: &str) -> Self {
        Self::with_command(
            format!("remove it: gpuaas workload remove-member {workload} {member}; or repair it"),
            format!("gpuaas workload repair {workload} --scope member --member {member}"),
        )
    }

    /// Repair the control plane of the workload's cluster, because of `reason`.
    pub fn repair_control_plane(reason: &str, workload: impl Display) -> Self {
        Self::with_command(
            format!("repair the control plane: {reason}"),
            format!("gpuaas workload repair {workload} --scope control-plane"),
        )
    }

    /// Whether the command starts a repair that one with these parameters includes. One of the whole runtime includes every other.
    pub fn is_within_repair(&self, workload: impl Display, scope: Option<&str>, member: Option<&str>) -> bool {
        let is_same = |repair: Self| repair.command == self.command;
        match (scope, member) {
            (Some("member"), Some(member)) => is_same(Self::repair_member("", workload, member)),
            (Some("control_plane"), _) => is_same(Self::repair_control_plane("", workload)),
            _ => self.command.as_deref().and_then(|command| command.split(' ').nth(2)) == Some("repair"),
        }
    }

    /// Reconcile the workload, because of `reason`: restarts nothing.
    pub fn reconcile(reason: &str, workload: impl Display) -> Self {
        Self::with_command(format!("reconcile: {reason}"), format!("gpuaas workload reconcile {workload}"))
    }

    /// Decommission the workload and deploy it again, because of `reason`.
    pub fn redeploy(reason: &str, workload: impl Display) -> Self {
        Self::with_command(
            format!("decommission the workload and deploy it again: {reason}"),
            format!("gpuaas workload decommission {workload}"),
        )
    }

    /// Resume what was cancelled, or decommission the workload.
    pub fn resume_or_remove(workload: impl Display) -> Self {
        Self::with_command(
            format!("decommission it: gpuaas workload decommission {workload}; or resume it"),
            format!("gpuaas workload resume {workload}"),
        )
    }

    /// Bring a node back and resume, or give up its member.
    pub fn resume_or_give_up_member(workload: impl Display, node: impl Display, member: &str) -> Self {
        Self::with_command(
            format!("bring {node} back and resume: gpuaas workload resume {workload}; or give up {member}"),
            format!("gpuaas workload remove-member {workload} {member} --give-up --reason TEXT"),
        )
    }

    /// Bring a node back and resume, or give it up with the whole workload.
    pub fn resume_or_give_up(workload: impl Display, node: impl Display) -> Self {
        Self::with_command(
            format!("bring {node} back and resume: gpuaas workload resume {workload}; or give it up"),
            format!("gpuaas workload decommission {workload} --give-up {node} --reason TEXT"),
        )
    }

    /// Let a member accept work again, or resume what moves its work.
    pub fn uncordon_or_resume(workload: impl Display, member: &str) -> Self {
        Self::with_command(
            format!("let it accept work again: gpuaas workload uncordon-member {workload} {member}; or resume"),
            format!("gpuaas workload resume {workload}"),
        )
    }

    /// Let a member accept work again, because of `reason`.
    pub fn uncordon_member(reason: &str, workload: impl Display, member: &str) -> Self {
        let command = format!("gpuaas workload uncordon-member {workload} {member}");
        Self::with_command(format!("let {member} accept work again: {reason}"), command)
    }

    /// Start a stopped workload.
    pub fn start(workload: impl Display) -> Self {
        Self::with_command("start it", format!("gpuaas workload start {workload}"))
    }

    /// Wait for an operation that is under way.
    pub fn watch(operation: impl Display) -> Self {
        Self::with_command("wait; an operation is under way", format!("gpuaas operation watch {operation}"))
    }

    /// Decommission the workload, because of `reason`.
    pub fn decommission(reason: &str, workload: impl Display) -> Self {
        Self::with_command(format!("decommission it: {reason}"), format!("gpuaas workload decommission {workload}"))
    }

    /// Take a kubeconfig of the workload's cluster to do `what` there.
    pub fn use_kubectl(what: &str, workload: impl Display) -> Self {
        Self::with_command(format!("{what} with kubectl"), format!("gpuaas workload kubeconfig {workload} --merge"))
    }

    /// Compare again, because of `reason`.
    pub fn compare_again(reason: &str, workload: impl Display) -> Self {
        Self::with_command(format!("compare again: {reason}"), format!("gpuaas workload diff {workload}"))
    }

    /// Read the log of a member.
    pub fn read_log(workload: impl Display, member: &str) -> Self {
        Self::with_command(
            format!("see the log of {member}"),
            format!("gpuaas workload logs {workload} --member {member}"),
        )
    }

    /// Look at a workload for `purpose`.
    pub fn show_workload(purpose: &str, workload: impl Display) -> Self {
        Self::with_command(purpose, format!("gpuaas workload show {workload}"))
    }

    /// Inspect a node for `purpose`.
    pub fn show_node(purpose: &str, node: impl Display) -> Self {
        Self::with_command(purpose, format!("gpuaas node show {node}"))
    }

    pub(crate) fn with_command(text: impl Into<String>, command: String) -> Self {
        Self { text: text.into(), command: Some(command) }
    }
}

impl Evidence {
    /// Maximum length of the text in bytes.
    pub const TEXT_BYTES_MAX: usize = 1_024;

    /// Creates evidence. Longer text is cut ([`crate::cut()`]).
    pub fn new(source: impl Into<String>, at: Option<Timestamp>, text: &str) -> Self {
        let text = cut(text, Self::TEXT_BYTES_MAX).into_owned();
        Self { source: source.into(), at, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repair_includes_what_has_its_scope_and_no_other_command() {
        let member = |name| NextAction::repair_member("it starts again", "train", name);
        let control_plane = || NextAction::repair_control_plane("it starts again", "train");
        let of_member = |next: NextAction| next.is_within_repair("train", Some("member"), Some("agent-1"));
        let of_control_plane = |next: NextAction| next.is_within_repair("train", Some("control_plane"), None);
        let of_all = |next: NextAction| next.is_within_repair("train", Some("whole_runtime"), None);
        assert!(of_member(member("agent-1")) && !of_member(member("agent-10")) && !of_member(control_plane()));
        assert!(of_control_plane(control_plane()) && !of_control_plane(member("agent-1")));
        assert!(of_all(member("agent-1")) && of_all(control_plane()));
        for other in [NextAction::resume("it is repeated", "train"), NextAction::text("look")] {
            assert!(!of_all(other.clone()) && !of_member(other.clone()) && !of_control_plane(other));
        }
    }
}

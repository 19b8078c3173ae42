//! What a thing that has not settled waits for.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

use crate::{Evidence, NextAction, Timestamp, cut, state::text_enum};

text_enum! {
    /// Who has to act before a wait ends.
    WaitingFrom {
        /// The control plane.
        Platform = "platform",
        /// A node and its agent.
        Node = "node",
        /// The workload's cluster.
        Cluster = "cluster",
        /// People and programs of the project.
        Tenant = "tenant",
        /// The people who run the platform and its machines.
        Operator = "operator",
        /// The workload's controller.
        Controller = "controller",
    }
}

/// The explanation of a wait. It always names what is awaited, from whom, since when, and the next action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// What is awaited: the end of a sentence that begins with "waiting for".
    pub what: String,
    /// Who has to act.
    pub from: WaitingFrom,
    /// When the wait began.
    pub since: Timestamp,
    /// When it ends by itself: the next attempt, or a deadline.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<Timestamp>,
    /// What was last seen of it; at most [`Evidence::TEXT_BYTES_MAX`] bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evidence: Option<String>,
    /// Recommended action.
    pub next: NextAction,
}

impl Waiting {
    /// Creates an explanation without evidence and without an end.
    pub fn new(what: impl Into<String>, from: WaitingFrom, since: Timestamp, next: NextAction) -> Self {
        Self { what: what.into(), from, since, until: None, evidence: None, next }
    }

    /// Sets the evidence. An empty text is none; a longer one is cut ([`crate::cut()`]).
    #[must_use]
    pub fn with_evidence(self, evidence: Option<&str>) -> Self {
        let evidence = evidence.map(str::trim).filter(|text| !text.is_empty());
        Self { evidence: evidence.map(|text| cut(text, Evidence::TEXT_BYTES_MAX).into_owned()), ..self }
    }

    /// Sets the time at which the wait ends by itself.
    #[must_use]
    pub fn until(self, until: Option<Timestamp>) -> Self {
        Self { until, ..self }
    }

    /// Returns what is missing in the explanation: what is awaited, the next action or the time since when; `None` if it is complete.
    pub fn missing(&self) -> Option<&'static str> {
        let is_empty = |text: &str| text.trim().is_empty();
        if is_empty(&self.what) {
            Some("what is awaited")
        } else if is_empty(&self.next.text) || self.next.command.as_deref().is_some_and(is_empty) {
            Some("the next action")
        } else if self.since.as_millis() <= 0 {
            Some("since when")
        } else {
            None
        }
    }
}

/// Actions that waits advise.
impl NextAction {
    /// Enroll the machine of a node.
    pub fn enroll_node(node: impl Display) -> Self {
        Self::with_command("enroll its machine", format!("gpuaas node enroll {node}"))
    }

    /// Run the issued enrollment command on the machine of a node, or issue a new one.
    pub fn run_enrollment(node: impl Display) -> Self {
        Self::with_command(
            "run the enrollment command on its machine as root; it is shown once, so if it is lost, issue a new one",
            format!("gpuaas node enroll {node}"),
        )
    }

    /// Reset a node after its machine was reimaged.
    pub fn reset_node(node: impl Display) -> Self {
        Self::with_command("reimage its machine, then reset the node", format!("gpuaas node reset {node}"))
    }

    /// Check the agent on the machine of a node.
    pub fn check_agent(node: impl Display) -> Self {
        Self::with_command(
            "check the agent on its machine, as an operator: systemctl status gpuaas-agent",
            format!("gpuaas node show {node}"),
        )
    }

    /// Release an allocation again after what blocks it was removed from its node.
    pub fn release_again(allocation: impl Display) -> Self {
        Self::with_command(
            "remove what is left on the node, then release it again",
            format!("gpuaas allocation release {allocation}"),
        )
    }

    /// Wait for an allocation to settle.
    pub fn show_allocation(allocation: impl Display) -> Self {
        Self::with_command("wait; the platform continues by itself", format!("gpuaas allocation show {allocation}"))
    }

    /// Wait for a task to end.
    pub fn show_task(task: impl Display) -> Self {
        Self::with_command("wait; the task ends at its deadline at the latest", format!("gpuaas task show {task}"))
    }

    /// Let a drained member accept work again, or remove it.
    pub fn uncordon_or_remove(workload: impl Display, member: &str) -> Self {
        Self::with_command(
            format!("remove it: gpuaas workload remove-member {workload} {member}; or use it again"),
            format!("gpuaas workload uncordon-member {workload} {member}"),
        )
    }

    /// Watch an operation until its running steps end after a requested cancellation.
    pub fn await_cancellation(operation: impl Display) -> Self {
        Self::with_command(
            "wait; running steps end before the operation does",
            format!("gpuaas operation watch {operation}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explanation_without_what_next_or_since_has_a_gap() {
        let at = Timestamp::from_millis(1_000);
        let whole = Waiting::new("gpu-1 to connect", WaitingFrom::Node, at, NextAction::check_agent("gpu-1"));
        assert_eq!(whole.missing(), None);
        assert_eq!(Waiting { what: " ".into(), ..whole.clone() }.missing(), Some("what is awaited"));
        assert_eq!(Waiting { next: NextAction::text(""), ..whole.clone() }.missing(), Some("the next action"));
        assert_eq!(Waiting { since: Timestamp::from_millis(0), ..whole }.missing(), Some("since when"));
    }

    #[test]
    fn empty_evidence_is_none_and_long_evidence_is_cut() {
        let of = |evidence: &str| {
            let at = Timestamp::from_millis(1_000);
            Waiting::new("a start", WaitingFrom::Tenant, at, NextAction::start("train"))
                .with_evidence(Some(evidence))
                .evidence
        };
        assert_eq!(of("  "), None);
        assert_eq!(of("kubelet not ready\n").as_deref(), Some("kubelet not ready"));
        assert_eq!(of(&"x".repeat(5_000)).map(|text| text.len()), Some(Evidence::TEXT_BYTES_MAX));
    }
}

//! Journals of members, and the merged logs of workloads.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A line of a journal. The server streams one JSON document per line.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// Time of the entry, by the node's clock.
    #[schema(format = DateTime)]
    pub at: String,
    /// Text of the line.
    pub text: String,
}

/// A line of a workload's logs. The server streams one JSON document per line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkloadLogLine {
    /// Time of the line: by the node's clock in a journal, otherwise by the control plane's.
    #[schema(format = DateTime)]
    pub at: String,
    /// `journal`, `task`, `event`, or `problem` for a journal or events that cannot be read.
    pub source: String,
    /// Name of the member that the line is about.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub member: Option<String>,
    /// systemd unit that wrote the line.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unit: Option<String>,
    /// Object of an event or a task, for example `step server-1/start`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub subject: Option<String>,
    /// Text of the line, without control characters.
    pub text: String,
    /// Error code of a problem or of a failure.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<String>,
    /// Next action for a problem.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
    /// Position in the journal after this line, for the parameter `resume`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub position: Option<String>,
    /// Number of the event, for the parameter `after_event`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sequence: Option<u64>,
}

impl WorkloadLogLine {
    /// Returns where the line comes from, as people read it: `agent-1 rke2-agent`, `step server-1/start`, `problem agent-2`.
    pub fn origin(&self) -> String {
        let unit = self.unit.as_deref().map(|unit| unit.strip_suffix(".service").unwrap_or(unit));
        let first = if unit.is_some() { None } else { Some(self.source.as_str()).filter(|_| self.subject.is_none()) };
        let member = self.member.as_deref().filter(|_| self.subject.is_none());
        [first, member, unit, self.subject.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_names_member_and_unit_or_the_object_or_the_problem() {
        let line = |source: &str, member: Option<&str>, unit: Option<&str>, subject: Option<&str>| {
            let owned = |text: Option<&str>| text.map(str::to_owned);
            let (member, unit, subject) = (owned(member), owned(unit), owned(subject));
            WorkloadLogLine { source: source.to_owned(), member, unit, subject, ..WorkloadLogLine::default() }.origin()
        };
        assert_eq!(line("journal", Some("agent-1"), Some("rke2-agent.service"), None), "agent-1 rke2-agent");
        assert_eq!(line("task", Some("agent-1"), None, Some("task host.noop")), "task host.noop");
        assert_eq!(line("problem", Some("agent-2"), None, None), "problem agent-2");
        assert_eq!(line("problem", None, None, None), "problem");
    }
}

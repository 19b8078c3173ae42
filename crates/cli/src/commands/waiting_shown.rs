//! Formats what things wait for.

use gpuaas_api_types::Waiting;

use crate::{
    duration::{format_age, format_distance},
    output::with_project,
};

/// Formats a wait for the column WAITING FOR: what is awaited, for how long, and what was last seen. Empty for what waits for nothing.
pub(super) fn cell(waiting: Option<&Waiting>) -> String {
    waiting.map_or_else(String::new, |waiting| {
        let seen = waiting.evidence.as_ref().map(|seen| format!(": {seen}")).unwrap_or_default();
        format!("{}{seen} ({})", waiting.what, times(waiting))
    })
}

/// Formats a wait as a sentence, for a column of reasons.
pub(super) fn sentence(waiting: Option<&Waiting>) -> Option<String> {
    waiting.map(|waiting| format!("waiting for {}", cell(Some(waiting))))
}

/// Formats a wait in the description of one object: WAITING, EVIDENCE and NEXT, each with a line end before it. `shown` is a text that the
/// description has anyway and that is not repeated as evidence. Commands about workloads get `project_flag`.
pub(super) fn lines(waiting: Option<&Waiting>, shown: Option<&str>, project_flag: &str) -> String {
    let Some(waiting) = waiting else { return String::new() };
    let mut words = line(waiting);
    if let Some(seen) = waiting.evidence.as_deref().filter(|seen| shown != Some(*seen)) {
        words.push_str(&format!("\nEVIDENCE {seen}"));
    }
    let command = waiting.command.as_ref().map(|command| format!(": {command}")).unwrap_or_default();
    words.push_str(&format!("\nNEXT     {}", with_project(&format!("{}{command}", waiting.next), project_flag)));
    words
}

/// Formats the line WAITING, with a line end before it.
pub(super) fn line(waiting: &Waiting) -> String {
    format!("\nWAITING  for {} ({}); the {} has to act", waiting.what, times(waiting), waiting.from)
}

fn times(waiting: &Waiting) -> String {
    let until = waiting.until.as_deref().and_then(format_distance).filter(|distance| distance.starts_with("in "));
    let until = until.map(|distance| format!("; ends {distance}")).unwrap_or_default();
    format!("for {}{until}", format_age(&waiting.since))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> Waiting {
        let at = |seconds: i64| (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds)).to_string();
        Waiting {
            what: "agent-2 to start".to_owned(),
            from: "node".to_owned(),
            since: at(-180),
            until: Some(at(600)),
            evidence: Some("etcd is not ready".to_owned()),
            next: "wait; an operation is under way".to_owned(),
            command: Some("gpuaas workload show train".to_owned()),
        }
    }

    #[test]
    fn wait_is_a_sentence_with_evidence_and_times() {
        let since = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(180);
        let of = Waiting { since: since.to_string(), until: None, ..waiting() };
        assert_eq!(sentence(Some(&of)).as_deref(), Some("waiting for agent-2 to start: etcd is not ready (for 3 min)"));
        assert_eq!((cell(None), sentence(None)), (String::new(), None));
        let times = cell(Some(&waiting()));
        assert!(times.contains("(for 3 min; ends in "), "{times}");
        let past = Waiting { until: Some(since.to_string()), ..waiting() };
        assert!(!cell(Some(&past)).contains("ends"), "an end that has passed is not shown");
    }

    #[test]
    fn description_has_evidence_once_and_the_next_action_with_its_project() {
        let of = Waiting { until: None, ..waiting() };
        assert_eq!(
            lines(Some(&of), None, " --project ml"),
            "\nWAITING  for agent-2 to start (for 3 min); the node has to act\nEVIDENCE etcd is not ready\n\
             NEXT     wait; an operation is under way: gpuaas workload show train --project ml"
        );
        assert!(!lines(Some(&of), Some("etcd is not ready"), "").contains("EVIDENCE"));
        assert_eq!(lines(None, None, ""), "");
    }
}

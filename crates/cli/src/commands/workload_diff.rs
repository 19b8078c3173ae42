//! Implements `gpuaas workload diff`.

use std::process::ExitCode;

use gpuaas_api_types::{Difference, NotKnown, WorkloadDiff};
use gpuaas_client::Client;
use gpuaas_model::ExitStatus;

use crate::{
    output::{self, with_project},
    table::table,
    target::Target,
    text::Text,
};

/// Compares a workload with what is observed, and prints how it deviates.
pub(super) async fn run(client: &Client, target: &Target, workload: &str) -> anyhow::Result<ExitCode> {
    let diff = client.diff_workload(target.project.clone(), workload).await?;
    output::one(target.output, &diff, |diff| described(diff, &target.project_flag()), &diff.workload_name)?;
    Ok(output::exit(status(&diff)))
}

/// Returns the exit status: as those of `diff` for differences, and never success if something could not be asked.
fn status(diff: &WorkloadDiff) -> ExitStatus {
    match (diff.differences.is_empty(), diff.unknown.is_empty()) {
        (false, _) => ExitStatus::Failed,
        (true, false) => ExitStatus::Unreachable,
        (true, true) => ExitStatus::Done,
    }
}

fn described(diff: &WorkloadDiff, project_flag: &str) -> Text {
    let name = &diff.workload_name;
    let summary = match (diff.differences.len(), diff.unknown.is_empty()) {
        (0, true) => format!("{name} is {} and does not deviate.", diff.lifecycle),
        (0, false) => format!("{name} is {}; not everything is known.", diff.lifecycle),
        (1, _) => format!("{name} is {} and deviates in 1 point.", diff.lifecycle),
        (several, _) => format!("{name} is {} and deviates in {several} points.", diff.lifecycle),
    };
    let mut text = Text::from(summary);
    if let Some(operation) = &diff.operation {
        text.push_str(&format!("\nAn operation is under way: gpuaas operation watch {operation}"));
    }
    if !diff.differences.is_empty() {
        text.push_str("\n");
        let header = ["MEMBER", "FIELD", "DESIRED", "OBSERVED", "SINCE", "NEXT"];
        text.push(&table(&header, diff.differences.iter().map(|difference| row(difference, project_flag))));
    }
    for unknown in &diff.unknown {
        text.push_str(&format!("\nNOT KNOWN {}", sentence(unknown)));
        let next = next(&unknown.next, unknown.command.as_deref());
        text.push_str(&format!("\n  NEXT {}", with_project(&next, project_flag)));
    }
    for what in &diff.not_compared {
        text.push_str(&format!("\nNOT COMPARED {}", with_project(what, project_flag)));
    }
    text
}

fn row(difference: &Difference, project_flag: &str) -> Vec<String> {
    let next = difference.command.as_ref().unwrap_or(&difference.next);
    vec![
        difference.member.clone().unwrap_or_default(),
        difference.field.clone(),
        difference.desired.clone(),
        difference.observed.clone(),
        difference.since.clone().unwrap_or_default(),
        with_project(next, project_flag).into_owned(),
    ]
}

fn sentence(unknown: &NotKnown) -> String {
    let member = unknown.member.as_ref().map(|member| format!("{member}: ")).unwrap_or_default();
    format!("{member}{}: {}", unknown.what, unknown.why)
}

fn next(text: &str, command: Option<&str>) -> String {
    command.map_or_else(|| text.to_owned(), |command| format!("{text}: {command}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn diff(differences: Value, unknown: Value) -> WorkloadDiff {
        serde_json::from_value(json!({
            "workload": "0198c0de-7a3b-7c11-9b54-0242ac12000a", "workload_name": "train", "lifecycle": "running",
            "compared_at": "2026-07-01T12:00:00.000Z", "differences": differences, "unknown": unknown,
            "not_compared": ["files; to write them again: gpuaas workload reconcile train"],
        }))
        .expect("a comparison")
    }

    fn label() -> Value {
        json!([{
            "member": "agent-1", "field": "labels.rack", "desired": "b12", "observed": "absent\u{1b}[2J",
            "next": "reconcile: it sets the labels again", "command": "gpuaas workload reconcile train",
        }])
    }

    fn silence() -> Value {
        json!([{
            "what": "what only its cluster shows", "why": "it did not answer within 10 s (cluster_unreachable)",
            "next": "compare again: when its cluster answers", "command": "gpuaas workload diff train",
        }])
    }

    #[test]
    fn exit_status_tells_agreement_differences_and_silence_apart() {
        assert_eq!(status(&diff(json!([]), json!([]))), ExitStatus::Done);
        assert_eq!(status(&diff(label(), json!([]))), ExitStatus::Failed);
        assert_eq!(status(&diff(label(), silence())), ExitStatus::Failed);
        assert_eq!(status(&diff(json!([]), silence())), ExitStatus::Unreachable);
    }

    #[test]
    fn differences_are_listed_with_their_commands_and_silence_is_no_agreement() {
        let text = described(&diff(label(), silence()), " --project ml");
        let text = text.as_str();
        assert!(text.starts_with("train is running and deviates in 1 point.\n"), "{text}");
        for part in [
            "labels.rack",
            "gpuaas workload reconcile train --project ml",
            "NOT KNOWN what only its cluster shows: it did not answer within 10 s",
            "NOT COMPARED files; to write them again: gpuaas workload reconcile train --project ml",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains('\u{1b}'), "what a cluster says is escaped: {text}");
        let silent = described(&diff(json!([]), silence()), "");
        assert!(!silent.as_str().contains("does not deviate"), "{}", silent.as_str());
    }
}

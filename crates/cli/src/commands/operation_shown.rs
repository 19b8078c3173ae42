//! Shows operations.

use gpuaas_api_types::{OperationDetail, Step};
use gpuaas_model::WaitingFrom;

use super::{
    waiting_shown,
    workload_shown::{describe_fault, residue, shown_state, titled},
};
use crate::{
    duration::{format_millis, millis_between},
    output,
    table::table,
    target::{Format, Target},
    text::Text,
};

/// Prints an operation that was followed to its end; `name` is what `-o name` prints. Its steps were shown as they ended.
pub(super) fn show_end(target: &Target, detail: &OperationDetail, name: &str) -> anyhow::Result<()> {
    let has_steps = target.output == Format::Wide;
    output::one(target.output, detail, |detail| described(detail, &target.project_flag(), has_steps), name)
}

/// Returns an operation with its fault and residue; with its steps if `has_steps`.
pub(super) fn described(detail: &OperationDetail, project_flag: &str, has_steps: bool) -> Text {
    let operation = &detail.operation;
    let mut text = format!(
        "{}   {} · workload {} · {} · by {} · {}",
        operation.id,
        titled(operation),
        operation.workload_name,
        shown_state(operation).replace('_', " "),
        operation.requested_by,
        operation.created_at,
    );
    if let Some(resumed) = &operation.resumes {
        text.push_str(&format!(" · repeats {resumed}"));
    }
    if let Some(later) = &operation.superseded_by {
        text.push_str(&format!(" · superseded by {later}"));
    }
    if let Some((whole, platform)) = shares(detail) {
        text.push_str(&format!(" · took {}, of which the platform {}", format_millis(whole), format_millis(platform)));
    }
    if let Some(reason) = &operation.reason {
        text.push_str(&format!("\nREASON   {reason}"));
    }
    text.extend(operation.fault.iter().map(|fault| describe_fault(fault, None, project_flag)));
    let waiting = operation.waiting.as_ref().filter(|_| operation.fault.is_none() || operation.ended_at.is_none());
    text.push_str(&waiting_shown::lines(waiting, None, project_flag));
    let rows = detail.steps.iter().map(|step| {
        let fault = step.fault.as_ref().map(|fault| fault.summary.clone());
        let took = step.started_at.as_deref().zip(step.ended_at.as_deref());
        let took = took.and_then(|(start, end)| millis_between(start, end)).map(format_millis);
        vec![
            step.state.clone(),
            step.phase.clone(),
            step.key.clone(),
            step.attempts.to_string(),
            took.unwrap_or_default(),
            // The detail of a succeeded step is the condition it last waited for.
            fault
                .or_else(|| step.detail.clone().filter(|_| step.state != "succeeded"))
                .or_else(|| step.waiting.as_ref().map(|waiting| format!("waiting for {}", waiting.what)))
                .unwrap_or_default(),
        ]
    });
    let mut text = Text::from(text);
    if has_steps {
        text.push_str("\n");
        text.push(&table(&["STATE", "PHASE", "STEP", "ATTEMPTS", "DURATION", "DETAIL"], rows));
    }
    text.push_str(&residue(&detail.residue));
    text
}

/// Returns the milliseconds that an operation took, and those of them in which no step waited for a node or the cluster. `None` before its end,
/// and if the control plane is of an earlier version, which does not say who had to act.
fn shares(detail: &OperationDetail) -> Option<(i64, i64)> {
    if detail.steps.iter().any(|step| step.awaits.is_empty()) {
        return None;
    }
    let since_begin = |at: &str| millis_between(&detail.operation.created_at, at);
    let whole = since_begin(detail.operation.ended_at.as_deref()?)?;
    let span = |step: &Step| {
        let end = step.ended_at.as_deref().map_or(Some(whole), since_begin)?;
        Some((since_begin(step.started_at.as_deref()?)?, end.min(whole)))
    };
    let others = detail.steps.iter().filter(|step| step.awaits != WaitingFrom::Platform.as_str());
    let mut spans: Vec<(i64, i64)> = others.filter_map(span).collect();
    spans.sort_unstable();
    let (mut outside, mut until) = (0, 0);
    for (start, end) in spans {
        outside += (end - start.max(until)).max(0);
        until = until.max(end);
    }
    Some((whole, whole - outside))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn step(key: &str, awaits: &str, started_at: &str, ended_at: &str) -> Value {
        let at = |time: &str| format!("2026-07-01T10:00:{time}Z");
        json!({
            "key": key, "phase": "p", "state": "succeeded", "attempts": 1, "awaits": awaits, "started_at": at(started_at),
            "ended_at": at(ended_at),
        })
    }

    #[test]
    fn platform_takes_the_time_in_which_no_step_waits_for_a_node_or_the_cluster() {
        let shown = |ended_at: Option<&str>| {
            let operation = json!({
                "operation": {
                    "id": "1", "workload": "2", "kind": "deploy", "state": "succeeded", "requested_by": "ada",
                    "created_at": "2026-07-01T10:00:00.000Z", "ended_at": ended_at,
                },
                "steps": [
                    step("placement", "platform", "00.000", "00.100"),
                    step("agent-1/install", "node", "00.200", "00.500"),
                    step("agent-2/start", "node", "00.400", "02.000"),
                    step("agent-2/wait-ready", "cluster", "02.100", "02.200"),
                    step("ready", "platform", "02.200", "02.300"),
                ],
            });
            let operation: OperationDetail = serde_json::from_value(operation).expect("an operation");
            described(&operation, "", false).as_str().to_owned()
        };
        let ended = shown(Some("2026-07-01T10:00:02.400Z"));
        assert!(ended.ends_with(" · took 2.4 s, of which the platform 500 ms"), "{ended}");
        assert!(!shown(None).contains("took"));
        let mut of_earlier = step("placement", "", "00.000", "00.100");
        of_earlier.as_object_mut().expect("an object").remove("awaits");
        let earlier: OperationDetail = serde_json::from_value(json!({
            "operation": {
                "id": "1", "workload": "2", "kind": "deploy", "state": "succeeded", "requested_by": "ada",
                "created_at": "2026-07-01T10:00:00.000Z", "ended_at": "2026-07-01T10:00:02.400Z",
            },
            "steps": [of_earlier],
        }))
        .expect("an operation of an earlier version");
        assert_eq!(shares(&earlier), None);
    }
}

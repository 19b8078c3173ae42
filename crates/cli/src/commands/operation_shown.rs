//! Shows operations.

use gpuaas_api_types::OperationDetail;

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

//! `gpuaas operation`, and the waiting that other verbs do with `--wait`.

use std::process::ExitCode;

use anyhow::Context;
use futures::StreamExt;
use gpuaas_api_types::{Operation, OperationDetail, Step, WorkloadDetail};
use gpuaas_client::Client;
use gpuaas_model::ExitStatus;

use crate::{
    cli::{Operation as Verb, Target},
    output,
};

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::List => {
            let operations = client.list_operations().await?.items;
            let row = |operation: &Operation| {
                vec![
                    operation.id.clone(),
                    operation.kind.clone(),
                    operation.state.clone(),
                    operation.requested_by.clone(),
                    operation.created_at.clone(),
                ]
            };
            output::list(target.output, &operations, &["ID", "KIND", "STATE", "BY", "CREATED"], row, |item| {
                item.id.clone()
            })?;
        }
        Verb::Show { id } => show(target, &client.get_operation(&id).await?)?,
        Verb::Watch { id } => return watch(client, target, &id).await,
        Verb::Cancel { id } => {
            let operation = client.cancel_operation(&id).await?;
            output::one(
                target.output,
                &operation,
                |operation| format!("Operation {} is asked to end.", operation.id),
                &id,
            )?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Follows an operation to its end, pushed by events; says each step's end to people and the whole operation to programs.
pub(crate) async fn watch(client: &Client, target: &Target, id: &str) -> anyhow::Result<ExitCode> {
    let mut detail = client.get_operation(id).await?;
    let project = project_of(client, &detail).await?;
    let mut events = Box::pin(client.follow_events(Some(project), 0).await?);
    let mut told = 0;
    loop {
        told = tell(&detail, told);
        if !matches!(detail.operation.state.as_str(), "queued" | "running" | "waiting") {
            break;
        }
        loop {
            let event = events.next().await.context("the stream of events ended")??;
            let ours = event.subject_id == id || event.data.get("operation").is_some_and(|operation| operation == id);
            if ours && matches!(event.kind.as_str(), "step.changed" | "operation.ended") {
                break;
            }
        }
        detail = client.get_operation(id).await?;
    }
    show(target, &detail)?;
    let done = detail.operation.state == "succeeded";
    Ok(if done { ExitCode::SUCCESS } else { output::exit(ExitStatus::Failed) })
}

async fn project_of(client: &Client, detail: &OperationDetail) -> anyhow::Result<String> {
    let workload: WorkloadDetail = client.get_workload(None, &detail.operation.workload).await?;
    Ok(workload.workload.project)
}

/// Says the steps that ended since; returns how many have.
fn tell(detail: &OperationDetail, told: usize) -> usize {
    let mut ended: Vec<&Step> = detail.steps.iter().filter(|step| step.ended_at_ms.is_some()).collect();
    ended.sort_by_key(|step| step.ended_at_ms);
    for step in ended.iter().skip(told) {
        let mark = if step.state == "succeeded" { "✓" } else { "✗" };
        let took = step.ended_at_ms.zip(step.started_at_ms).map_or(0, |(end, start)| end - start);
        eprintln!("  {mark} {:<30} {:<28} {took:>7} ms", step.phase, step.key);
    }
    ended.len()
}

fn show(target: &Target, detail: &OperationDetail) -> anyhow::Result<()> {
    let words = |detail: &OperationDetail| {
        let operation = &detail.operation;
        let mut words = format!("{}   {}   {}", operation.id, operation.kind, operation.state);
        for step in &detail.steps {
            let note =
                step.fault.as_ref().map(|fault| fault.summary.clone()).or(step.detail.clone()).unwrap_or_default();
            words.push_str(&format!("\n  {:<10} {:<30} {:<28} {note}", step.state, step.phase, step.key));
        }
        words
    };
    output::one(target.output, detail, words, &detail.operation.id)
}

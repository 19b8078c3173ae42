//! Implements `gpuaas operation`.

use std::process::ExitCode;

use clap::Subcommand;
use gpuaas_api_types::{Operation, OperationDetail};
use gpuaas_client::Client;

use super::{watching, workload_shown::describe_fault};
use crate::{cli::Target, output};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List operations
    List {
        /// Only operations of this workload, by name or id
        #[arg(long)]
        workload: Option<String>,
        /// Only operations in this state: queued, running, waiting, succeeded, failed, cancelled or needs_attention
        #[arg(long)]
        state: Option<String>,
    },
    /// Show an operation with its steps
    Show {
        /// Id of the operation
        id: String,
    },
    /// Follow an operation until it ends
    Watch {
        /// Id of the operation
        id: String,
    },
    /// Request the cancellation of an operation
    Cancel {
        /// Id of the operation
        id: String,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::List { workload, state } => {
            let operations = client.list_operations(target.project.clone(), workload, state).await?.items;
            let header = ["ID", "KIND", "STATE", "BY", "CREATED", "ENDED"];
            output::list(target.output, &operations, &header, row, |operation| operation.id.clone())?;
        }
        Verb::Show { id } => show(target, &client.get_operation(&id).await?)?,
        Verb::Watch { id } => return watching::watch(client, target, &id).await,
        Verb::Cancel { id } => {
            let operation = client.cancel_operation(&id).await?;
            let describe = |operation: &Operation| format!("Cancellation of operation {} is requested.", operation.id);
            output::one(target.output, &operation, describe, &id)?;
            if target.wait {
                return watching::watch(client, target, &id).await;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(operation: &Operation) -> Vec<String> {
    vec![
        operation.id.clone(),
        operation.kind.clone(),
        operation.state.clone(),
        operation.requested_by.clone(),
        operation.created_at.clone(),
        operation.ended_at.clone().unwrap_or_default(),
    ]
}

/// Prints an operation with its steps.
pub(super) fn show(target: &Target, detail: &OperationDetail) -> anyhow::Result<()> {
    output::one(target.output, detail, described, &detail.operation.id)
}

fn described(detail: &OperationDetail) -> String {
    let operation = &detail.operation;
    let mut text =
        format!("{}   {} · {} · by {}", operation.id, operation.kind, operation.state, operation.requested_by);
    if let Some(resumed) = &operation.resumes {
        text.push_str(&format!(" · retries {resumed}"));
    }
    text.extend(operation.fault.iter().map(|fault| describe_fault(fault, None)));
    let rows = detail.steps.iter().map(|step| {
        let fault = step.fault.as_ref().map(|fault| fault.summary.clone());
        let took = step.ended_at_ms.zip(step.started_at_ms).map(|(end, start)| format!("{} ms", end - start));
        vec![
            step.state.clone(),
            step.phase.clone(),
            step.key.clone(),
            step.attempts.to_string(),
            took.unwrap_or_default(),
            // The detail of a succeeded step is the condition it last waited for.
            fault.or_else(|| step.detail.clone().filter(|_| step.state != "succeeded")).unwrap_or_default(),
        ]
    });
    text.push('\n');
    text.push_str(&output::table(&["STATE", "PHASE", "STEP", "ATTEMPTS", "DURATION", ""], rows));
    text
}

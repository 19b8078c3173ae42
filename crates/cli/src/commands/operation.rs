//! Implements `gpuaas operation`.

use std::process::ExitCode;

use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use gpuaas_api_types::{Operation, OperationDetail};
use gpuaas_client::Client;

use super::{
    lists::{EventStream, Listing, Watch},
    watching,
    workload_shown::{describe_fault, residue},
};
use crate::{
    cli::Target,
    completion, output,
    table::{column, table, wide},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List operations
    List {
        #[command(flatten)]
        watch: Watch,
        /// Only operations of this workload, by name or id
        #[arg(long, add = ArgValueCandidates::new(completion::workloads))]
        workload: Option<String>,
        /// Only operations in this state: queued, running, waiting, succeeded, failed, cancelled or needs_attention
        #[arg(long)]
        state: Option<String>,
    },
    /// Show an operation with its steps
    Show {
        /// Id of the operation
        #[arg(add = ArgValueCandidates::new(completion::operations))]
        id: String,
    },
    /// Follow an operation until it ends
    Watch {
        /// Id of the operation
        #[arg(add = ArgValueCandidates::new(completion::operations))]
        id: String,
    },
    /// Request the cancellation of an operation
    Cancel {
        /// Id of the operation
        #[arg(add = ArgValueCandidates::new(completion::operations))]
        id: String,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::List { watch, workload, state } => {
            let read = async || {
                let (project, workload, state) = (target.project.clone(), workload.clone(), state.clone());
                Ok(client.list_operations(project, workload, state).await?.items)
            };
            OPERATIONS.print(client, target, watch, state.is_some(), read).await?;
        }
        Verb::Show { id } => {
            let detail = client.get_operation(&id).await?;
            show(target, &detail, &detail.operation.id)?;
        }
        Verb::Watch { id } => return watching::watch(client, target, &id).await,
        Verb::Cancel { id } => {
            let operation = client.cancel_operation(&id).await?;
            let describe = |operation: &Operation| format!("Cancellation of operation {} is requested.", operation.id);
            output::one(target.output, &operation, describe, &operation.id)?;
            if target.wait {
                return watching::watch(client, target, &operation.id).await;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

const OPERATIONS: Listing<Operation> = Listing {
    columns: &[
        column("ID", |operation| operation.id.clone()),
        column("WORKLOAD", |operation| operation.workload_name.clone()),
        column("KIND", |operation| operation.kind.clone()),
        column("STATE", |operation| operation.state.clone()),
        column("BY", |operation| operation.requested_by.clone()),
        column("CREATED", |operation| operation.created_at.clone()),
        column("ENDED", |operation| operation.ended_at.clone().unwrap_or_default()),
        wide("FAULT", |operation| operation.fault.as_ref().map(|fault| fault.code.clone()).unwrap_or_default()),
        wide("RETRIES", |operation| operation.resumes.clone().unwrap_or_default()),
        wide("CORRELATION", |operation| operation.correlation_id.clone()),
    ],
    name: |operation| &operation.id,
    is_live: |operation| operation.ended_at.is_none(),
    events: &["operation."],
    stream: EventStream::Project,
    volatile: None,
};

/// Prints an operation with its steps; `name` is what `-o name` prints.
pub(super) fn show(target: &Target, detail: &OperationDetail, name: &str) -> anyhow::Result<()> {
    output::one(target.output, detail, described, name)
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
    text.push_str(&table(&["STATE", "PHASE", "STEP", "ATTEMPTS", "DURATION", ""], rows));
    text.push_str(&residue(&detail.residue));
    text
}

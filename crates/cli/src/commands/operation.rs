//! Implements `gpuaas operation`.

use std::{path::PathBuf, process::ExitCode};

use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use gpuaas_api_types::{Operation, OperationDetail, StartOperation};
use gpuaas_client::{Client, ClientError};
use gpuaas_model::OperationState;
use serde_json::{Map, Value};

use super::{
    if_match::IfMatch,
    lists::{EventStream, Listing, Watch},
    operation_shown::described,
    plan_args::PlanArgs,
    plan_shown, waiting_shown, watching, workload_shown,
};
use crate::{
    completion, output,
    table::{column, distinguishing, wide},
    target::Target,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List operations, newest first
    List {
        #[command(flatten)]
        watch: Watch,
        /// Only operations of this workload, by name or id
        #[arg(long, add = ArgValueCandidates::new(completion::workloads))]
        workload: Option<String>,
        /// Only operations in this state: queued, running, waiting, succeeded, failed, cancelled or needs_attention
        #[arg(long, add = ArgValueCandidates::new(completion::values(OperationState::ALL)))]
        state: Option<String>,
    },
    /// Start an operation with parameters on a workload
    Start(StartArgs),
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
        #[arg(add = ArgValueCandidates::new(completion::open_operations))]
        id: String,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct StartArgs {
    /// Name or id of the workload
    #[arg(add = ArgValueCandidates::new(completion::workloads))]
    workload: String,
    /// Kind of the operation, for example upgrade; `gpuaas app show` lists those that are available
    #[arg(add = ArgValueCandidates::new(completion::startable_operations))]
    kind: String,
    /// Parameter; its value is passed as a string; repeatable. Parameters are stored and shown: never pass a secret
    #[arg(long = "parameter", value_name = "NAME=VALUE", value_parser = parameter)]
    parameters: Vec<(String, String)>,
    /// File with parameters as a JSON object, or - for standard input; --parameter overrides them
    #[arg(long = "parameters", value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    seen: IfMatch,
}

fn parameter(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl StartArgs {
    /// Returns the request for a workload of `app`.
    fn request(&self, app: String) -> Result<StartOperation, ClientError> {
        let mut parameters: Map<String, Value> = match &self.file {
            Some(file) => {
                let text = if file.as_os_str() == "-" {
                    std::io::read_to_string(std::io::stdin())
                } else {
                    std::fs::read_to_string(file)
                };
                let refuse =
                    |what: String| ClientError::InvalidSetting(format!("--parameters {}: {what}", file.display()));
                let text = text.map_err(|error| refuse(error.to_string()))?;
                serde_json::from_str(&text).map_err(|error| refuse(format!("not a JSON object: {error}")))?
            }
            None => Map::new(),
        };
        parameters.extend(self.parameters.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))));
        // Commands are written with `-`, kinds with `_`: both are understood.
        Ok(StartOperation { app, kind: self.kind.replace('-', "_"), parameters })
    }
}

async fn start(client: &Client, target: &Target, ask: StartArgs) -> anyhow::Result<ExitCode> {
    let (client, project) = (&ask.seen.client(client), target.project.clone());
    let request = ask.request(client.get_workload(project.clone(), &ask.workload).await?.workload.app)?;
    if ask.plan.plan {
        let preview = client.preview_operation(project, &ask.workload, &request).await?;
        output::one(target.output, &preview, plan_shown::preview, &ask.workload)?;
        return Ok(ExitCode::SUCCESS);
    }
    let started = client.start_operation(project, &ask.workload, &request, ask.plan.plan_digest).await?;
    watching::report_and_follow(client, target, started).await
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::List { watch, workload, state } => {
            let read = async || {
                let (project, workload, state) = (target.project.clone(), workload.clone(), state.clone());
                let mut operations = client.list_operations(project, workload, state).await?.items;
                // The API lists them oldest first, which is also the order in which a followed list continues.
                if !watch.is_set() {
                    operations.reverse();
                }
                Ok(operations)
            };
            OPERATIONS.print(client, target, watch, state.is_some(), read).await?;
        }
        Verb::Show { id } => {
            let detail = client.get_operation(&id).await?;
            let describe = |detail: &OperationDetail| described(detail, &target.project_flag(), true);
            output::one(target.output, &detail, describe, &detail.operation.id)?;
        }
        Verb::Start(ask) => return start(client, target, ask).await,
        Verb::Watch { id } => return watching::watch(client, target, &id, watching::SUCCEEDED).await,
        Verb::Cancel { id } => {
            let was_requested = client.get_operation(&id).await.is_ok_and(|before| before.operation.cancel_requested);
            let operation = client.cancel_operation(&id).await?;
            if target.wait {
                return watching::watch(client, target, &operation.id, watching::CANCELLED).await;
            }
            let verb = if was_requested { "was already" } else { "is" };
            let describe =
                |operation: &Operation| format!("Cancellation of operation {} {verb} requested.", operation.id);
            output::one(target.output, &operation, describe, &operation.id)?;
            output::hint(target.output, &format!("follow it: gpuaas operation watch {}", operation.id));
        }
    }
    Ok(ExitCode::SUCCESS)
}

const OPERATIONS: Listing<Operation> = Listing {
    columns: &[
        column("ID", |operation| operation.id.clone()),
        distinguishing("PROJECT", |operation| operation.project_name.clone()),
        column("WORKLOAD", |operation| operation.workload_name.clone()),
        column("KIND", |operation| operation.kind.clone()),
        column("STATE", workload_shown::shown_state),
        column("BY", |operation| operation.requested_by.clone()),
        column("CREATED", |operation| operation.created_at.clone()),
        column("ENDED", |operation| operation.ended_at.clone().unwrap_or_default()),
        column("WAITING FOR", |operation| waiting_shown::cell(operation.waiting.as_ref())),
        wide("FAULT", |operation| operation.fault.as_ref().map(|fault| fault.code.clone()).unwrap_or_default()),
        wide("RETRIES", |operation| operation.resumes.clone().unwrap_or_default()),
        wide("CORRELATION", |operation| operation.correlation_id.clone()),
    ],
    name: |operation| &operation.id,
    is_live: |operation| operation.ended_at.is_none() || operation.state == "needs_attention",
    events: &["operation."],
    stream: EventStream::Project,
    // It contains the newest report of the step in progress.
    volatile: &["waiting"],
};

#[cfg(test)]
mod tests {
    use gpuaas_model::{Code, ExitStatus};

    use super::*;

    #[test]
    fn parameters_of_the_command_line_override_those_of_a_file_which_must_be_readable() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("parameters.json");
        std::fs::write(&file, r#"{ "version": "v1", "nodes": ["gpu-1"] }"#).expect("a file");
        let ask = StartArgs {
            workload: "train".to_owned(),
            kind: "upgrade".to_owned(),
            parameters: vec![parameter("version=1.20").expect("NAME=VALUE")],
            file: Some(file),
            plan: PlanArgs::default(),
            seen: IfMatch::default(),
        };
        let request = ask.request("rke2".to_owned()).expect("a request");
        assert_eq!(Value::from(request.parameters), serde_json::json!({ "version": "1.20", "nodes": ["gpu-1"] }));
        assert!(parameter("version").is_err());
        let file = ask.file.as_ref().expect("a file");
        std::fs::write(file, "[]").expect("written");
        for what in ["not a JSON object", "No such file"] {
            let refused = ask.request("rke2".to_owned()).expect_err(what);
            assert!(refused.to_string().contains(what), "{refused}");
            assert_eq!((refused.code(), refused.exit()), (Code::FieldInvalid, ExitStatus::Usage));
            let _ = std::fs::remove_file(file);
        }
    }
}

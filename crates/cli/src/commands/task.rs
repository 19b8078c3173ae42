//! Implements `gpuaas task`.

use clap::Subcommand;
use gpuaas_api_types::Task;
use gpuaas_client::Client;

use crate::{cli::Target, output};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List tasks
    List {
        /// Only tasks of this node, by name or id
        #[arg(long)]
        node: Option<String>,
        /// Only tasks of the operation with this id
        #[arg(long)]
        operation: Option<String>,
    },
    /// Show a task
    Show {
        /// Id of the task
        id: String,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List { node, operation } => {
            let tasks = client.list_tasks(node, operation).await?.items;
            let header = ["ID", "TYPE", "STATE", "ATTEMPT", "CREATED", "ENDED"];
            let row = |task: &Task| {
                vec![
                    task.id.clone(),
                    task.task_type.clone(),
                    task.state.clone(),
                    task.attempt.to_string(),
                    task.created_at.clone(),
                    task.ended_at.clone().unwrap_or_default(),
                ]
            };
            output::list(target.output, &tasks, &header, row, |task| task.id.clone())
        }
        Verb::Show { id } => {
            let task = client.get_task(&id).await?;
            let words = |task: &Task| {
                let signed =
                    format!("key {}   envelope sha256:{}   fence {}", task.key_id, task.envelope_sha256, task.fence);
                let outcome = task.outcome.as_ref().map(|outcome| format!("\n{outcome}")).unwrap_or_default();
                format!("{}   {} · {}\n{signed}{outcome}", task.id, task.task_type, task.state)
            };
            output::one(target.output, &task, words, &task.id)
        }
    }
}

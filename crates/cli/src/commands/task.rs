//! Implements `gpuaas task`.

use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use gpuaas_api_types::Task;
use gpuaas_client::Client;

use super::{
    lists::{EventStream, Listing, Watch},
    waiting_shown,
};
use crate::{
    completion, output,
    table::{column, wide},
    target::Target,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List tasks, newest first
    List {
        #[command(flatten)]
        watch: Watch,
        /// Only tasks of this node, by name or id
        #[arg(long, add = ArgValueCandidates::new(completion::nodes))]
        node: Option<String>,
        /// Only tasks of the operation with this id
        #[arg(long, add = ArgValueCandidates::new(completion::operations))]
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
        Verb::List { watch, node, operation } => {
            let read = async || {
                let mut tasks = client.list_tasks(node.clone(), operation.clone()).await?.items;
                // Like operations: a followed list continues with the newest.
                if !watch.is_set() {
                    tasks.reverse();
                }
                Ok(tasks)
            };
            TASKS.print(client, target, watch, false, read).await
        }
        Verb::Show { id } => {
            let task = client.get_task(&id).await?;
            let words = |task: &Task| {
                let signed =
                    format!("key {}   envelope sha256:{}   fence {}", task.key_id, task.envelope_sha256, task.fence);
                let outcome = task.outcome.as_ref().map(|outcome| format!("\n{outcome}")).unwrap_or_default();
                let waiting = waiting_shown::lines(task.waiting.as_ref(), None, "");
                let title = format!("{}   {} · {} · {}", task.id, task.task_type, task.node_name, task.state);
                format!("{title}\n{signed}{outcome}{waiting}")
            };
            output::one(target.output, &task, words, &task.id)
        }
    }
}

const TASKS: Listing<Task> = Listing {
    columns: &[
        column("ID", |task| task.id.clone()),
        column("NODE", |task| task.node_name.clone()),
        column("TYPE", |task| task.task_type.clone()),
        column("STATE", |task| task.state.clone()),
        column("ATTEMPT", |task| task.attempt.to_string()),
        column("CREATED", |task| task.created_at.clone()),
        column("ENDED", |task| task.ended_at.clone().unwrap_or_default()),
        column("WAITING FOR", |task| waiting_shown::cell(task.waiting.as_ref())),
        wide("OPERATION", |task| task.operation.clone().unwrap_or_default()),
        wide("KEY", |task| task.key_id.clone()),
        wide("FENCE", |task| task.fence.to_string()),
    ],
    name: |task| &task.id,
    is_live: |task| task.ended_at.is_none(),
    events: &["task.changed"],
    stream: EventStream::Platform,
    volatile: &["waiting"],
};

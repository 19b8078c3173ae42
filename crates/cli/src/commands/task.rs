//! `gpuaas task`.

use gpuaas_api_types::Task;
use gpuaas_client::Client;

use crate::{
    cli::{Target, Task as Verb},
    output,
};

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
                format!("{}   {}   {}\n{signed}", task.id, task.task_type, task.state)
            };
            output::one(target.output, &task, words, &task.id)
        }
    }
}

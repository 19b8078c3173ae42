//! Implements `gpuaas project`.

use clap::Subcommand;
use gpuaas_api_types::{CreateProject, Project};
use gpuaas_client::Client;

use super::{
    confirm::{Confirm, Loss},
    lists::{EventStream, Listing, Watch},
};
use crate::{output, table::column, target::Target};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Create a project
    Create {
        /// Name of the project: 1 to 63 of a-z, 0-9 and -
        name: String,
    },
    /// List projects
    List(Watch),
    /// Delete an empty project; its name can be used again
    Delete {
        /// Name or id of the project
        project: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Create { name } => {
            let project = client.create_project(&CreateProject { name }).await?;
            output::one(
                target.output,
                &project,
                |project| format!("Project {} is created.", project.name),
                &project.name,
            )
        }
        Verb::Delete { project, confirm } => {
            let dry = client.clone().with_dry_run();
            let loss = |of: &Project| {
                Loss::new(
                    format!("delete project {}", of.name),
                    "Afterwards it is not listed, and its name can be used again; its audit records stay.",
                )
            };
            if !confirm.allows(target, dry.delete_project(&project), loss, &project).await? {
                return Ok(());
            }
            let project = client.delete_project(&project).await?;
            output::one(
                target.output,
                &project,
                |project| format!("Project {} is deleted.", project.name),
                &project.name,
            )
        }
        Verb::List(watch) => {
            let read = async || Ok(client.list_projects().await?.items);
            PROJECTS.print(client, target, watch, false, read).await
        }
    }
}

const PROJECTS: Listing<Project> = Listing {
    columns: &[
        column("NAME", |project| project.name.clone()),
        column("ID", |project| project.id.clone()),
        column("CREATED", |project| project.created_at.clone()),
    ],
    name: |project| &project.name,
    is_live: |_| true,
    events: &["project."],
    stream: EventStream::Platform,
    volatile: &[],
};

//! Implements `gpuaas project`.

use clap::Subcommand;
use gpuaas_api_types::CreateProject;
use gpuaas_client::Client;

use crate::{cli::Target, output};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Create a project
    Create {
        /// Name of the project: 1 to 63 of a-z, 0-9 and -
        name: String,
    },
    /// List projects
    List,
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Create { name } => {
            let project = client.create_project(&CreateProject { name }).await?;
            output::one(target.output, &project, |project| format!("Project {} created.", project.name), &project.name)
        }
        Verb::List => {
            let projects = client.list_projects().await?.items;
            let row = |project: &gpuaas_api_types::Project| {
                vec![project.name.clone(), project.id.clone(), project.created_at.clone()]
            };
            output::list(target.output, &projects, &["NAME", "ID", "CREATED"], row, |project| project.name.clone())
        }
    }
}

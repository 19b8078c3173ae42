//! `gpuaas service-account`.

use std::time::Duration;

use clap::Subcommand;
use gpuaas_api_types::{CreateServiceAccount, CreateServiceAccountToken, ServiceAccount};
use gpuaas_client::Client;

use crate::{
    cli::{Format, Target},
    output,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Make a service account: a program that acts for the project
    Create {
        /// 1 to 63 of a-z, 0-9 and -
        name: String,
        /// project-admin, project-member or viewer
        #[arg(long)]
        role: String,
    },
    /// List service accounts
    List,
    /// Make a token for a service account; its secret is printed once
    Token {
        /// The service account
        name: String,
        /// Its life, for example 12h; an hour when absent, 30 days at most
        #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
        ttl: Option<Duration>,
    },
    /// Delete a service account; its tokens are refused at once
    Delete {
        /// The service account
        name: String,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    let project = target.project.clone();
    match verb {
        Verb::Create { name, role } => {
            let account = client.create_service_account(&CreateServiceAccount { name, role, project }).await?;
            let words = |account: &ServiceAccount| {
                format!("Service account {} is made; a token for it: gpuaas service-account token {0}", account.name)
            };
            output::one(target.output, &account, words, &account.name)
        }
        Verb::List => {
            let accounts = client.list_service_accounts(project).await?.items;
            let row = |account: &ServiceAccount| {
                vec![account.name.clone(), account.role.clone(), account.created_at.clone(), account.id.clone()]
            };
            output::list(target.output, &accounts, &["NAME", "ROLE", "CREATED", "ID"], row, |item| item.name.clone())
        }
        Verb::Token { name, ttl } => {
            let ask = CreateServiceAccountToken { ttl_seconds: ttl.map(|ttl| ttl.as_secs()) };
            let created = client.create_service_account_token(project, &name, &ask).await?;
            if target.output == Format::Table {
                let until = created.token.expires_at.clone().unwrap_or_default();
                eprintln!("Token of {name} until {until} ({}). Its secret is shown this once:", created.token.id);
            }
            output::one(target.output, &created, |created| created.secret.clone(), &created.token.id)
        }
        Verb::Delete { name } => {
            let account = client.delete_service_account(project, &name).await?;
            let words = |account: &ServiceAccount| format!("Service account {} is deleted.", account.name);
            output::one(target.output, &account, words, &account.name)
        }
    }
}

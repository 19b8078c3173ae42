//! Implements `gpuaas service-account`.

use std::time::Duration;

use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use gpuaas_api_types::{CreateServiceAccount, CreateServiceAccountToken, ServiceAccount};
use gpuaas_client::Client;

use super::confirm::{Confirm, Loss};
use crate::{
    completion, output,
    table::{Column, column},
    target::Target,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Create a service account: an identity with which a program acts in the project
    Create {
        /// Name of the service account: 1 to 63 of a-z, 0-9 and -
        name: String,
        /// Role in the project: project-admin, project-member, viewer or auditor; app-controller for one workload
        #[arg(long, visible_alias = "scope", add = ArgValueCandidates::new(completion::project_roles))]
        role: String,
        /// With app-controller: name or id of the workload that the account controls
        #[arg(long, add = ArgValueCandidates::new(completion::workloads))]
        workload: Option<String>,
    },
    /// List service accounts
    List,
    /// Create a token for a service account; its secret is printed once
    Token {
        /// Name of the service account
        #[arg(add = ArgValueCandidates::new(completion::service_accounts))]
        name: String,
        /// Lifetime, for example 12h, at most 30 days; default: 1h
        #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
        ttl: Option<Duration>,
    },
    /// Delete a service account and revoke its tokens
    Delete {
        /// Name of the service account
        #[arg(add = ArgValueCandidates::new(completion::service_accounts))]
        name: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    let project = target.project.clone();
    match verb {
        Verb::Create { name, role, workload } => {
            let request = CreateServiceAccount { name, role, workload, project };
            let account = client.create_service_account(&request).await?;
            let words = |account: &ServiceAccount| {
                let controls = account.workload_name.as_ref().map(|name| format!(" to control {name}"));
                format!("Service account {} is created{}.", account.name, controls.unwrap_or_default())
            };
            output::one(target.output, &account, words, &account.name)?;
            let next =
                format!("create a token: gpuaas service-account token {}{}", account.name, target.project_flag());
            output::hint(target.output, &next);
            Ok(())
        }
        Verb::List => {
            let accounts = client.list_service_accounts(project).await?.items;
            output::list(target.output, &accounts, ACCOUNTS, |account| account.name.clone())
        }
        Verb::Token { name, ttl } => {
            let ask = CreateServiceAccountToken { ttl_seconds: ttl.map(|ttl| ttl.as_secs()) };
            let created = client.create_service_account_token(project, &name, &ask).await?;
            if target.output.is_for_people() {
                let (id, until) = (&created.token.id, created.token.expires_at.clone().unwrap_or_default());
                output::message(format_args!(
                    "A token of {name} ({id}) is created; it expires {until}. Its secret is shown only once:"
                ));
            }
            output::one(target.output, &created, |created| created.secret.clone(), &created.secret)
        }
        Verb::Delete { name, confirm } => {
            let dry = client.clone().with_dry_run();
            let loss = |of: &ServiceAccount| {
                let lost = match &of.workload_name {
                    Some(name) => format!(
                        "All of its tokens are refused from then on, and what it reported about {name} is forgotten."
                    ),
                    None => "All of its tokens are refused from then on.".to_owned(),
                };
                Loss::new(format!("delete service account {}", of.name), lost)
            };
            if !confirm.allows(target, dry.delete_service_account(project.clone(), &name), loss, &name).await? {
                return Ok(());
            }
            let account = client.delete_service_account(project, &name).await?;
            let words = |account: &ServiceAccount| format!("Service account {} is deleted.", account.name);
            output::one(target.output, &account, words, &account.name)
        }
    }
}

const ACCOUNTS: &[Column<ServiceAccount>] = &[
    column("NAME", |account| account.name.clone()),
    column("ROLE", |account| account.role.clone()),
    column("WORKLOAD", |account| account.workload_name.clone().unwrap_or_default()),
    column("CREATED", |account| account.created_at.clone()),
    column("ID", |account| account.id.clone()),
];

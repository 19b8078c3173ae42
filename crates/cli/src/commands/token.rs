//! Implements `gpuaas token`.

use std::time::Duration;

use clap::Subcommand;
use gpuaas_api_types::{CreateToken, Token};
use gpuaas_client::Client;
use gpuaas_model::Role;

use crate::{
    cli::{Format, Target},
    output,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Create a token; its secret is printed once
    Create {
        /// Name of the token, shown in audit records
        name: String,
        /// Role: platform-admin, platform-operator, platform-metrics, project-admin, project-member or viewer
        #[arg(long)]
        role: String,
        /// Lifetime, for example 24h, at most a year; default: 30 days
        #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
        ttl: Option<Duration>,
    },
    /// List tokens
    List,
    /// Revoke a token
    Revoke {
        /// Id of the token
        id: String,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Create { name, role, ttl } => {
            // Platform roles belong to no project: ignore the one of the context.
            let is_of_platform = role.parse::<Role>().is_ok_and(Role::is_of_platform);
            let project = target.project.clone().filter(|_| !is_of_platform);
            let ask = CreateToken { name, role, project, ttl_seconds: ttl.map(|ttl| ttl.as_secs()) };
            let created = client.create_token(&ask).await?;
            if target.output == Format::Table {
                eprintln!("Token {} ({}). Its secret is shown only once:", created.token.name, created.token.id);
            }
            output::one(target.output, &created, |created| created.secret.clone(), &created.token.id)
        }
        Verb::List => {
            let tokens = client.list_tokens().await?.items;
            let header = ["ID", "NAME", "ROLE", "EXPIRES", "REVOKED"];
            let row = |token: &Token| {
                let (expires, revoked) = (token.expires_at.clone(), token.revoked_at.clone());
                vec![
                    token.id.clone(),
                    token.name.clone(),
                    token.role.clone(),
                    expires.unwrap_or_default(),
                    revoked.unwrap_or_default(),
                ]
            };
            output::list(target.output, &tokens, &header, row, |token| token.id.clone())
        }
        Verb::Revoke { id } => {
            let token = client.revoke_token(&id).await?;
            output::one(target.output, &token, |token| format!("Token {} is revoked.", token.name), &token.id)
        }
    }
}

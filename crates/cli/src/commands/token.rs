//! Implements `gpuaas token`.

use std::time::Duration;

use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use gpuaas_api_types::{CreateToken, Token};
use gpuaas_client::Client;
use gpuaas_model::Role;

use super::confirm::{Confirm, Loss};
use crate::{
    completion,
    duration::is_past,
    output,
    table::{Column, column, wide},
    target::{Format, ProjectSource, Target},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Create a token; its secret is printed once
    Create {
        /// Name of the token, shown in audit records
        name: String,
        /// Role: platform-admin, platform-operator, platform-auditor or platform-metrics; in a project (--project), project-admin,
        /// project-member, viewer or auditor
        #[arg(long, add = ArgValueCandidates::new(completion::values(Role::ALL)))]
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
        #[arg(add = ArgValueCandidates::new(completion::tokens))]
        id: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Create { name, role, ttl } => {
            let project = project_of(target, &role);
            let ask = CreateToken { name, role, project, ttl_seconds: ttl.map(|ttl| ttl.as_secs()) };
            let created = client.create_token(&ask).await?;
            if target.output.is_for_people() {
                let token = &created.token;
                let until = token.expires_at.as_ref().map(|at| format!("; it expires {at}")).unwrap_or_default();
                output::message(format_args!(
                    "Token {} ({}) is created{until}. Its secret is shown only once:",
                    token.name, token.id
                ));
            }
            output::one(target.output, &created, |created| created.secret.clone(), &created.secret)
        }
        Verb::List => {
            let mut tokens = client.list_tokens(target.project.clone()).await?.items;
            if target.output == Format::Name {
                tokens.retain(is_valid);
            }
            output::list(target.output, &tokens, TOKENS, |token| token.id.clone())
        }
        Verb::Revoke { id, confirm } => {
            let dry = client.clone().with_dry_run();
            let own = client.whoami().await?.token;
            let loss = |of: &Token| {
                let holder = if of.id == own { "You use this token, and are refused" } else { "Its holder is refused" };
                let lost = format!("{holder} from then on. A revoked token cannot be restored.");
                Loss::new(format!("revoke token {} ({})", of.name, of.id), lost)
            };
            if !confirm.allows(target, dry.revoke_token(&id), loss, &id).await? {
                return Ok(());
            }
            let token = client.revoke_token(&id).await?;
            output::one(target.output, &token, |token| format!("Token {} is revoked.", token.name), &token.id)
        }
    }
}

/// Returns the project of a new token. A platform role has none: the project of the context or of `GPUAAS_PROJECT` is ignored, and the
/// control plane refuses that of the flag.
fn project_of(target: &Target, role: &str) -> Option<String> {
    let is_of_platform = role.parse::<Role>().is_ok_and(Role::is_of_platform);
    target.project.clone().filter(|_| !is_of_platform || target.project_source == ProjectSource::Flag)
}

const TOKENS: &[Column<Token>] = &[
    column("ID", |token| token.id.clone()),
    column("NAME", |token| token.name.clone()),
    column("ROLE", |token| token.role.clone()),
    column("PROJECT", |token| token.project_name.clone().unwrap_or_default()),
    column("EXPIRES", |token| token.expires_at.clone().unwrap_or_default()),
    column("REVOKED", |token| token.revoked_at.clone().unwrap_or_default()),
    wide("CREATED", |token| token.created_at.clone()),
];

/// Reports whether a token is neither revoked nor expired, by this machine's clock.
fn is_valid(token: &Token) -> bool {
    token.revoked_at.is_none() && !token.expires_at.as_deref().is_some_and(is_past)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn only_the_flags_project_is_sent_with_a_platform_role() {
        let line = ["gpuaas", "token", "create", "ada", "--role", "platform-admin", "--project", "research"];
        let mut target = Cli::try_parse_from(line).expect("a command line").target;
        assert_eq!(project_of(&target, "platform-admin").as_deref(), Some("research"));
        for source in [ProjectSource::Environment, ProjectSource::Context] {
            target.project_source = source;
            assert_eq!(project_of(&target, "platform-admin"), None);
            assert_eq!(project_of(&target, "viewer").as_deref(), Some("research"));
        }
    }
}

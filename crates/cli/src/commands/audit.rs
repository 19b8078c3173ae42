//! Implements `gpuaas audit`.

use std::process::ExitCode;

use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use gpuaas_api_types::{AuditEntry, AuditHead};
use gpuaas_client::{AuditQuery, Client};
use gpuaas_model::{AuditAction, AuditResult};
use jiff::Timestamp;

use super::audit_chain;
use crate::{
    completion, output,
    table::{Column, column, wide},
    target::Target,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List audit records, oldest first: of the project if one is chosen, otherwise of everything that the token may see
    ///
    /// TOKEN is the end of the id of the token that acted, because several tokens can have the same name. It is empty if a node or the
    /// control plane itself acted. `-o wide` has the role of the token, `-o json` also the whole ids of the token and its service account.
    List {
        /// Only records of this actor: the name of a token, node/NAME, or control-plane
        #[arg(long)]
        actor: Option<String>,
        /// Only records about this target, as KIND/NAME, for example node/gpu-07
        #[arg(long)]
        target: Option<String>,
        /// Only records of this action, for example task.dispatch
        #[arg(long, add = ArgValueCandidates::new(completion::values(AuditAction::ALL)))]
        action: Option<String>,
        /// Only records with this result: accepted, succeeded, refused or failed
        #[arg(long, add = ArgValueCandidates::new(completion::values(AuditResult::ALL)))]
        result: Option<String>,
        /// Only records about this workload and its tasks; of several workloads with one name, the newest
        #[arg(long, value_name = "NAME|ID", add = ArgValueCandidates::new(completion::workloads))]
        workload: Option<String>,
        /// Only records with this correlation id
        #[arg(long, value_name = "ID")]
        correlation: Option<String>,
        /// Only records at or after this time: a duration before now such as 1h, 2026-07-01T08:00:00Z, or 2026-07-01 for the start of
        /// that day (UTC)
        #[arg(long, value_name = "DURATION|TIME", value_parser = crate::duration::parse_time)]
        since: Option<Timestamp>,
        /// Only records before this time: a duration before now such as 1h, 2026-07-01T08:00:00Z, or 2026-07-01 for the start of that
        /// day (UTC)
        #[arg(long, value_name = "DURATION|TIME", value_parser = crate::duration::parse_time)]
        until: Option<Timestamp>,
        /// Only this many newest records; default: all
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
        limit: Option<u32>,
    },
    /// Show up to which record the audit is sealed, and the newest seal; verifies nothing
    Chain,
    /// Verify that no audit record was changed, added or removed since it was sealed, from the first record on
    ///
    /// Reads the records of all projects, also those in archives. Exits with 1 if the chain is broken. Note the printed head outside of the
    /// control plane, and give it to a later verification: only this shows that nobody removed the newest records.
    Verify {
        /// Head that an earlier verification printed, which the chain must contain
        #[arg(long, value_name = "N:DIGEST", value_parser = audit_chain::parse_head)]
        head: Option<AuditHead>,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::List { actor, target: about, action, result, workload, correlation, since, until, limit } => {
            let query = AuditQuery {
                actor,
                target: about,
                action,
                result,
                project: target.project.clone(),
                workload,
                correlation,
                since: since.map(|since| since.to_string()),
                until: until.map(|until| until.to_string()),
                newest: limit.map(|limit| limit as usize),
            };
            list(client, target, query).await?;
        }
        Verb::Chain => audit_chain::show(client, target).await?,
        Verb::Verify { head } => return audit_chain::verify(client, target, head).await,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, target: &Target, query: AuditQuery) -> anyhow::Result<()> {
    let records = client.list_audit(&query).await?.items;
    output::list(target.output, &records, AUDIT, |record| record.sequence.to_string())?;
    if records.is_empty()
        && let Some(hint) = hint(&query)
    {
        output::hint(target.output, &hint);
    }
    Ok(())
}

/// Returns what a person may have mistyped if no record was found; `None` if no name was given.
fn hint(query: &AuditQuery) -> Option<String> {
    match &query.target {
        Some(name) if !name.contains('/') => Some(format!("--target takes KIND/NAME, for example workload/{name}")),
        Some(_) | None => {
            let names_one = query.target.is_some() || query.actor.is_some() || query.correlation.is_some();
            names_one.then(|| "check the spelling: a name that does not exist is no error".to_owned())
        }
    }
}

pub(crate) const AUDIT: &[Column<AuditEntry>] = &[
    column("SEQ", |record| record.sequence.to_string()),
    column("AT", |record| record.at.clone()),
    column("ACTOR", |record| record.actor.clone()),
    wide("ROLE", |record| record.actor_role.clone().unwrap_or_default()),
    column("TOKEN", |record| record.actor_id.as_deref().map(last_group).unwrap_or_default().to_owned()),
    column("ACTION", |record| record.action.clone()),
    column("TARGET", |record| record.target.clone()),
    column("RESULT", |record| record.result.clone()),
    column("CORRELATION", |record| record.correlation_id.clone().unwrap_or_default()),
    column("DETAIL", |record| output::fields(&record.metadata, &["type", "state", "kind", "version"])),
];

/// Returns the last group of an id. It is random; the first groups of ids made at the same time are equal.
fn last_group(id: &str) -> &str {
    id.rsplit('-').next().unwrap_or(id)
}

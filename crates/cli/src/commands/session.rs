//! Implements `gpuaas session`.

use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use gpuaas_api_types::BrowserSession;
use gpuaas_client::Client;

use crate::{
    completion, output,
    table::{Column, column, wide},
    target::Target,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List the browsers that are signed in with the current token
    List,
    /// Sign a browser out
    Revoke {
        /// Id of the session
        #[arg(add = ArgValueCandidates::new(completion::sessions))]
        id: String,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List => {
            let sessions = client.list_sessions().await?.items;
            output::list(target.output, &sessions, SESSIONS, |session| session.id.clone())
        }
        Verb::Revoke { id } => {
            let session = client.revoke_session(&id).await?;
            output::one(target.output, &session, |session| format!("Session {} is revoked.", session.id), &session.id)
        }
    }
}

const SESSIONS: &[Column<BrowserSession>] = &[
    // Complete: a session is not found by the beginning of its id, so that nobody learns of the sessions of others.
    column("SESSION", |session| session.id.clone()),
    column("SIGNED IN BY", |session| session.proof.clone()),
    column("SINCE", |session| session.created_at.clone()),
    column("LAST USED", |session| session.last_used_at.clone()),
    column("EXPIRES", |session| session.expires_at.clone()),
    wide("IDLE UNTIL", |session| session.idle_expires_at.clone()),
    column("BROWSER", |session| session.user_agent.clone().unwrap_or_default()),
];

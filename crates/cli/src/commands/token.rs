//! `gpuaas token`.

use gpuaas_api_types::{CreateToken, Token};
use gpuaas_client::Client;

use crate::{
    cli::{Format, Target, Token as Verb},
    output,
};

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Create { name, role, ttl } => {
            let ask = CreateToken { name, role, project: target.project.clone(), ttl_seconds: ttl };
            let created = client.create_token(&ask).await?;
            if target.output == Format::Table {
                eprintln!("Token {} ({}). Its secret is shown this once:", created.token.name, created.token.id);
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

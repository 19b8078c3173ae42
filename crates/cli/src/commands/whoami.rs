//! `gpuaas whoami`.

use gpuaas_api_types::WhoAmI;
use gpuaas_client::Client;

use crate::{cli::Target, output};

pub(crate) async fn run(client: &Client, target: &Target) -> anyhow::Result<()> {
    let who = client.whoami().await?;
    output::one(target.output, &who, |who: &WhoAmI| format!("{} ({})", who.name, who.role), &who.name)
}

//! `gpuaas audit`.

use gpuaas_api_types::AuditEntry;
use gpuaas_client::Client;

use crate::{
    cli::{Audit as Verb, Target},
    output,
};

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    let Verb::List { target: about, action } = verb;
    let records = client.list_audit(about, action).await?.items;
    let header = ["SEQ", "AT", "ACTOR", "ACTION", "TARGET", "RESULT", "CORRELATION"];
    let row = |record: &AuditEntry| {
        vec![
            record.sequence.to_string(),
            record.at.clone(),
            record.actor.clone(),
            record.action.clone(),
            record.target.clone(),
            record.result.clone(),
            record.correlation_id.clone().unwrap_or_default(),
        ]
    };
    output::list(target.output, &records, &header, row, |record| record.sequence.to_string())
}

//! `--if-match` and `--etag`: conditional changes.

use clap::Args;
use gpuaas_client::Client;
use serde_json::json;

use crate::{output, target::Target};

/// The condition of a change.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct IfMatch {
    /// Make the change only if the object still has this ETag, as printed by `show --etag`
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
}

impl IfMatch {
    /// Returns a client that sends the condition with every change.
    pub(crate) fn client(&self, client: &Client) -> Client {
        match &self.if_match {
            Some(etag) => client.clone().with_if_match(etag),
            None => client.clone(),
        }
    }
}

/// Prints only an ETag.
pub(crate) fn print_etag(target: &Target, etag: &str) -> anyhow::Result<()> {
    output::one(target.output, &json!({ "etag": etag }), |_| etag.to_owned(), etag)
}

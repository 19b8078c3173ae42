//! `--if-match` and `--etag`: a change that is made only to what was looked at.

use clap::Args;
use gpuaas_client::Client;
use serde_json::json;

use crate::{cli::Target, output};

/// What the object of a change must still be like.
#[derive(Clone, Debug, Args)]
pub(crate) struct IfMatch {
    /// Only while it is as this ETag says, which `show --etag` printed
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
}

impl IfMatch {
    /// A client whose changes ask for that.
    pub(crate) fn client(&self, client: &Client) -> Client {
        match &self.if_match {
            Some(etag) => client.clone().with_if_match(etag),
            None => client.clone(),
        }
    }
}

/// Prints an ETag alone.
pub(crate) fn printed(target: &Target, etag: &str) -> anyhow::Result<()> {
    output::one(target.output, &json!({ "etag": etag }), |_| etag.to_owned(), etag)
}

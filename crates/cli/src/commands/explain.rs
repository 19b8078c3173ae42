//! Implements `gpuaas explain`.

use gpuaas_api_types::error_pages;
use serde_json::json;

use crate::{
    cli::Target,
    output::{self, NotFound},
};

/// Prints the page of an error code, or the list of all codes without one. Needs no control plane.
pub(crate) fn run(target: &Target, code: Option<&str>) -> anyhow::Result<()> {
    let name = code.unwrap_or(error_pages::INDEX);
    let page = error_pages::page(name).ok_or_else(|| NotFound {
        what: format!("there is no error code {name}"),
        next: "see the list of codes: gpuaas explain".to_owned(),
    })?;
    output::one(target.output, &json!({ "code": code, "page": page }), |_| page.trim_end().to_owned(), name)
}

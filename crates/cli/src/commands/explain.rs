//! Implements `gpuaas explain`.

use std::io::IsTerminal;

use gpuaas_api_types::error_pages;
use serde_json::json;

use crate::{
    markdown,
    output::{self, NotFound},
    suggestions,
    target::{Format, Target},
    text::Text,
};

/// Prints the page of an error code or what is known of a finding, or the list of all codes without a name. Needs no control plane.
pub(crate) fn run(target: &Target, code: Option<&str>) -> anyhow::Result<()> {
    if code.is_none() && !matches!(target.output, Format::Table | Format::Wide) {
        let codes: Vec<_> = error_pages::codes().map(|code| json!({ "code": code })).collect();
        return output::list(target.output, &codes, &[], |code| code["code"].as_str().unwrap_or_default().to_owned());
    }
    let name = code.unwrap_or(error_pages::INDEX);
    let page = error_pages::page(name).map(str::to_owned).or_else(|| error_pages::finding(name));
    let page = page.ok_or_else(|| {
        let near = suggestions::nearest(name, error_pages::codes().chain(error_pages::findings()));
        NotFound {
            what: format!("there is no error code and no finding {name}"),
            next: match near {
                Some(near) => format!("did you mean {near}? See the list of codes: gpuaas explain"),
                None => "see the list of codes: gpuaas explain".to_owned(),
            },
        }
    })?;
    let describe = |_: &serde_json::Value| match std::io::stdout().is_terminal() {
        true => markdown::rendered(&page),
        false => Text::from(page.trim_end()),
    };
    output::one(target.output, &json!({ "code": code, "page": page }), describe, name)
}

//! Finds API operations that lack a command, client method, audit action, event, error page or test.
//!
//! Every operation declares them in the OpenAPI document as extensions: `x-permission`, `x-cli`, `x-audit`, `x-event`, `x-errors`. The
//! value `none: REASON` declares that there is none. Pure: the caller supplies the texts.

use std::collections::BTreeSet;

use gpuaas_model::{AuditAction, Code, EventKind, Permission};
use serde_json::Value;

/// The texts to compare.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The OpenAPI document.
    pub openapi: Value,
    /// The text of `docs/cli.md`, which contains the help of every command.
    pub cli: String,
    /// The sources of the client.
    pub client: String,
    /// The sources of the tests, golden files included.
    pub tests: String,
    /// Codes that have a page under `docs/errors`.
    pub error_pages: BTreeSet<String>,
}

/// Returns one finding for each missing item; empty if everything is covered.
pub fn uncovered(sources: &Sources) -> Vec<String> {
    let mut findings = Vec::new();
    let paths = sources.openapi["paths"].as_object().into_iter().flatten();
    for (path, item) in paths {
        for (method, operation) in item.as_object().into_iter().flatten() {
            findings.extend(missing(sources, path, method, operation));
        }
    }
    if findings.is_empty() && sources.openapi["paths"].as_object().is_none_or(serde_json::Map::is_empty) {
        findings.push("the document contains no operation".to_owned());
    }
    let known: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    let without_page = known.iter().filter(|code| !sources.error_pages.contains(**code));
    findings.extend(without_page.map(|code| format!("error {code} has no page docs/errors/{code}.md")));
    findings
}

fn missing(sources: &Sources, path: &str, method: &str, operation: &Value) -> Vec<String> {
    let Some(name) = operation["operationId"].as_str() else {
        return vec![format!("{method} {path} has no operationId")];
    };
    let mut findings = Vec::new();
    let mut check = |what: &str, is_valid: &dyn Fn(&str) -> bool| {
        let extension = format!("x-{what}");
        match operation[&extension].as_str() {
            None => findings.push(format!("operation {name} does not declare {extension}")),
            Some(declared) if declared.starts_with("none: ") => {}
            Some(declared) if is_valid(declared) => {}
            Some(declared) => findings.push(format!("operation {name} declares an unknown {what} {declared:?}")),
        }
    };
    check("permission", &|permission| permission.parse::<Permission>().is_ok());
    check("cli", &|verb| sources.cli.contains(&format!("## gpuaas {verb}\n")));
    check("audit", &|action| action.parse::<AuditAction>().is_ok());
    check("event", &|kind| kind.parse::<EventKind>().is_ok());
    match operation["x-errors"].as_array() {
        None => findings.push(format!("operation {name} does not declare x-errors")),
        Some(codes) => {
            let unknown = codes.iter().filter_map(Value::as_str).filter(|code| code.parse::<Code>().is_err());
            findings.extend(unknown.map(|code| format!("operation {name} declares an unknown error {code:?}")));
        }
    }
    if method != "get" && operation["x-audit"].as_str().is_some_and(|declared| declared.starts_with("none: read")) {
        findings.push(format!("operation {name} changes something but declares that it only reads"));
    }
    let for_people = !operation["x-cli"].as_str().is_some_and(|declared| declared.starts_with("none: "));
    if for_people && !sources.client.contains(&format!("pub async fn {name}(")) {
        findings.push(format!("operation {name} has no method in the client"));
    }
    if !sources.tests.contains(name) {
        findings.push(format!("operation {name} has no test"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn complete() -> Sources {
        let operation = json!({
            "operationId": "ping_node", "x-permission": "nodes.write", "x-cli": "node ping", "x-audit": "node.ping",
            "x-event": "task.changed", "x-errors": ["not_found"],
        });
        Sources {
            openapi: json!({ "paths": { "/api/v1/nodes/{node}/ping": { "post": operation } } }),
            cli: "## gpuaas node ping\n".to_owned(),
            client: "pub async fn ping_node(".to_owned(),
            tests: "ping_node".to_owned(),
            error_pages: Code::ALL.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn complete_operation_has_no_findings() {
        assert_eq!(uncovered(&complete()), Vec::<String>::new());
    }

    #[test]
    fn each_missing_item_is_reported() {
        let mut broken = complete();
        broken.cli.clear();
        broken.client.clear();
        broken.tests.clear();
        broken.error_pages.remove("not_found");
        let operation = &mut broken.openapi["paths"]["/api/v1/nodes/{node}/ping"]["post"];
        operation["x-audit"] = json!("none: read");
        operation["x-event"] = json!("node.pung");
        operation["x-errors"] = json!(["no_such_code"]);
        operation["x-permission"] = json!("emperor");
        let findings = uncovered(&broken).join("\n");
        let wanted = [
            "unknown permission",
            "unknown cli",
            "unknown event",
            "unknown error",
            "only reads",
            "no method",
            "no test",
            "no page",
        ];
        for what in wanted {
            assert!(findings.contains(what), "{what} is not among:\n{findings}");
        }
        assert_eq!(findings.lines().count(), wanted.len());
    }

    #[test]
    fn empty_document_is_reported() {
        let empty = Sources { openapi: json!({}), ..complete() };
        assert_eq!(uncovered(&empty), ["the document contains no operation"]);
    }
}

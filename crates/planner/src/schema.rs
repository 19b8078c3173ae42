//! Checks values of requests against the JSON Schemas of an app's manifest.

use gpuaas_model::{Code, Reason};
use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind},
    paths::LocationSegment,
};
use serde_json::Value;

/// A part of a value that its schema does not accept. It names fields, never values: a caller may have sent a secret by mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field, for example `agent_allocation_ids[2]`; empty for the value itself.
    pub field: String,
    /// Keyword of the schema, for example `required` or `format`.
    pub keyword: String,
    /// Description of the violation.
    pub detail: String,
}

impl Violation {
    /// Returns the violation as a reason with this code and next action. `root` names the value itself.
    pub fn reason(self, root: &str, code: Code, next: &str) -> Reason {
        let field = if self.field.is_empty() { root.to_owned() } else { self.field };
        Reason { field, code, detail: self.detail, next: Some(next.to_owned()) }
    }
}

/// Returns every violation of a manifest's schema.
pub fn violations(schema: &Value, value: &Value) -> Vec<Violation> {
    let validator = jsonschema::options()
        .should_validate_formats(true)
        .build(schema)
        .expect("a test of the app builds every schema of its manifest");
    validator.iter_errors(value).flat_map(|error| violations_of(&error)).collect()
}

fn violations_of(error: &ValidationError<'_>) -> Vec<Violation> {
    let path = path(error);
    let keyword = error.kind().keyword();
    let violation = |field: String, detail: &str| {
        let (keyword, detail) = (keyword.to_owned(), detail.to_owned());
        Violation { field, keyword, detail }
    };
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            vec![violation(joined(&path, property.as_str().unwrap_or_default()), "this is required")]
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            unexpected.iter().map(|name| violation(joined(&path, name), "there is no such field here")).collect()
        }
        ValidationErrorKind::Type { kind: TypeKind::Single(wanted) } => {
            let wanted = wanted.to_string();
            let article = if wanted.starts_with(['a', 'i', 'o']) { "an" } else { "a" };
            vec![violation(path, &format!("this must be {article} {wanted}"))]
        }
        _ => vec![violation(path, &error.masked().to_string())],
    }
}

fn path(error: &ValidationError<'_>) -> String {
    error.instance_path().into_iter().fold(String::new(), |path, segment| match segment {
        LocationSegment::Property(name) => joined(&path, &name),
        LocationSegment::Index(at) => format!("{path}[{at}]"),
    })
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn violations_name_fields_and_never_values() {
        let schema = json!({
            "type": "object", "additionalProperties": false, "required": ["version"],
            "properties": {
                "version": { "type": "string", "pattern": "^v[0-9]" },
                "nodes": { "type": "array", "items": { "type": "string", "format": "uuid" } },
            },
        });
        let found = |value: Value| -> Vec<(String, String)> {
            let found = violations(&schema, &value);
            assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
            found.into_iter().map(|of| (of.field, of.keyword)).collect()
        };
        let expected = |field: &str, keyword: &str| vec![(field.to_owned(), keyword.to_owned())];
        assert_eq!(found(json!({ "version": "v1" })), []);
        assert_eq!(found(json!({})), expected("version", "required"));
        assert_eq!(found(json!({ "version": "hunter2" })), expected("version", "pattern"));
        assert_eq!(found(json!({ "version": "v1", "versoin": "v1" })), expected("versoin", "additionalProperties"));
        assert_eq!(found(json!({ "version": "v1", "nodes": ["hunter2"] })), expected("nodes[0]", "format"));
        assert_eq!(found(json!([])), expected("", "type"));
    }
}

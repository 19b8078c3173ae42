//! The API's operations, read from its OpenAPI document so that tests cover new operations automatically.

use std::collections::BTreeSet;

use gpuaas_model::Permission;
use http::Method;
use serde_json::{Map, Value, json};

/// A well-formed id that nothing has.
pub(crate) const UNUSED_ID: &str = "0198c0de-0000-7000-8000-000000000000";

/// One operation as the OpenAPI document describes it.
pub(crate) struct Operation {
    pub(crate) name: String,
    pub(crate) method: Method,
    /// The path with its parameters in braces.
    pub(crate) template: String,
    /// The permission that the operation needs; absent if the document says `none`.
    pub(crate) needs: Option<Permission>,
    /// The error codes that it may return.
    pub(crate) errors: BTreeSet<String>,
    pub(crate) takes_project: bool,
    pub(crate) supports_if_match: bool,
    /// The schemas of its query parameters, by name.
    pub(crate) query: Map<String, Value>,
    /// The schema of its request body.
    pub(crate) body: Option<Value>,
}

/// Returns all operations of the document.
pub(crate) fn operations() -> Vec<Operation> {
    let document = include_str!("../../../../docs/openapi.json");
    let document: Value = serde_json::from_str(document).expect("JSON");
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, described) in item.as_object().expect("operations") {
            operations.push(read(&document, path, method, described));
        }
    }
    operations
}

fn read(document: &Value, path: &str, method: &str, described: &Value) -> Operation {
    let parameters = described["parameters"].as_array().cloned().unwrap_or_default();
    let in_query = parameters.iter().filter(|of| of["in"] == "query");
    let query: Map<String, Value> = in_query
        .map(|of| (of["name"].as_str().expect("a name").to_owned(), resolved(document, &of["schema"])))
        .collect();
    let permission = described["x-permission"].as_str().expect("every operation declares its permission");
    let codes = described["x-errors"].as_array().expect("codes").iter();
    let body = described.pointer("/requestBody/content/application~1json/schema");
    let body = body.map(|body| resolved(document, body));
    Operation {
        name: described["operationId"].as_str().expect("a name").to_owned(),
        method: method.to_uppercase().parse().expect("a method"),
        template: path.to_owned(),
        needs: permission.parse().ok(),
        errors: codes.map(|code| code.as_str().expect("a code").to_owned()).collect(),
        takes_project: query.contains_key("project"),
        supports_if_match: parameters.iter().any(|of| of["$ref"].as_str().is_some_and(|of| of.ends_with("/IfMatch"))),
        query,
        body,
    }
}

/// Returns the schema without references, with the first of its alternatives.
fn resolved(document: &Value, schema: &Value) -> Value {
    if let Some(reference) = schema["$ref"].as_str() {
        return resolved(document, document.pointer(&reference[1..]).expect("a schema"));
    }
    if let Some(alternatives) = schema["oneOf"].as_array() {
        let first = alternatives.iter().find(|of| of["type"] != "null");
        return resolved(document, first.expect("a schema that is not null"));
    }
    let mut schema = schema.clone();
    for property in schema["properties"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        *property = resolved(document, property);
    }
    schema
}

impl Operation {
    /// Returns true if the method is not GET.
    pub(crate) fn mutates(&self) -> bool {
        self.method != Method::GET
    }

    /// Returns its path with each parameter replaced by `part` of its name.
    pub(crate) fn path(&self, part: impl Fn(&str) -> String) -> String {
        let parts = self.template.split('/').map(|text| {
            text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).map_or_else(|| text.to_owned(), &part)
        });
        parts.collect::<Vec<_>>().join("/")
    }

    /// Returns its path with an id that nothing has for each parameter.
    pub(crate) fn path_with_unused_ids(&self) -> String {
        self.path(|_| UNUSED_ID.to_owned())
    }

    /// Returns the schemas of its body's fields, by name.
    pub(crate) fn fields(&self) -> Map<String, Value> {
        self.body.as_ref().and_then(|body| body["properties"].as_object()).cloned().unwrap_or_default()
    }

    /// Returns a valid body with only the required fields.
    pub(crate) fn valid_body(&self) -> Map<String, Value> {
        self.body.as_ref().map(valid_object).unwrap_or_default()
    }
}

fn valid_object(schema: &Value) -> Map<String, Value> {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    required.map(|name| (name.to_owned(), valid_value(name, &schema["properties"][name]))).collect()
}

fn valid_value(name: &str, schema: &Value) -> Value {
    match name {
        "role" => json!("viewer"),
        "state" => json!("staged"),
        "source" => json!("/nowhere/at/all"),
        _ if schema["type"] == "integer" => json!(1),
        _ if schema["type"] == "object" => Value::Object(valid_object(schema)),
        _ if schema["enum"].is_array() => schema["enum"][0].clone(),
        _ if schema["pattern"] == "^[0-9a-f]{64}$" => json!("0".repeat(64)),
        _ if schema["format"] == "uuid" => json!(UNUSED_ID),
        _ => json!("nobody"),
    }
}

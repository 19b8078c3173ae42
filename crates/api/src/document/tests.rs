use std::collections::BTreeSet;

use gpuaas_app_rke2::Rke2;
use gpuaas_model::{Code, LINE_FORMAT};
use gpuaas_planner::App;
use serde_json::json;

use super::*;

fn document_json() -> Value {
    document(&[Rke2::default().manifest()])
}

/// Returns the schema, or those of its alternatives, without references.
fn alternatives<'a>(document: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let schema = schema["$ref"].as_str().map_or(schema, |of| document.pointer(&of[1..]).unwrap());
    match schema["oneOf"].as_array() {
        Some(parts) => parts.iter().flat_map(|part| alternatives(document, part)).collect(),
        None => vec![schema],
    }
}

/// Returns method, path and description of every operation.
fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths
        .flat_map(|(path, item)| {
            item.as_object().unwrap().iter().map(move |(method, of)| (method.as_str(), path.as_str(), of))
        })
        .collect()
}

#[test]
fn operation_documents_exactly_the_statuses_of_its_codes() {
    let document = document_json();
    for (method, path, operation) in operations(&document) {
        let codes: Vec<Code> = operation["x-errors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|code| code.as_str().unwrap().parse().unwrap())
            .collect();
        let mut wanted: BTreeSet<String> = codes.iter().map(|code| code.status().to_string()).collect();
        wanted.insert("431".to_owned());
        let responses = operation["responses"].as_object().unwrap();
        let documented: BTreeSet<String> =
            responses.keys().filter(|status| *status >= &"400".to_owned()).cloned().collect();
        assert_eq!(documented, wanted, "{method} {path}");
        for status in ["429", "500", "503"] {
            assert!(documented.contains(status), "{method} {path} lacks {status}");
        }
    }
}

#[test]
fn every_reference_resolves() {
    fn dangling(document: &Value, part: &Value) -> Vec<String> {
        let reference = part["$ref"].as_str().filter(|of| document.pointer(&of[1..]).is_none());
        let below = part.as_object().into_iter().flat_map(|of| of.values());
        let below = below.chain(part.as_array().into_iter().flatten());
        reference.map(str::to_owned).into_iter().chain(below.flat_map(|of| dangling(document, of))).collect()
    }
    let document = document_json();
    assert_eq!(dangling(&document, &document), Vec::<String>::new());
}

#[test]
fn problem_response_lists_its_codes() {
    let document = document_json();
    let problem = &document["components"]["responses"]["unauthenticated"];
    let codes = problem.pointer("/content/application~1problem+json/schema/allOf/1/properties/code/enum");
    assert_eq!(codes, Some(&serde_json::json!(["unauthenticated"])));
    assert!(problem["headers"]["WWW-Authenticate"].is_object() && problem["headers"]["Correlation-Id"].is_object());
}

#[test]
fn path_and_query_parameters_are_bounded() {
    let document = document_json();
    for (method, path, operation) in operations(&document) {
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        for parameter in parameters.filter(|of| of["in"] == "path" || of["in"] == "query") {
            let schema = alternatives(&document, &parameter["schema"])[0];
            let is_bounded = |schema: &Value| match schema["type"].as_str() {
                Some("string") => ["enum", "format", "pattern", "maxLength"].iter().any(|by| !schema[by].is_null()),
                Some("integer") => schema["maximum"].is_number() && schema["minimum"].is_number(),
                Some("boolean") => true,
                _ => false,
            };
            let bounded = match schema["type"].as_str() {
                Some("array") => schema["maxItems"].is_number() && is_bounded(&schema["items"]),
                _ => is_bounded(schema),
            };
            assert!(bounded, "{method} {path}: {parameter}");
        }
    }
}

#[test]
fn request_bodies_deny_unknown_fields() {
    let document = document_json();
    let mut bodies = 0;
    for (method, path, operation) in operations(&document).into_iter().filter(|(.., of)| of["requestBody"].is_object())
    {
        let schema = operation.pointer("/requestBody/content/application~1json/schema").unwrap();
        for schema in alternatives(&document, schema) {
            assert_eq!(schema["additionalProperties"], false, "{method} {path}");
            bodies += 1;
        }
    }
    assert!(bodies >= 9, "{bodies}");
}

#[test]
fn texts_of_bodies_and_queries_are_bounded() {
    /// Operations whose texts only programs read: agents send them, and the limits of the node channel check them.
    const MACHINE_OPERATIONS: [&str; 1] = ["enroll"];
    let document = document_json();
    let mut lines = 0;
    for (method, path, operation) in operations(&document) {
        let schema = operation.pointer("/requestBody/content/application~1json/schema").unwrap_or(&Value::Null);
        let bodies = alternatives(&document, schema).into_iter();
        let fields = bodies.flat_map(|body| body["properties"].as_object().into_iter().flatten());
        let fields =
            fields.flat_map(|(name, field)| [(name.as_str(), field), (name.as_str(), &field["additionalProperties"])]);
        let parameters = operation["parameters"].as_array().into_iter().flatten().filter(|of| of["in"] == "query");
        let parameters = parameters.map(|of| (of["name"].as_str().unwrap(), alternatives(&document, &of["schema"])[0]));
        for (name, text) in fields.chain(parameters).filter(|(_, of)| of["type"].to_string().contains("\"string\"")) {
            let is_checked = ["enum", "pattern", "format"].iter().any(|by| !text[by].is_null());
            let is_for_machines = MACHINE_OPERATIONS.iter().any(|of| operation["operationId"] == *of);
            assert!(is_checked || is_for_machines, "{method} {path}: {name} needs an enum, a pattern or a format");
            lines += usize::from(text["format"] == LINE_FORMAT);
        }
    }
    assert!(lines >= 12, "{lines}");
}

/// Calls `check` with name and schema of every property of the document.
fn for_each_property(value: &Value, owner: &str, check: &mut impl FnMut(&str, &str, &Value)) {
    for (name, part) in value.as_object().into_iter().flatten().filter(|(name, _)| *name != "examples") {
        if name == "properties" {
            part.as_object().unwrap().iter().for_each(|(name, schema)| check(owner, name, schema));
        }
        let owner = if owner.is_empty() { name } else { owner };
        for_each_property(part, owner, check);
    }
    value.as_array().into_iter().flatten().for_each(|part| for_each_property(part, owner, check));
}

#[test]
fn times_are_date_times_and_states_are_enumerations() {
    /// Properties with one of a few values.
    const CLOSED: [&str; 15] = [
        "action",
        "actor_type",
        "clock",
        "connectivity",
        "health",
        "kind",
        "lifecycle",
        "recovery",
        "result",
        "role",
        "roles",
        "section",
        "severity",
        "state",
        "permissions",
    ];
    /// A type of file system that a kernel names, and a number.
    const OPEN: [(&str, &str); 2] = [("FileSystem", "kind"), ("EnrollmentRequest", "clock")];
    let document = document_json();
    let (mut times, mut states) = (0, 0);
    for_each_property(&document["components"]["schemas"], "", &mut |owner, name, schema| {
        let schema = if schema["items"].is_null() { schema } else { &schema["items"] };
        if name == "at" || name.ends_with("_at") || name.ends_with("since") {
            assert_eq!(schema["format"], "date-time", "{owner}.{name}: {schema}");
            times += 1;
        }
        if CLOSED.contains(&name) && !OPEN.contains(&(owner, name)) {
            let parts = alternatives(&document, schema);
            let is_closed = parts.iter().all(|of| of["enum"].is_array() || of["type"] == "null");
            assert!(is_closed && !parts.is_empty(), "{owner}.{name}: {schema}");
            states += 1;
        }
    });
    assert!(times >= 30 && states >= 30, "{times} {states}");
    assert_eq!(document["components"]["schemas"]["Section"]["enum"], json!(crate::views::SECTIONS));
}

/// Returns the components that are bodies of requests, or else of successful responses.
fn bodies(document: &Value) -> BTreeSet<String> {
    let bodies = operations(document).into_iter().flat_map(|(.., operation)| {
        let responses = operation["responses"].as_object().unwrap().iter();
        let succeeded = responses.filter(|(status, _)| status.starts_with('2')).map(|(_, response)| response);
        succeeded.chain([&operation["requestBody"]]).map(|of| &of["content"]["application/json"]["schema"])
    });
    let bodies = bodies.filter(|schema| !schema.is_null());
    bodies.map(|schema| schema["$ref"].as_str().unwrap_or_else(|| panic!("{schema}")).to_owned()).collect()
}

#[test]
fn every_body_has_a_valid_example() {
    let document = document_json();
    let mut examples = 0;
    for body in bodies(&document).into_iter().chain(["#/components/schemas/Problem".to_owned()]) {
        let whole = json!({ "$ref": body, "components": document["components"] });
        let validator = jsonschema::options().should_validate_formats(true).build(&whole).unwrap();
        let schema = document.pointer(&body[1..]).unwrap();
        for schema in alternatives(&document, schema) {
            let example = &schema["examples"][0];
            assert!(example.is_object(), "{body} has no example");
            let errors: Vec<String> = validator.iter_errors(example).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{body}: {errors:?}");
            // Schemas of responses are open: a new field is no break.
            let unknown = example.as_object().unwrap().keys().find(|name| schema["properties"][name].is_null());
            assert_eq!(unknown, None, "{body}");
            examples += 1;
        }
    }
    assert!(examples >= 60, "{examples}");
}

#[test]
fn bodies_are_typed_by_app_and_kind() {
    let document = document_json();
    let schemas = &document["components"]["schemas"];
    for (body, app) in
        [("Deploy", "Rke2Deploy"), ("AddMembers", "Rke2AddMembers"), ("StartOperation", "Rke2StartOperation")]
    {
        let component = format!("#/components/schemas/{app}");
        let discriminator = json!({ "propertyName": "app", "mapping": { "rke2": component } });
        assert_eq!(schemas[body]["discriminator"], discriminator);
        assert_eq!(schemas[body]["oneOf"], json!([{ "$ref": component }]));
    }
    assert_eq!(schemas["Rke2Placement"], Rke2::default().manifest().placement_schema);
    let kinds: Vec<&String> =
        schemas["Rke2StartOperation"]["discriminator"]["mapping"].as_object().unwrap().keys().collect();
    let expected = [
        "drain_member",
        "reconcile",
        "remove_member",
        "repair",
        "replace_member",
        "restore",
        "start",
        "stop",
        "uncordon_member",
        "upgrade",
    ];
    assert_eq!(kinds, expected);
    assert_eq!(schemas["Rke2Upgrade"]["properties"]["kind"]["enum"], json!(["upgrade"]));
}

#[test]
fn lists_are_paged() {
    /// Lists that stay short without pages: the catalog is compiled in, and operators create keys one at a time.
    const SHORT: [&str; 3] = ["list_apps", "list_authorities", "list_signing_keys"];
    let document = document_json();
    let is_list = |operation: &Value| {
        let schema = operation.pointer("/responses/200/content/application~1json/schema/$ref");
        schema.and_then(Value::as_str).is_some_and(|schema| schema.starts_with("#/components/schemas/List_"))
    };
    let mut lists = 0;
    for (method, path, operation) in operations(&document).into_iter().filter(|(.., of)| is_list(of)) {
        let takes = |name: &str| {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            parameters.into_iter().any(|of| of["in"] == "query" && of["name"] == name)
        };
        let is_short = SHORT.iter().any(|short| operation["operationId"] == *short);
        let is_paged = takes("limit") && (takes("cursor") || takes("after"));
        assert!(is_paged || is_short, "{method} {path} has no pages");
        lists += 1;
    }
    assert!(lists >= 15, "{lists}");
}

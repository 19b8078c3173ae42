//! Free text from callers: no field of the OpenAPI document that takes a line accepts an invisible character.

use gpuaas_model::LINE_FORMAT;
use http::Method;
use serde_json::{Map, Value, json};

use super::{JSON, Target, assert_documented, lists::escaped};
use crate::{
    operations::{Operation, operations},
    raw::HttpResponse,
};

/// Refused texts, each with the part of the refusal that names the character.
const BAD: [(&str, &str); 9] = [
    ("ops\u{202e}nimda", "character 4 is U+202E"),
    ("o\u{200b}ps", "character 2 is U+200B"),
    ("ops\u{2066}", "character 4 is U+2066"),
    ("\u{feff}ops", "character 1 is U+FEFF"),
    ("o\u{2028}ps", "character 2 is U+2028"),
    ("o\u{e000}ps", "character 2 is U+E000"),
    ("ops\u{3164}", "character 4 is U+3164"),
    (" ops", "character 1 is U+0020"),
    ("\u{3000}", "character 1 is U+3000"),
];

/// A line whose characters are all accepted.
const GOOD: &str = "Zoë 安娜 🚀 أحمد";

/// Returns bodies of an operation, each with `text` in one of the fields that take a line: the field's name, and the body.
fn bodies(operation: &Operation, text: &str) -> Vec<(String, Map<String, Value>)> {
    let mut bodies = Vec::new();
    for (name, schema) in operation.fields() {
        let mut body = operation.valid_body();
        // A reason is accepted only together with `force`.
        if operation.fields().contains_key("force") {
            body.insert("force".to_owned(), json!(true));
        }
        if schema["format"] == LINE_FORMAT {
            body.insert(name.clone(), json!(text));
            bodies.push((name, body));
        } else if schema["additionalProperties"]["format"] == LINE_FORMAT {
            body.insert(name.clone(), json!({ "key": text }));
            bodies.push((format!("{name}.key"), body));
        }
    }
    bodies
}

fn assert_names_field(answer: &HttpResponse, (status, code): (u16, &str), field: &str, expected: &str, case: &str) {
    assert_eq!((answer.status, answer.code()), (status, code), "{case}: {answer:?}");
    assert_eq!(answer.body["field"], field, "{case}: {answer:?}");
    assert!(answer.body["detail"].as_str().is_some_and(|detail| detail.contains(expected)), "{case}: {answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invisible_characters_are_refused_in_every_line_field() {
    let target = Target::start().await;
    let before = target.snapshot().await;
    let mut fields = 0;
    for operation in &operations() {
        for (text, message) in BAD {
            for (field, body) in bodies(operation, text) {
                let case = format!("{} {field} = {text:?}", operation.name);
                let sent = Value::Object(body).to_string();
                let answer = target.send(&operation.method, &target.path(operation), &[JSON], sent).await;
                assert_names_field(&answer, (422, "field_invalid"), &field, message, &case);
                assert_documented(&answer, operation, &case);
            }
            for (name, _) in operation.query.iter().filter(|(_, schema)| schema["format"] == LINE_FORMAT) {
                let path = format!("{}?{name}={}", target.path(operation), escaped(text));
                let answer = target.send(&operation.method, &path, &[], "").await;
                assert_names_field(
                    &answer,
                    (400, "query_invalid"),
                    name,
                    message,
                    &format!("{} {name}", operation.name),
                );
            }
        }
        fields += bodies(operation, GOOD).len();
    }
    assert!(fields >= 8, "{fields}");
    assert_eq!(target.snapshot().await, before);
    let body = json!({ "name": GOOD, "role": "viewer", "project": "ours" }).to_string();
    let made = target.send(&Method::POST, "/api/v1/tokens", &[JSON], body).await;
    assert_eq!((made.status, &made.body["token"]["name"]), (201, &json!(GOOD)), "{made:?}");
}

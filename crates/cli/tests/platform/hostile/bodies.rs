//! Malformed request bodies, field values, content types and methods.

use http::Method;
use serde_json::{Map, Value, json};

use super::{JSON, Target, assert_documented};
use crate::operations::{Operation, operations};

/// Fields that rows have and that no request may set.
const HIDDEN: [&str; 14] = [
    "id",
    "state",
    "generation",
    "revision",
    "observed_generation",
    "project_id",
    "epoch",
    "created_at",
    "lifecycle",
    "health",
    "sha256",
    "secret",
    "__proto__",
    "$ref",
];

/// A body and the answer that it must get.
struct Case {
    what: String,
    body: Vec<u8>,
    status: u16,
    code: &'static str,
    field: Option<String>,
}

impl Case {
    fn invalid(what: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self { what: what.into(), body: body.into(), status: 400, code: "body_invalid", field: None }
    }

    fn with_field(self, field: &str) -> Self {
        Self { field: Some(field.to_owned()), ..self }
    }
}

fn with(body: &Map<String, Value>, field: &str, value: Value) -> Vec<u8> {
    let mut body = body.clone();
    body.insert(field.to_owned(), value);
    Value::Object(body).to_string().into_bytes()
}

/// Like [`with`], with a value as text that no JSON library writes.
fn with_text(body: &Map<String, Value>, field: &str, value: &str) -> Vec<u8> {
    let text = String::from_utf8(with(body, field, json!("PUT-IT-HERE"))).expect("a text");
    text.replace("\"PUT-IT-HERE\"", value).into_bytes()
}

fn cases(operation: &Operation) -> Vec<Case> {
    let sound = operation.valid_body();
    // Deeper than any parser accepts, and within the size limit of every operation.
    let deep = "[".repeat(5_000) + &"]".repeat(5_000);
    let mut cases = vec![
        Case { status: 413, code: "body_too_large", ..Case::invalid("10 MB", vec![b' '; 10 * 1_024 * 1_024]) },
        Case { status: 413, code: "body_too_large", ..Case::invalid("1 byte too long", vec![b' '; 1_024 * 1_024 + 1]) },
        Case::invalid("invalid UTF-8", b"{\"name\":\"\xff\xfe\"}".to_vec()),
        Case::invalid("nested 5,000 deep", with_text(&sound, "deep", &deep)),
        Case::invalid("open 2,500 deep", "{\"a\":".repeat(2_500)),
        Case::invalid("a repeated key", r#"{"again":1,"again":2}"#),
        Case::invalid("half a document", "{\"name\":"),
        Case::invalid("two documents", "{}{}"),
        Case::invalid("a list", "[]"),
        Case::invalid("a list of fields", r#"["a","b","c"]"#),
        Case::invalid("null", "null"),
        Case::invalid("a text", "\"text\""),
        Case::invalid("zero bytes", "\0\0\0"),
        Case::invalid("not a number", r#"{"a":NaN}"#),
    ];
    for hidden in HIDDEN.iter().filter(|hidden| !operation.fields().contains_key(**hidden)) {
        let body = with(&sound, hidden, json!("x"));
        cases.push(Case::invalid(format!("the hidden field {hidden}"), body).with_field(hidden));
    }
    for (name, schema) in operation.fields() {
        cases.extend(field_cases(&sound, &name, &schema));
    }
    cases
}

fn is_of_type(schema: &Value, name: &str) -> bool {
    schema["type"] == name || schema["type"].as_array().is_some_and(|types| types.iter().any(|of| of == name))
}

fn field_cases(sound: &Map<String, Value>, name: &str, schema: &Value) -> Vec<Case> {
    let mut cases = Vec::new();
    if is_of_type(schema, "integer") {
        for number in ["-1", "1e400", "18446744073709551616", "1.5", "\"7\"", "[]"] {
            let body = with_text(sound, name, number);
            let about = if number == "1e400" { "" } else { name };
            cases.push(Case::invalid(format!("{name} = {number}"), body).with_field(about));
        }
    }
    if is_of_type(schema, "string") {
        for value in [json!(7), json!([]), json!({}), json!(true)] {
            cases.push(Case::invalid(format!("{name} = {value}"), with(sound, name, value)).with_field(name));
        }
        let twice = format!(r#"{{"{name}":"a","{name}":"b"}}"#);
        cases.push(Case::invalid(format!("{name} twice"), twice));
    }
    cases
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_bodies_change_nothing() {
    let target = Target::start().await;
    let before = target.snapshot().await;
    let mut tried = 0;
    for operation in operations().iter().filter(|operation| operation.mutates()) {
        let path = target.path(operation);
        for case in cases(operation) {
            let answer = target.send(&operation.method, &path, &[JSON], case.body.clone()).await;
            let context = format!("{} with {}: {answer:?}", operation.name, case.what);
            assert_eq!((answer.status, answer.code()), (case.status, case.code), "{context}");
            assert_documented(&answer, operation, &case.what);
            if let Some(field) = case.field.filter(|field| !field.is_empty()) {
                assert_eq!(answer.body["field"], field, "{context}");
            }
            tried += 1;
        }
    }
    println!("    hostile bodies: {tried} cases");
    assert!(tried > 500, "{tried}");
    assert_eq!(target.snapshot().await, before);
}

/// Texts that are valid as no name and that could harm a page, path or database.
fn bad_texts() -> Vec<String> {
    let fixed =
        ["", "<script>alert(1)</script>", "a\u{0}b", "a\nb", "\u{1b}[31m", "..", "../../etc/passwd", "' OR 1=1 --"];
    let long = ["a".repeat(10_000), "ü".repeat(5_000), "\u{202e}gnp".to_owned()];
    fixed.into_iter().map(str::to_owned).chain(long).collect()
}

/// Returns whether the document excludes the text from the field; control characters count as excluded in every field. An accepted text is
/// stored and shown verbatim.
fn is_refused_by(schema: &Value, text: &str) -> bool {
    let is_long = schema["maxLength"].as_u64().is_some_and(|most| text.chars().count() as u64 > most);
    let is_short = schema["minLength"].as_u64().is_some_and(|least| (text.chars().count() as u64) < least);
    // Every pattern in the document accepts words only.
    let is_no_word = !schema["pattern"].is_null() && !text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_long || is_short || is_no_word || text.chars().any(char::is_control)
}

/// Returns values of the schema's type that the document excludes.
fn excluded_by(schema: &Value) -> Vec<Value> {
    if is_of_type(schema, "string") {
        return bad_texts().into_iter().filter(|text| is_refused_by(schema, text)).map(Value::from).collect();
    }
    let mut numbers = vec![json!(u64::MAX)];
    numbers.extend(schema["maximum"].as_u64().map(|most| json!(most + 1)));
    numbers.extend(schema["minimum"].as_u64().and_then(|least| least.checked_sub(1)).map(Value::from));
    if is_of_type(schema, "integer") { numbers } else { Vec::new() }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_excluded_by_the_document_are_refused() {
    let target = Target::start().await;
    let before = target.snapshot().await;
    let mut tried = 0;
    for operation in operations().iter().filter(|operation| operation.mutates()) {
        let (path, sound) = (target.path(operation), operation.valid_body());
        for (name, schema) in operation.fields() {
            for value in excluded_by(&schema) {
                let answer = target.send(&operation.method, &path, &[JSON], with(&sound, &name, value.clone())).await;
                let case = format!("{name} = {}", value.to_string().chars().take(20).collect::<String>());
                assert!((400..500).contains(&answer.status), "{} {case}: {answer:?}", operation.name);
                assert_documented(&answer, operation, &case);
                assert!(answer.body.to_string().len() < 30_000, "{} {case}", operation.name);
                tried += 1;
            }
        }
    }
    println!("    hostile values: {tried} cases");
    assert!(tried > 150, "{tried}");
    assert_eq!(target.snapshot().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_name_is_refused_with_its_field() {
    let target = Target::start().await;
    for path in ["/api/v1/projects", "/api/v1/nodes"] {
        for text in bad_texts() {
            let answer = target.send(&Method::POST, path, &[JSON], json!({ "name": text }).to_string()).await;
            assert_eq!((answer.status, answer.code()), (422, "field_invalid"), "{path} {answer:?}");
            assert_eq!(answer.body["field"], "name");
        }
    }
    for (field, value) in [
        ("region", json!("a\u{0}b")),
        ("region", json!("a".repeat(64))),
        ("labels", json!({ "a b": "c" })),
        ("labels.a", json!({ "a": "\u{7}" })),
        ("labels", Value::Object((0..65).map(|number| (format!("l{number}"), json!("x"))).collect())),
    ] {
        let mut body = json!({ "name": "gpu-77" });
        body[field.split('.').next().expect("a name")] = value;
        let answer = target.send(&Method::POST, "/api/v1/nodes", &[JSON], body.to_string()).await;
        assert_eq!((answer.code(), answer.body["field"].as_str()), ("field_invalid", Some(field)), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_content_type_or_method_is_refused_on_every_path() {
    let target = Target::start().await;
    let keyed = [JSON, ("idempotency-key", "of-an-operation")];
    let made = target.send(&Method::POST, "/api/v1/projects", &keyed, json!({ "name": "keyed" }).to_string()).await;
    assert_eq!(made.status, 201, "{made:?}");
    let before = target.snapshot().await;
    let operations = operations();
    for operation in operations.iter().filter(|operation| operation.body.is_some()) {
        let body = Value::Object(operation.valid_body()).to_string();
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/jsonx",
            "multipart/form-data; boundary=x",
            "",
        ] {
            let answer =
                target.send(&operation.method, &target.path(operation), &[("content-type", kind)], body.clone()).await;
            assert_eq!(
                (answer.status, answer.code()),
                (415, "media_type_unsupported"),
                "{} {answer:?}",
                operation.name
            );
            assert_documented(&answer, operation, kind);
        }
    }
    for operation in &operations {
        let known: Vec<&Method> =
            operations.iter().filter(|other| other.template == operation.template).map(|other| &other.method).collect();
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::TRACE, Method::OPTIONS] {
            if known.contains(&&method) {
                continue;
            }
            // The key is already used, but a request that matches no operation is not a replay.
            let answer = target.send(&method, &target.path(operation), &keyed, "{}").await;
            assert_eq!((answer.status, answer.code()), (405, "method_not_allowed"), "{method} {answer:?}");
            let allowed = answer.headers["allow"].to_str().expect("a text");
            assert!(known.iter().all(|method| allowed.contains(method.as_str())), "{method} {answer:?}");
        }
    }
    assert_eq!(target.snapshot().await, before);
}

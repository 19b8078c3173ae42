//! Queries with cursors, limits and filters that the control plane never issued or does not take.

use http::Method;
use serde_json::Value;

use super::{JSON, Target, assert_documented};
use crate::operations::{Operation, UNUSED_ID, operations};

pub(super) fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Returns percent-encoded values that a parameter of that schema does not take.
fn refused_by(schema: &Value) -> Vec<String> {
    const TEXTS: [&str; 5] = ["garbage", "../..", "' OR 1=1 --", "\u{0}", "<b>"];
    const NUMBERS: [&str; 8] = ["-1", "x", "", "1e3", "1.5", "99999999999999999999", "0x10", "\u{0}"];
    let long = "a".repeat(10_000);
    let values: Vec<&str> = match schema["type"].as_str() {
        Some("integer") if schema["minimum"] == 1 => [NUMBERS.as_slice(), &["0", "1001"]].concat(),
        Some("integer") => NUMBERS.to_vec(),
        Some("boolean") => vec!["maybe", "1", "TRUE"],
        _ if schema["format"] == "uuid" || schema["enum"].is_array() => [TEXTS.as_slice(), &[&long]].concat(),
        _ => vec!["\u{0}", "a\nb", &long],
    };
    values.into_iter().map(escaped).collect()
}

async fn ask(target: &Target, operation: &Operation, query: &str) -> crate::raw::HttpResponse {
    let path = format!("{}?{query}", target.path(operation));
    target.send(&Method::GET, &path, &[], "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_query_parameters_are_refused() {
    let target = Target::start().await;
    let mut tried = 0;
    for operation in operations().iter().filter(|operation| !operation.mutates()) {
        for (name, schema) in &operation.query {
            for value in refused_by(schema) {
                let case = format!("{name}={}", &value[..value.len().min(40)]);
                let answer = ask(&target, operation, &format!("{name}={value}")).await;
                // A value that names an object names none that exists. For a path under an object, the object is looked up before the query
                // is checked.
                let names_one =
                    schema["pattern"].is_string() || name == "operation" || operation.template.contains('{');
                let is_absent = names_one && answer.code() == "not_found";
                assert!(is_absent || answer.code() == "query_invalid", "{} {case}: {answer:?}", operation.name);
                assert_documented(&answer, operation, &case);
                if !names_one {
                    assert_eq!(answer.body["field"], *name, "{} {case}: {answer:?}", operation.name);
                }
                tried += 1;
            }
            let twice = ask(&target, operation, &format!("{name}=1&{name}=2")).await;
            assert_eq!((twice.status, twice.code()), (400, "query_invalid"), "{} {name} twice", operation.name);
        }
        for unknown in ["colour=red", "id=1", "__proto__=1", "%00=1", "access_token=x"] {
            let answer = ask(&target, operation, unknown).await;
            assert_eq!((answer.status, answer.code()), (400, "query_invalid"), "{} {unknown}", operation.name);
            assert_documented(&answer, operation, unknown);
            tried += 1;
        }
        if operation.query.contains_key("cursor") && !operation.template.contains("{workload}") {
            let whose = if operation.takes_project { "&project=ours" } else { "" };
            let position = ask(&target, operation, &format!("cursor={UNUSED_ID}&limit=1{whose}")).await;
            assert_eq!(position.status, 200, "any id is a valid cursor: {position:?}");
        }
    }
    println!("    hostile queries: {tried} cases");
    assert!(tried > 150, "{tried}");
    assert_eq!(target.send(&Method::GET, "/api/v1/whoami", &[], "").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn mutation_with_an_unknown_parameter_is_refused_and_does_nothing() {
    let target = Target::start().await;
    let before = target.snapshot().await;
    for operation in operations().iter().filter(|operation| operation.mutates()) {
        let path = format!("{}?dry-run=true", target.path(operation));
        let body =
            if operation.body.is_some() { Value::Object(operation.valid_body()).to_string() } else { String::new() };
        let answer = target.send(&operation.method, &path, &[JSON], body).await;
        assert_eq!((answer.status, answer.code()), (400, "query_invalid"), "{}: {answer:?}", operation.name);
        assert_eq!(answer.body["field"], "dry-run", "{}", operation.name);
        assert_documented(&answer, operation, "dry-run");
    }
    assert_eq!(target.snapshot().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_path_parameters_find_nothing() {
    let target = Target::start().await;
    let before = target.snapshot().await;
    let long = "a".repeat(10_000);
    for operation in operations().iter().filter(|operation| operation.template.contains('{')) {
        for part in ["%00", "..", "%2e%2e%2f%2e%2e", "%3Cb%3E", "%27%20OR%201=1", "%F0%9F%92%A9", &long] {
            let path = operation.path(|_| part.to_owned());
            let body = Value::Object(operation.valid_body()).to_string();
            let body = if operation.body.is_some() { body } else { String::new() };
            let answer = target.send(&operation.method, &path, &[super::JSON], body).await;
            let case = format!("{} {}: {answer:?}", operation.name, &path[..path.len().min(80)]);
            assert!([400, 404].contains(&answer.status), "{case}");
            assert_documented(&answer, operation, &case);
        }
        let unreadable = operation.path(|_| "%FF".to_owned());
        let answer = target.send(&operation.method, &unreadable, &[super::JSON], "{}").await;
        assert_eq!((answer.status, answer.code()), (400, "query_invalid"), "{}: {answer:?}", operation.name);
        assert_documented(&answer, operation, "%FF");
    }
    assert_eq!(target.snapshot().await, before);
}

//! The tasks' parameters, their secrets, and results of hostile nodes.

use gpuaas_wire::{
    bounds::SENTENCE_BYTES_MAX,
    task::{GENERAL_TASKS, NamedSecrets, TaskOutcome},
};
use serde_json::{Value, json};

use super::*;

const LONG: usize = 1_000_000;
const ONE: &str = "0198c0de-7a3b-7c11-9b54-0242ac120001";
const TWO: &str = "0198c0de-7a3b-7c11-9b54-0242ac120002";

fn definition(task: TaskType) -> &'static TaskDefinition {
    TASKS.iter().find(|of| of.task_type == task).unwrap()
}

fn named_secrets(task: TaskType, params: &Value) -> NamedSecrets {
    (definition(task).named_secrets)(params)
}

fn checked(task: TaskType, result: Value) -> Result<Value, String> {
    match (TaskOutcome::Succeeded { result }).checked_for(definition(task))? {
        TaskOutcome::Succeeded { result } => Ok(result),
        TaskOutcome::Failed { failure } => Err(failure.message),
    }
}

/// Asserts that parameters with an additional field are refused.
fn check_unknown_fields_are_refused<T: TaskSpec>(good: Value, seen: &mut Vec<TaskType>) {
    assert!(serde_json::from_value::<T>(good.clone()).is_ok(), "{}: {good}", T::TYPE);
    for place in objects(&good, "") {
        let mut more = good.clone();
        more.pointer_mut(&place).unwrap()["also"] = json!(1);
        assert!(serde_json::from_value::<T>(more).is_err(), "{} takes an unknown parameter {place}/also", T::TYPE);
    }
    seen.push(T::TYPE);
}

/// Returns the JSON pointers of the objects within a value, itself included.
fn objects(value: &Value, at: &str) -> Vec<String> {
    let within = |key: &dyn std::fmt::Display, inner| objects(inner, &format!("{at}/{key}"));
    match value {
        Value::Object(fields) => {
            let nested = fields.iter().flat_map(|(key, inner)| within(key, inner));
            std::iter::once(at.to_owned()).chain(nested).collect()
        }
        Value::Array(items) => items.iter().enumerate().flat_map(|(key, inner)| within(&key, inner)).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn unknown_parameters_of_every_rke2_type_are_refused() {
    let secret = json!({ "secret_id": TWO, "sha256": "00" });
    let artifact = json!({ "name": "a", "sha256": "00", "size_bytes": 7 });
    let mut seen = Vec::new();
    check_unknown_fields_are_refused::<Rke2Install>(
        json!({ "version": "v1", "archive": artifact, "images": [artifact] }),
        &mut seen,
    );
    check_unknown_fields_are_refused::<Rke2Configure>(
        json!({ "role": "server", "config": "c", "token": secret, "agent_token": secret }),
        &mut seen,
    );
    check_unknown_fields_are_refused::<Rke2Start>(
        json!({
            "role": "server", "give_up_on": [{ "text": "t", "times": 1 }], "restarts_max": 3,
            "exceptions": [{ "text": "t", "from": "f", "until": "u" }],
        }),
        &mut seen,
    );
    check_unknown_fields_are_refused::<Rke2Stop>(json!({ "role": "server", "kill_all": true }), &mut seen);
    check_unknown_fields_are_refused::<Rke2Enable>(json!({ "role": "server" }), &mut seen);
    let expected = json!({ "config_sha256": "00", "token_sha256": "00", "agent_token_sha256": "00" });
    check_unknown_fields_are_refused::<Rke2Observe>(json!({ "role": "server", "expected": expected }), &mut seen);
    check_unknown_fields_are_refused::<Rke2Uninstall>(json!({}), &mut seen);
    check_unknown_fields_are_refused::<Rke2KubeconfigRead>(json!({ "secret_id": TWO }), &mut seen);
    for TaskDefinition { task_type, .. } in TASKS {
        assert!(seen.contains(task_type), "the parameters of {task_type} are not checked here");
    }
}

#[test]
fn every_added_field_belongs_to_an_existing_schema() {
    for &TaskDefinition { task_type: task, newest, added, .. } in TASKS {
        for (since, field) in added {
            assert!((2..=newest).contains(since), "{task}: {field} is of schema {since}, the newest is {newest}");
        }
        for version in 2..=newest {
            assert!(added.iter().any(|(since, _)| *since == version), "{task}: schema {version} adds no field");
        }
    }
}

fn ids(texts: &[&str]) -> Vec<SecretId> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn secrets_to_read_and_to_deposit_are_separate() {
    let secret = |id: &str| json!({ "secret_id": id, "sha256": "0".repeat(64) });
    let configure = json!({ "role": "server", "config": "", "token": secret(ONE), "agent_token": secret(TWO) });
    let named = named_secrets(TaskType::Rke2Configure, &configure);
    assert_eq!(named, NamedSecrets { reads: ids(&[ONE, TWO]), deposits: Vec::new() });
    let read = json!({ "secret_id": ONE });
    let named = named_secrets(TaskType::Rke2KubeconfigRead, &read);
    assert_eq!(named, NamedSecrets { reads: Vec::new(), deposits: ids(&[ONE]) });
}

#[test]
fn parameters_of_another_type_name_no_secret() {
    let read = json!({ "secret_id": ONE });
    for &TaskDefinition { task_type: task, named_secrets, .. } in GENERAL_TASKS.iter().chain(TASKS) {
        let named = named_secrets(&read);
        assert_eq!(named != NamedSecrets::default(), task == TaskType::Rke2KubeconfigRead, "{task}");
    }
}

fn unit() -> Value {
    json!({ "unit": "rke2-server", "active": "active", "sub": "running", "result": "success", "n_restarts": 0, "exec_main_status": 0, "since": 1 })
}

#[test]
fn long_texts_of_every_rke2_result_are_truncated_and_sanitized() {
    let line = json!({ "at": 1, "text": "l" });
    let deviation = json!({ "kind": "foreign_config", "text": "f" });
    let observed = json!({
        "unit": unit(), "version_line": "v", "listening": [], "journal": [line], "deviations": [deviation],
    });
    let uninstalled = json!({ "exit_status": 0, "found": ["/etc/cni"], "removed": ["/etc/cni"] });
    for (task, good, pointers) in [
        (TaskType::Rke2Install, json!({ "version_line": "v", "files_written": 1 }), vec!["/version_line"]),
        (TaskType::Rke2Observe, observed, vec!["/version_line", "/journal/0/text", "/deviations/0/text"]),
        (TaskType::Rke2Uninstall, uninstalled, vec!["/found/0", "/removed/0"]),
    ] {
        checked(task, good.clone()).unwrap_or_else(|why| panic!("{task}: {why}"));
        for pointer in pointers {
            let mut odd = good.clone();
            *odd.pointer_mut(pointer).unwrap() = json!(format!("\u{1b}[2J{}", "x".repeat(LONG)));
            let kept = checked(task, odd).unwrap_or_else(|why| panic!("{task} {pointer}: {why}"));
            let text = kept.pointer(pointer).unwrap().as_str().unwrap();
            let has_escape = text.contains('\u{1b}');
            assert!(text.len() <= SENTENCE_BYTES_MAX && !has_escape, "{task} {pointer}: {} bytes", text.len());
        }
    }
    for field in ["unit", "active", "sub", "result"] {
        for bad in ["x".repeat(LONG), "a\u{0}b".to_owned()] {
            let mut odd = unit();
            odd[field] = json!(bad);
            let observed = json!({ "unit": odd, "listening": [], "journal": [] });
            let started = json!({ "unit": odd, "ready_after_ms": 1 });
            for (task, result) in [(TaskType::Rke2Observe, observed), (TaskType::Rke2Start, started)] {
                assert!(checked(task, result).is_err(), "{task} takes {} bytes as {field}", bad.len());
            }
        }
    }
    for digest in ["0".repeat(LONG), format!("{}\u{1b}", "0".repeat(63))] {
        let stored = json!({ "secret": { "secret_id": ONE, "sha256": digest } });
        assert!(checked(TaskType::Rke2KubeconfigRead, stored).is_err(), "{} bytes are no digest", digest.len());
    }
}

#[test]
fn invalid_ca_digest_is_refused() {
    let started = |digest: &str| json!({ "unit": unit(), "ready_after_ms": 1, "ca_sha256": digest });
    assert!(checked(TaskType::Rke2Start, started(&"0f".repeat(32))).is_ok());
    for odd in ["", "::node:other", &"0F".repeat(32), &"0f".repeat(33)] {
        assert!(checked(TaskType::Rke2Start, started(odd)).is_err(), "{odd}");
    }
}

#[test]
fn lists_of_a_hostile_node_are_refused_when_they_are_too_long() {
    let deviation = json!({ "kind": "token_changed", "text": "t" });
    let observed = |count| json!({ "listening": [], "journal": [], "deviations": vec![deviation.clone(); count] });
    assert!(checked(TaskType::Rke2Observe, observed(Rke2Observation::DEVIATIONS_MAX)).is_ok());
    assert!(checked(TaskType::Rke2Observe, observed(Rke2Observation::DEVIATIONS_MAX + 1)).is_err());
    let odd = json!({ "listening": [], "journal": [], "config_sha256": "::" });
    assert!(checked(TaskType::Rke2Observe, odd).is_err(), "what is no digest is refused");
    for list in ["found", "removed"] {
        let uninstalled = |count| json!({ "exit_status": 0, list: vec!["/etc/cni"; count] });
        assert!(checked(TaskType::Rke2Uninstall, uninstalled(Rke2Uninstalled::FOUND_MAX)).is_ok());
        assert!(checked(TaskType::Rke2Uninstall, uninstalled(Rke2Uninstalled::FOUND_MAX + 1)).is_err(), "{list}");
    }
}

#[test]
fn results_of_older_agents_are_read() {
    let started = json!({ "unit": unit(), "ready_after_ms": 1 });
    assert_eq!(serde_json::from_value::<Rke2Started>(started).unwrap().started_at, None);
    let observed = json!({ "listening": [6_443], "journal": [] });
    assert_eq!(serde_json::from_value::<Rke2Observation>(observed).unwrap().deviations, []);
    let uninstalled: Rke2Uninstalled = serde_json::from_value(json!({ "exit_status": 0 })).unwrap();
    assert_eq!(uninstalled, Rke2Uninstalled { exit_status: Some(0), ..Rke2Uninstalled::default() });
}

use gpuaas_model::{CUT_MARK, Code, TaskType, Timestamp};
use serde_json::json;

use super::*;
use crate::task::{GENERAL_TASKS, TaskFailure};

const LONG: usize = 1_000_000;

fn definition(task: TaskType) -> &'static TaskDefinition {
    GENERAL_TASKS.iter().find(|of| of.task_type == task).unwrap()
}

fn checked(task: TaskType, result: Value) -> Result<Value, String> {
    match (TaskOutcome::Succeeded { result }).checked_for(definition(task))? {
        TaskOutcome::Succeeded { result } => Ok(result),
        TaskOutcome::Failed { failure } => Err(failure.message),
    }
}

fn facts() -> Value {
    json!({
        "hostname": "gpu-7", "machine_id": "ab", "boot_id": "cd", "os": "Debian", "kernel": "6.1", "arch": "x86_64",
        "cpus": 8, "memory_bytes": 1, "addresses": ["10.0.0.7"], "sandbox": false,
        "disks": [{ "path": "/var/lib", "size_bytes": 1, "free_bytes": 1 }],
    })
}

#[test]
fn unknown_result_fields_are_dropped() {
    let mut more = facts();
    more["also"] = json!("x".repeat(LONG));
    assert_eq!(checked(TaskType::Inspect, more), Ok(facts()));
    assert_eq!(checked(TaskType::Noop, json!({ "also": "x".repeat(LONG) })), Ok(json!({})));
    assert!(checked(TaskType::Inspect, json!({})).is_err());
}

#[test]
fn oversized_text_is_truncated_and_oversized_structure_refused() {
    for field in ["hostname", "os", "kernel", "arch"] {
        let mut huge = facts();
        huge[field] = json!("x".repeat(LONG));
        let kept = checked(TaskType::Inspect, huge).unwrap();
        let text = kept[field].as_str().unwrap();
        assert!(text.len() == NAME_BYTES_MAX && text.ends_with(CUT_MARK), "{field}");
    }
    let odd = [
        ("machine_id", json!("x".repeat(LONG))),
        ("boot_id", json!("a\u{0}b")),
        ("addresses", json!(vec!["10.0.0.7"; LIST_MAX + 1])),
        ("addresses", json!(["gpu-8.example"])),
        ("disks", json!(vec![facts()["disks"][0].clone(); LIST_MAX + 1])),
    ];
    for (field, value) in odd {
        let mut huge = facts();
        huge[field] = value;
        assert!(checked(TaskType::Inspect, huge).is_err(), "{field}");
    }
}

#[test]
fn reports_are_bounded_in_items_and_in_text() {
    let item = json!({ "kind": "path", "what": "/x".repeat(LONG) });
    let kept = checked(TaskType::Residue, json!({ "items": [item] })).unwrap();
    assert_eq!(kept["items"][0]["what"].as_str().unwrap().len(), SENTENCE_BYTES_MAX);
    assert!(checked(TaskType::Residue, json!({ "items": vec![item; ResidueReport::ITEMS_MAX + 1] })).is_err());
    let finding = json!({ "check": "port_taken", "severity": "blocking", "detail": "x".repeat(LONG), "fix": "y" });
    let kept = checked(TaskType::Preflight, json!({ "passed": 1, "findings": [finding] })).unwrap();
    assert_eq!(kept["findings"][0]["detail"].as_str().unwrap().len(), SENTENCE_BYTES_MAX);
    let many = vec![finding; PreflightReport::FINDINGS_MAX + 1];
    assert!(checked(TaskType::Preflight, json!({ "passed": 1, "findings": many })).is_err());
}

/// Valid results of the types with possibly long texts, each with the JSON pointers of those texts.
fn results_with_text() -> Vec<(TaskType, Value, Vec<&'static str>)> {
    vec![
        (TaskType::Inspect, facts(), vec!["/disks/0/path"]),
        (TaskType::Residue, json!({ "items": [], "unseen": ["u"] }), vec!["/unseen/0"]),
    ]
}

#[test]
fn long_texts_of_every_general_result_are_truncated_and_sanitized() {
    for (task, good, pointers) in results_with_text() {
        checked(task, good.clone()).unwrap_or_else(|why| panic!("{task}: {why}"));
        for pointer in pointers {
            let mut odd = good.clone();
            *odd.pointer_mut(pointer).unwrap() = json!(format!("\u{1b}[2J{}", "x".repeat(LONG)));
            let kept = checked(task, odd).unwrap();
            let text = kept.pointer(pointer).unwrap().as_str().unwrap();
            assert!(text.len() <= SENTENCE_BYTES_MAX && !text.contains('\u{1b}'), "{task} {pointer}: {}", text.len());
        }
    }
    let many = json!({ "items": [], "unseen": vec!["u"; ResidueReport::UNSEEN_MAX + 1] });
    assert!(checked(TaskType::Residue, many).is_err());
}

#[test]
fn machine_facts_are_bounded_and_optional() {
    let long = || json!("x".repeat(LONG));
    let gpu = || json!({ "bus": long(), "pci_id": long(), "model": long() });
    let mut reported = facts();
    reported["machine"] = json!({
        "cpu_model": long(), "product": long(), "gpu_driver": long(), "gpus": [gpu()],
        "file_systems": [{ "path": long(), "device": long(), "kind": long() }],
        "data_disk": { "folder": long(), "path": long() }, "default_route": { "gateway": long(), "link": long() },
        "name_servers": [long()], "clock": { "kept": "not_yet", "by": long() }, "also": long(),
    });
    reported["preflight"] = json!({ "passed": 1, "findings": [
        { "check": "leftover", "severity": "warning", "detail": "d", "fix": "f", "evidence": long() },
    ] });
    let kept = checked(TaskType::Inspect, reported.clone()).unwrap();
    assert!(kept.to_string().len() < 8_192, "{} bytes", kept.to_string().len());
    for (field, many) in [
        ("gpus", vec![gpu(); MachineFacts::GPUS_MAX + 1]),
        ("file_systems", vec![json!({}); MachineFacts::FILE_SYSTEMS_MAX + 1]),
        ("name_servers", vec![json!("x"); MachineFacts::NAME_SERVERS_MAX + 1]),
    ] {
        let mut odd = reported.clone();
        odd["machine"][field] = json!(many);
        assert!(checked(TaskType::Inspect, odd).is_err(), "{field}");
    }
    let older: Inspection = serde_json::from_value(facts()).unwrap();
    assert_eq!((older.machine, older.preflight), (None, None));
}

#[test]
fn fix_result_is_bounded() {
    let applied = json!({ "name": "x".repeat(LONG), "before": "1", "now": "2" });
    let fixed = |times| json!({ "path": "/etc/x", "changed": true, "applied": vec![&applied; times] });
    assert!(checked(TaskType::Fix, fixed(1)).unwrap().to_string().len() < 1_024);
    assert!(checked(TaskType::Fix, fixed(Fixed::APPLIED_MAX + 1)).is_err());
}

#[test]
fn failure_keeps_its_last_journal_lines_and_the_start_of_its_message() {
    let line = |number: i64| JournalExcerpt { at: Timestamp::from_millis(number), text: "x".repeat(LONG) };
    let journal = (0..1_000).map(line).collect();
    let failure = TaskFailure { journal, ..TaskFailure::new(Code::HostFailed, "x".repeat(LONG)) };
    let taken = (TaskOutcome::Failed { failure }).checked_for(definition(TaskType::Noop)).unwrap();
    let TaskOutcome::Failed { failure } = taken else { panic!("{taken:?}") };
    assert_eq!(failure.message.len(), TaskFailure::MESSAGE_BYTES_MAX);
    assert_eq!(failure.journal.len(), TaskFailure::JOURNAL_LINES_MAX);
    assert_eq!(failure.journal.last().unwrap().at, Timestamp::from_millis(999));
    assert!(failure.journal.iter().all(|line| line.text.len() == SENTENCE_BYTES_MAX));
}

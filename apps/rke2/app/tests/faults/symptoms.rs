//! Each symptom is found among ordinary lines in every spelling, with its code, class and next action.

use gpuaas_app_rke2::{FAULTS, FaultRow};
use gpuaas_model::{FaultClass, Lifecycle};

use crate::{
    AGENT, SERVER,
    cases::{CASES, Case},
    diagnose, ordinary,
};

/// Ordinary lines around a symptom.
const LINES: usize = 2_000;

/// A spelling of a message: what a program and its way into the journal make of it.
type Spelling = fn(&str) -> Vec<String>;

const SPELLINGS: [(&str, Spelling); 6] = [
    ("logrus", |message| vec![format!("time=\"2026-11-02T03:04:05Z\" level=info msg={message:?}")]),
    ("klog", |message| vec![format!("E1102 03:04:05.123456    1234 file.go:12] {message}")]),
    ("JSON of etcd", |message| {
        vec![format!("{{\"level\":\"warn\",\"ts\":\"2026-11-02T03:04:05.000Z\",\"error\":{message:?}}}")]
    }),
    ("console", |message| vec![format!("FATA[0107] {message}")]),
    ("escaped twice", |message| {
        let inner = format!("last error: {message:?}");
        vec![format!("time=\"2026-11-02T03:04:05Z\" level=error msg={inner:?}")]
    }),
    ("wrapped", |message| {
        let line = format!("Nov 02 03:04:05 gpu-2 rke2[12]: {message}");
        let middle = line.len() - message.len() / 2;
        let middle = (middle..line.len()).find(|at| line.is_char_boundary(*at)).expect("an end");
        vec![line[..middle].to_owned(), line[middle..].to_owned()]
    }),
];

/// The class and the next command once the workload runs, for an agent.
fn expected(code: &str) -> (FaultClass, &'static str) {
    const REPAIR: (FaultClass, &str) =
        (FaultClass::Repairable, "gpuaas workload repair train --scope member --member agent-1");
    const RESUME: (FaultClass, &str) = (FaultClass::Manual, "gpuaas workload resume train");
    match code {
        "rke2_node_password_rejected"
        | "rke2_certificate_expired"
        | "rke2_token_malformed"
        | "rke2_token_ca_mismatch"
        | "rke2_bootstrap_token_mismatch"
        | "rke2_runtime_image_unavailable"
        | "rke2_wrong_interface"
        | "rke2_address_in_use"
        | "rke2_image_missing"
        | "rke2_ca_of_earlier_cluster"
        | "rke2_token_rejected"
        | "rke2_network_not_ready"
        | "rke2_apiserver_outdated"
        | "rke2_etcd_not_ready" => REPAIR,
        "rke2_etcd_corrupt" => (FaultClass::Terminal, "gpuaas workload decommission train"),
        _ => RESUME,
    }
}

fn row_of(case: &Case) -> &'static FaultRow {
    let (code, position) = case.row;
    FAULTS.iter().filter(|row| row.code == code).nth(position).expect("the case names a row of the table")
}

/// The journal with the case in this spelling, between ordinary lines.
fn journal(case: &Case, spelling: Spelling, seed: u64, count: usize) -> Vec<String> {
    let mut lines = ordinary::lines(seed, count);
    let mut shown: Vec<String> = case.before.iter().map(|line| (*line).to_owned()).collect();
    for _ in 0..case.times {
        shown.extend(spelling(case.message));
    }
    let at = count / 2 + usize::try_from(seed).expect("small") % (count / 4);
    lines.splice(at..at, shown);
    lines
}

fn check(case: &Case, spelling: (&str, Spelling), seed: u64, count: usize) {
    let (code, _) = case.row;
    let lines = journal(case, spelling.1, seed, count);
    let fault = diagnose(AGENT, Lifecycle::Running, &lines);
    let what = format!("{:?} as {} with seed {seed}", case.message, spelling.0);
    assert_eq!(fault.code, code, "{what}: {:?}", fault.evidence);
    let (class, command) = expected(code);
    assert_eq!((fault.class, fault.next.command.as_deref()), (class, Some(command)), "{what}");
    let plain = fault.evidence.expect("evidence").text.replace('\\', "");
    let row = row_of(case);
    assert!(row.symptoms.iter().any(|symptom| plain.contains(symptom)), "{what}: the evidence is {plain}");
}

#[test]
fn each_symptom_is_found_within_two_thousand_ordinary_lines() {
    for (seed, case) in (1..).zip(CASES) {
        let spelling = SPELLINGS[usize::try_from(seed).expect("small") % SPELLINGS.len()];
        check(case, spelling, seed, LINES);
    }
}

#[test]
fn each_symptom_is_found_in_every_spelling() {
    for (seed, case) in (1..).zip(CASES) {
        for spelling in SPELLINGS {
            check(case, spelling, seed, 40);
        }
    }
}

#[test]
fn each_row_and_each_symptom_has_a_case_that_names_it() {
    for row in FAULTS {
        for symptom in row.symptoms {
            let names = |case: &&Case| row_of(case) == row && case.message.contains(symptom);
            assert!(CASES.iter().any(|case| names(&case)), "{}: {symptom:?} has no case", row.code);
        }
    }
    for number in 1..=25 {
        assert!(FAULTS.iter().any(|row| row.survey.contains(&number)), "failure {number} of the survey has no row");
    }
}

#[test]
fn ordinary_lines_show_no_failure() {
    for seed in 1..=20 {
        let lines = ordinary::lines(seed, LINES);
        for member in [SERVER, AGENT] {
            assert_eq!(diagnose(member, Lifecycle::Running, &lines).code, "rke2_not_ready", "seed {seed}");
        }
    }
}

#[test]
fn cure_of_a_server_is_a_repair_of_the_control_plane() {
    let lines = ["level=info msg=\"Waiting for etcd server to become available\""];
    let next = diagnose(SERVER, Lifecycle::Running, &lines).next;
    assert_eq!(next.command.as_deref(), Some("gpuaas workload repair train --scope control-plane"));
}

#[test]
fn cure_of_a_first_deployment_is_never_a_repair() {
    for case in CASES {
        let lines = journal(case, SPELLINGS[0].1, 3, 40);
        for lifecycle in [Lifecycle::Requested, Lifecycle::Deploying, Lifecycle::Failed, Lifecycle::Cancelled] {
            let fault = diagnose(AGENT, lifecycle, &lines);
            let command = fault.next.command.expect("a command");
            let wanted = ["gpuaas workload resume train", "gpuaas workload decommission train"];
            assert!(wanted.contains(&command.as_str()), "{}: {command}", fault.code);
        }
    }
    let lines = ["level=fatal msg=\"bootstrap data already found and encrypted with different token\""];
    let fault = diagnose(SERVER, Lifecycle::Deploying, &lines);
    assert_eq!(fault.class, FaultClass::Manual, "no repair removes the data of another cluster");
    assert_eq!(fault.next.text, "ask the operator to remove the earlier cluster on gpu-1, then resume");
}

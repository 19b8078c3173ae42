//! Healthy and ambiguous starts: no line of them ends the wait early, and none of them is given a name.

use gpuaas_app_rke2::Rke2;
use gpuaas_app_rke2_tasks::Rke2Start;
use gpuaas_model::{Code, Lifecycle, OperationKind};
use gpuaas_planner::{App, OperationRequest};

use crate::{AGENT, SERVER, diagnose_failure, failure, ordinary, start_step, workload};

/// A start: its lines with the number of times that each is repeated, one second apart, and whether it comes up.
struct Start {
    name: &'static str,
    lines: &'static [(&'static str, usize)],
    comes_up: bool,
}

const UP: (&str, usize) = (r#"time="x" level=info msg="rke2 is up and running""#, 1);
const BEGIN: (&str, usize) = (r#"time="x" level=info msg="Starting rke2 v1.36.3+rke2r1 (0)""#, 1);
const READYZ: &str = r#"time="x" level=info msg="Waiting to retrieve kube-proxy configuration; server is not ready: https://127.0.0.1:9345/v1-rke2/readyz: 500 Internal Server Error""#;
const ETCD: &str = r#"time="x" level=info msg="Waiting for etcd server to become available""#;
const REFUSED: &str = r#"{"level":"warn","error":"transport: Error while dialing: dial tcp 127.0.0.1:2379: connect: connection refused"}"#;
const NOT_SYNCED: &str =
    r#"time="x" level=info msg="Pod for etcd not synced (no current running pod found), retrying""#;
const APISERVER: &str =
    r#"time="x" level=info msg="Pod for kube-apiserver not synced (pod sandbox has changed), retrying""#;
const CNI: &str =
    r#"E1102 03:04:05.1 9 kubelet.go:3] "Container runtime network not ready" err="cni plugin not initialized""#;
const WRAPPER: &str =
    r#"time="x" level=info msg="Waiting to retrieve agent configuration; server is not ready: runtime core not ready""#;
const NOT_YET: &str = r#"time="x" level=info msg="Waiting to retrieve agent configuration; server is not ready: https://127.0.0.1:6444/v1-rke2/config: 401 Unauthorized""#;
const SLOW: &str =
    r#"{"level":"warn","msg":"apply request took too long","took":"131.8ms","expected-duration":"100ms"}"#;
const RESET: &str = r#"time="x" level=info msg="Starting etcd for new cluster, cluster-reset=true""#;
const NOT_A_MEMBER: &str =
    r#"time="x" level=info msg="Failed to test etcd connection: this server is a not a member of the etcd cluster""#;
const CA_CERTS: &str =
    r#"time="x" level=error msg="failed to get CA certs: Get \"https://127.0.0.1:6444/cacerts\": EOF""#;
const UNKNOWN_CA: &str =
    r#"time="x" level=warning msg="Failed to connect to proxy: x509: certificate signed by unknown authority""#;
const NO_ROUTE: &str =
    r#"time="x" level=info msg="error dialing backend: dial tcp 192.0.2.2:10250: connect: no route to host""#;
const OLD_MANAGER: &str = "Failed to get unit file state for nm-cloud-setup.service: No such file or directory";

const STARTS: [Start; 20] = [
    Start { name: "readyz is 500 for 35 s", lines: &[BEGIN, (READYZ, 7), UP], comes_up: true },
    Start { name: "etcd comes late", lines: &[BEGIN, (ETCD, 12), UP], comes_up: true },
    Start { name: "etcd refuses at first", lines: &[BEGIN, (REFUSED, 30), UP], comes_up: true },
    Start { name: "etcd's pod is not synced", lines: &[BEGIN, (NOT_SYNCED, 6), UP], comes_up: true },
    Start { name: "restart with a new apiserver", lines: &[BEGIN, (APISERVER, 9), (READYZ, 9), UP], comes_up: true },
    Start { name: "network comes last", lines: &[BEGIN, UP, (CNI, 40)], comes_up: true },
    Start { name: "agent waits for its server", lines: &[BEGIN, (WRAPPER, 4), UP], comes_up: true },
    Start { name: "server does not know tokens yet", lines: &[BEGIN, (NOT_YET, 3), UP], comes_up: true },
    Start { name: "slow disk at first", lines: &[BEGIN, (SLOW, 8), UP], comes_up: true },
    Start {
        name: "second start after a reset",
        lines: &[BEGIN, (RESET, 1), (NOT_A_MEMBER, 9), BEGIN, (ETCD, 2), UP],
        comes_up: true,
    },
    Start { name: "CA is fetched at the third try", lines: &[BEGIN, (CA_CERTS, 2), UP], comes_up: true },
    Start { name: "tunnel before the certificates", lines: &[BEGIN, (UNKNOWN_CA, 2), UP], comes_up: true },
    Start { name: "other node boots", lines: &[BEGIN, (NO_ROUTE, 10), UP], comes_up: true },
    Start { name: "no nm-cloud-setup", lines: &[(OLD_MANAGER, 1), BEGIN, UP], comes_up: true },
    Start {
        name: "all at once",
        lines: &[BEGIN, (REFUSED, 9), (READYZ, 7), (NOT_SYNCED, 4), (SLOW, 9), UP],
        comes_up: true,
    },
    Start { name: "only 35 s so far", lines: &[BEGIN, (READYZ, 35)], comes_up: false },
    Start { name: "etcd for a minute so far", lines: &[BEGIN, (ETCD, 60)], comes_up: false },
    Start { name: "network so far", lines: &[BEGIN, (CNI, 50)], comes_up: false },
    Start { name: "apiserver so far", lines: &[BEGIN, (APISERVER, 30), (READYZ, 30)], comes_up: false },
    Start { name: "nothing but ordinary lines", lines: &[BEGIN], comes_up: false },
];

/// The lines of a start, after ordinary lines.
fn lines(start: &Start) -> Vec<String> {
    let mut lines = ordinary::lines(9, 200);
    for (line, times) in start.lines {
        lines.extend(std::iter::repeat_n((*line).to_owned(), *times));
    }
    lines
}

/// Returns the text that would end the wait early, counted as the agent counts.
fn gives_up_on(task: &Rke2Start, lines: &[String]) -> Option<String> {
    let mut seen = vec![0; task.give_up_on.len()];
    let mut excepted = vec![false; task.exceptions.len()];
    for line in lines {
        for (exception, holds) in task.exceptions.iter().zip(&mut excepted) {
            *holds = exception.includes(line, *holds);
        }
        for (pattern, seen) in task.give_up_on.iter().zip(&mut seen) {
            let is_excepted = task
                .exceptions
                .iter()
                .zip(&excepted)
                .any(|(exception, holds)| *holds && exception.text == pattern.text);
            if line.contains(&pattern.text) && !is_excepted {
                *seen += 1;
                if *seen >= pattern.times {
                    return Some(pattern.text.clone());
                }
            }
        }
    }
    None
}

fn start_task(member: usize) -> Rke2Start {
    let workload = workload(Lifecycle::Deploying);
    let request = OperationRequest::of(OperationKind::Deploy);
    let params = Rke2::default().render(&start_step(&workload, member), &request, &workload).expect("rendered");
    serde_json::from_value(params).expect("the parameters of a start")
}

#[test]
fn healthy_start_is_waited_for() {
    for start in &STARTS {
        for member in [SERVER, AGENT] {
            assert_eq!(gives_up_on(&start_task(member), &lines(start)), None, "{}", start.name);
        }
    }
}

#[test]
fn healthy_start_is_given_no_name() {
    for start in &STARTS {
        // A start that came up may pass its deadline or exit for a reason of its own; one that did not is only judged at its deadline.
        let codes: &[Code] = if start.comes_up { &[Code::TaskTimedOut, Code::HostFailed] } else { &[Code::HostFailed] };
        for code in codes {
            for member in [SERVER, AGENT] {
                let fault = diagnose_failure(member, Lifecycle::Running, &failure(*code, &lines(start)));
                assert_eq!(fault.code, "rke2_not_ready", "{} {code}: {:?}", start.name, fault.evidence);
            }
        }
    }
}

#[test]
fn lines_of_healthy_starts_count_once_they_last_or_the_deadline_has_passed() {
    let code = |code, seconds| {
        let start = Start { name: "late", lines: &[BEGIN], comes_up: false };
        let mut lines = lines(&start);
        lines.extend(std::iter::repeat_n(READYZ.to_owned(), seconds));
        diagnose_failure(SERVER, Lifecycle::Deploying, &failure(code, &lines)).code
    };
    assert_eq!(code(Code::TaskTimedOut, 2), "rke2_etcd_not_ready", "the deadline decides");
    assert_eq!(code(Code::HostFailed, 120), "rke2_not_ready", "119 s");
    assert_eq!(code(Code::HostFailed, 121), "rke2_etcd_not_ready", "120 s");
}

#[test]
fn start_after_one_that_came_up_is_judged_by_its_own_lines() {
    let lines: Vec<&str> = [UP.0, BEGIN.0, READYZ, READYZ].to_vec();
    let fault = diagnose_failure(SERVER, Lifecycle::Running, &failure(Code::TaskTimedOut, &lines));
    assert_eq!(fault.code, "rke2_etcd_not_ready");
}

#[test]
fn wrong_token_ends_the_wait_and_an_unread_ca_does_not() {
    let mismatch = |hash: &str| {
        format!(
            "time=\"x\" level=error msg=\"token CA hash does not match the Cluster CA certificate hash: 8f != {hash}\""
        )
    };
    let task = start_task(AGENT);
    let wrong = vec![mismatch("55c1e0"); 2];
    assert!(gives_up_on(&task, &wrong).is_some());
    let unread = vec![mismatch("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"); 14];
    assert_eq!(gives_up_on(&task, &unread), None);
    let one_of_each = [unread[0].clone(), wrong[0].clone()];
    assert_eq!(gives_up_on(&task, &one_of_each), None, "the exception is one line long");
}

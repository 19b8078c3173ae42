//! The table of RKE2's failures: symptoms, code, class and next action. It is read from top to bottom; the first match wins.
//!
//! The table follows a survey of public issues; the numbers in comments are the rows of that survey. Symptoms match anywhere in a line and
//! at any level: several decisive lines have `level=info`.

use gpuaas_app_rke2_tasks::{GiveUp, GiveUpException};
use gpuaas_model::{Evidence, Fault, FaultClass, Name, NextAction};
use gpuaas_planner::MemberView;
use gpuaas_wire::task::{JournalExcerpt, TaskFailure};

/// A kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRow {
    /// Stable code with a page under `docs/errors/`.
    pub code: &'static str,
    /// Texts; a journal line with any of them indicates this failure.
    pub symptoms: &'static [&'static str],
    /// Span of the journal in which the symptoms do not count.
    pub except_during: Option<LogSpan>,
    /// Number of symptoms after which waiting longer is pointless; `None` if only the deadline decides.
    pub decisive_after: Option<u32>,
    /// Description of the failure.
    pub summary: &'static str,
    /// What a person does about it.
    pub remedy: Remedy,
}

/// A span of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSpan {
    /// Text in its first line.
    pub from: &'static str,
    /// Text in the first line after it.
    pub until: &'static str,
}

/// What a person does about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The tenant does this, and then resumes.
    ThenResume(&'static str),
    /// The operator does this on the node, because a tenant has no shell there; then the tenant resumes.
    AskOperator(&'static str),
    /// Resume, for this reason.
    Resume(&'static str),
    /// Decommission and deploy again, for this reason.
    Redeploy(&'static str),
    /// Read the member's log.
    ReadLog,
}

/// The member that a fault is about, and its machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    member: &'a str,
    machine: &'a str,
}

impl<'a> From<&'a MemberView> for Subject<'a> {
    fn from(member: &'a MemberView) -> Self {
        Self { member: &member.name, machine: member.machine.name.as_str() }
    }
}

/// A reset of the etcd cluster, until RKE2 starts again. A reset corrects the peer URL of a node whose address changed.
const RESET: LogSpan = LogSpan { from: "cluster-reset=true", until: "Starting rke2 " };

use Remedy::{AskOperator, ReadLog, Redeploy, Resume, ThenResume};

/// The kinds of failure that lines of the journal show. Kinds without such lines (a unit that loops, is late or was skipped, residue, a
/// blocked preflight, a service that is down) are separate constants.
pub const FAULTS: &[FaultRow] = &[
    // 1
    row(
        "rke2_node_password_rejected",
        &["Node password rejected"],
        Some(3),
        "another node used this name, or this node was reinstalled",
        ThenResume("remove the old KubeNode of that name"),
    ),
    // 2
    row(
        "rke2_duplicate_member",
        &["duplicate node name found"],
        Some(2),
        "the etcd cluster still lists a member of this name",
        ThenResume("remove the stale KubeNode"),
    ),
    // 4
    row(
        "rke2_token_ca_mismatch",
        &["token CA hash does not match"],
        Some(2),
        "the join token is for another cluster",
        Redeploy("a new deployment creates a new token"),
    ),
    // 5
    row(
        "rke2_bootstrap_token_mismatch",
        &["bootstrap data already found and encrypted with different token"],
        Some(1),
        "the node holds data of a cluster with another token",
        AskOperator("remove the earlier cluster"),
    ),
    // 6
    row(
        "rke2_config_mismatch",
        &["critical configuration value mismatch"],
        Some(1),
        "this server's settings differ from the cluster's",
        AskOperator("remove the settings of RKE2 that GPUaaS did not write"),
    ),
    // 9
    row(
        "rke2_not_a_member",
        &["is a not a member of the etcd cluster", "is not a member of the etcd cluster"],
        Some(1),
        "the node's address changed since it joined",
        AskOperator("restore the former address"),
    )
    .except_during(RESET),
    // 11
    row(
        "rke2_cluster_id_mismatch",
        &["cluster ID mismatch", "newer than datastore"],
        Some(2),
        "the node holds data of another cluster",
        AskOperator("remove the earlier cluster"),
    ),
    // 12, 13: the texts differ only at their end
    row(
        "rke2_clock_skew",
        &["is before"],
        None,
        "a certificate is not yet valid: a clock is wrong",
        AskOperator("set the clock by NTP"),
    ),
    row(
        "rke2_certificate_expired",
        &["is after"],
        None,
        "a certificate has expired",
        Resume("certificates are renewed when the service starts"),
    ),
    // 17
    row(
        "rke2_address_in_use",
        &["bind: address already in use"],
        Some(2),
        "a port that RKE2 needs is taken",
        AskOperator("stop the process that uses the port"),
    ),
    // 19
    row(
        "rke2_etcd_out_of_space",
        &["database space exceeded", "alarm:NOSPACE"],
        Some(1),
        "etcd has reached the quota of its database",
        AskOperator("compact and defragment etcd, and disarm its alarm (etcdctl alarm disarm)"),
    ),
    // 22
    row(
        "rke2_exec_forbidden",
        &["operation not permitted", "avc:  denied"],
        Some(2),
        "the host denies an operation that containers need",
        AskOperator("allow it in fapolicyd or SELinux"),
    ),
    // 23
    row(
        "rke2_kubelet_exited",
        &["Kubelet exited"],
        Some(2),
        "the kubelet exits right after its start",
        AskOperator("correct the argument that kubelet.log names"),
    ),
    // 24
    row(
        "rke2_network_not_ready",
        &["cni plugin not initialized"],
        None,
        "the node's network did not come up",
        ThenResume("find the cause in the logs of the member"),
    ),
    // 3, 8: these lines wrap many other causes, so they come late
    row(
        "rke2_server_unreachable",
        &["Failed to validate connection to cluster", "failed to get CA certs"],
        Some(15),
        "the node cannot reach its server",
        AskOperator("allow connections to port 9345 of the server"),
    ),
    row(
        "rke2_waiting_for_server",
        &["Waiting to retrieve agent configuration; server is not ready"],
        Some(20),
        "the server does not accept the node",
        ThenResume("see the logs of the server"),
    ),
    // 7
    row(
        "rke2_etcd_not_ready",
        &["Waiting for etcd server to become available", "Waiting for etcd"],
        None,
        "etcd does not become ready",
        ThenResume("see the logs of the server"),
    ),
];

/// The unit ends repeatedly without one of the lines above.
const CRASH_LOOP: FaultRow =
    row("rke2_crash_loop", &[], None, "the service exits repeatedly", ThenResume("find the cause in the logs"));
/// The deadline passed without one of the lines above.
const NOT_READY: FaultRow = row(
    "rke2_not_ready",
    &[],
    None,
    "the service did not become ready in time",
    ThenResume("find the cause in the logs"),
);
/// A condition of the unit prevented the start.
const SKIPPED: FaultRow = row(
    "rke2_start_skipped",
    &["Skipped due to 'exec-condition'"],
    None,
    "the other RKE2 service runs on this node",
    AskOperator("stop the other RKE2 service"),
);
/// An uninstall left residue.
pub(crate) const RESIDUE: FaultRow = row(
    "rke2_residue",
    &[],
    None,
    "the uninstall left residue, or some checks could not run",
    AskOperator("reset and reimage the machine"),
);
/// A preflight has blocking findings.
pub(crate) const PREFLIGHT: FaultRow = row(
    "rke2_preflight_blocked",
    &[],
    None,
    "the preflight has blocking findings",
    AskOperator("resolve the findings"),
);
/// The service of a ready member is down.
pub(crate) const SERVICE_DOWN: FaultRow = row("rke2_service_down", &[], None, "the service is down", ReadLog);

const fn row(
    code: &'static str,
    symptoms: &'static [&'static str],
    decisive_after: Option<u32>,
    summary: &'static str,
    remedy: Remedy,
) -> FaultRow {
    FaultRow { code, symptoms, except_during: None, decisive_after, summary, remedy }
}

impl FaultRow {
    const fn except_during(self, during: LogSpan) -> Self {
        Self { except_during: Some(during), ..self }
    }

    /// Returns the last line with a symptom outside the excepted span.
    fn symptom_in<'j>(&self, journal: &'j [JournalExcerpt]) -> Option<&'j JournalExcerpt> {
        let (mut excepted, mut found) = (false, None);
        for line in journal {
            if let Some(during) = self.except_during {
                excepted = line.text.contains(during.from) || excepted && !line.text.contains(during.until);
            }
            if !excepted && self.symptoms.iter().any(|symptom| line.text.contains(symptom)) {
                found = Some(line);
            }
        }
        found
    }

    /// Returns a fault of this kind for a member of `workload`.
    pub(crate) fn fault(&self, of: Subject<'_>, workload: &Name, evidence: Option<Evidence>) -> Fault {
        let next = match self.remedy {
            AskOperator(what) => NextAction::ask_operator(what, of.machine, workload),
            ThenResume(first) => NextAction::then_resume(first, workload),
            Resume(reason) => NextAction::resume(reason, workload),
            Redeploy(reason) => NextAction::redeploy(reason, workload),
            ReadLog => NextAction::read_log(workload, of.member),
        };
        Fault {
            code: self.code.to_owned(),
            // The platform does not repeat a start that failed in one of these ways: a person looks into it first.
            class: FaultClass::Manual,
            summary: format!("{}: {}", of.member, self.summary),
            evidence,
            next,
        }
    }
}

/// Returns the texts that end the wait for a unit early.
pub(crate) fn give_up_on() -> Vec<GiveUp> {
    let decisive = FAULTS.iter().filter_map(|row| row.decisive_after.map(|times| (row, times)));
    decisive
        .flat_map(|(row, times)| row.symptoms.iter().map(move |text| GiveUp { text: (*text).to_owned(), times }))
        .collect()
}

/// Returns the spans in which such texts do not count.
pub(crate) fn exceptions() -> Vec<GiveUpException> {
    let decisive = FAULTS.iter().filter(|row| row.decisive_after.is_some());
    let excepted = decisive.filter_map(|row| row.except_during.map(|during| (row, during)));
    let of_row = |(row, during): (&FaultRow, LogSpan)| {
        let exception = move |text: &&str| GiveUpException {
            text: (*text).to_owned(),
            from: during.from.to_owned(),
            until: during.until.to_owned(),
        };
        row.symptoms.iter().map(exception).collect::<Vec<_>>()
    };
    excepted.flat_map(of_row).collect()
}

/// Returns the fault of a failed start, with the line that shows it as evidence.
pub(crate) fn diagnose_start(failure: &TaskFailure, unit: &str, of: Subject<'_>, workload: &Name) -> Fault {
    let source = format!("journal {}", unit.trim_end_matches(".service"));
    let evidence = |text: &str, at| Some(Evidence::new(source.clone(), at, text));
    for row in FAULTS.iter().chain([&SKIPPED]) {
        if let Some(line) = row.symptom_in(&failure.journal) {
            return row.fault(of, workload, evidence(&line.text, Some(line.at)));
        }
    }
    let has_exited = failure.unit.as_ref().is_some_and(|unit| unit.n_restarts > 0 || unit.exec_main_status != 0);
    let error_line = failure
        .journal
        .iter()
        .rev()
        .find(|line| line.text.contains("level=fatal") || line.text.contains("level=error"));
    let line = error_line.or(failure.journal.last());
    let evidence = line.map_or_else(|| evidence(&failure.message, None), |line| evidence(&line.text, Some(line.at)));
    if has_exited { CRASH_LOOP } else { NOT_READY }.fault(of, workload, evidence)
}

#[cfg(test)]
mod tests {
    use gpuaas_model::{Code, Timestamp};
    use gpuaas_wire::task::UnitReport;

    use super::*;

    const AGENT: Subject<'_> = Subject { member: "agent-1", machine: "gpu-7" };

    fn train() -> Name {
        "train".parse().expect("a name")
    }

    fn failure(lines: &[&str]) -> TaskFailure {
        let at = Timestamp::from_millis(5);
        let journal = lines.iter().map(|text| JournalExcerpt { at, text: (*text).to_owned() }).collect();
        TaskFailure { journal, ..TaskFailure::new(Code::TaskTimedOut, "late") }
    }

    #[test]
    fn every_fault_is_recognized_by_each_of_its_symptoms() {
        for row in FAULTS {
            for symptom in row.symptoms {
                let line = format!("time=x level=info msg=\"{symptom} and more\"");
                let fault = diagnose_start(&failure(&[&line]), "rke2-agent.service", AGENT, &train());
                assert_eq!(fault.code, row.code, "{symptom}");
                assert!(fault.evidence.expect("a line").text.contains(symptom));
            }
        }
    }

    #[test]
    fn next_action_is_a_step_that_a_tenant_can_take() {
        // What only a person with a shell on the node, or with `gpuaas node`, can do or see.
        let of_operator = [
            "gpuaas node",
            " node",
            "machine",
            "process",
            "port ",
            "etcdctl",
            "clock",
            "address",
            "SELinux",
            "kubelet.log",
        ];
        for row in FAULTS.iter().chain([&CRASH_LOOP, &NOT_READY, &SKIPPED, &RESIDUE, &PREFLIGHT, &SERVICE_DOWN]) {
            let next = row.fault(AGENT, &train(), None).next;
            let command = next.command.expect("every fault of RKE2 has a command");
            let verb = command.split(' ').nth(2).expect("a verb").trim_end_matches('s');
            assert!(next.text.contains(verb), "{}: {:?} and {command}", row.code, next.text);
            match row.remedy {
                AskOperator(_) => {
                    let asks =
                        next.text.starts_with("ask the operator to ") && next.text.contains(" on gpu-7, then resume");
                    assert!(asks && command == "gpuaas workload resume train", "{}: {:?}", row.code, next.text);
                }
                ThenResume(_) | Resume(_) | Redeploy(_) | ReadLog => {
                    let beyond = of_operator.iter().find(|what| next.text.contains(**what));
                    assert_eq!(beyond, None, "{}: a tenant cannot: {:?}", row.code, next.text);
                }
            }
        }
    }

    #[test]
    fn wrapped_symptom_is_recognized() {
        let line =
            "Waiting to retrieve agent configuration; server is not ready: Node password rejected, duplicate hostname";
        assert_eq!(diagnose_start(&failure(&[line]), "u", AGENT, &train()).code, "rke2_node_password_rejected");
        let line = "Failed to validate connection to cluster at https://127.0.0.1:6444: token CA hash does not match the Cluster CA";
        assert_eq!(diagnose_start(&failure(&[line]), "u", AGENT, &train()).code, "rke2_token_ca_mismatch");
    }

    #[test]
    fn crash_loop_and_slow_start_are_distinguished_without_symptoms() {
        let silent = diagnose_start(&failure(&["not running in CIS mode"]), "u", AGENT, &train());
        assert_eq!(silent.code, "rke2_not_ready");
        let unit = UnitReport {
            unit: "u".into(),
            active: "activating".into(),
            sub: "auto-restart".into(),
            result: "exit-code".into(),
            n_restarts: 3,
            exec_main_status: 1,
            since: Timestamp::from_millis(1),
        };
        let looping = TaskFailure { unit: Some(Box::new(unit)), ..failure(&["level=fatal msg=boom"]) };
        let fault = diagnose_start(&looping, "u", AGENT, &train());
        assert_eq!(
            (fault.code.as_str(), fault.evidence.unwrap().text.as_str()),
            ("rke2_crash_loop", "level=fatal msg=boom")
        );
    }

    #[test]
    fn server_that_is_no_etcd_member_is_a_fault_except_during_a_reset() {
        let not_a_member = "Failed to test etcd connection: this server is a not a member of the etcd cluster. Found [n=https://192.0.2.1:2380]";
        let (start, reset) = ("Starting rke2 v1.36.3+rke2r1 (0)", "Starting etcd for new cluster, cluster-reset=true");
        let code = |lines: &[&str]| diagnose_start(&failure(lines), "rke2-server.service", AGENT, &train()).code;
        assert_eq!(code(&[start, not_a_member]), "rke2_not_a_member");
        assert_eq!(code(&[start, reset, not_a_member]), "rke2_not_ready");
        assert_eq!(
            code(&[start, reset, not_a_member, start, not_a_member]),
            "rke2_not_a_member",
            "the reset has ended"
        );
        for text in give_up_on().iter().filter(|text| not_a_member.contains(&text.text)) {
            let exception =
                exceptions().into_iter().find(|of| of.text == text.text).expect("agents must get the exception");
            assert!(exception.includes(reset, false) && exception.includes(not_a_member, true));
            assert!(!exception.includes(start, true) && !exception.includes(not_a_member, false));
        }
    }

    #[test]
    fn lines_of_a_healthy_start_never_match() {
        let healthy = [
            "level=warning msg=\"not running in CIS mode\"",
            "level=info msg=\"Waiting for etcd server to become available\"",
            "level=error msg=\"error syncing 'kube-system/rke2-canal'\"",
            "level=info msg=\"bootstrap key already exists\"",
        ];
        for line in healthy {
            assert!(give_up_on().iter().all(|text| !line.contains(&text.text)), "{line}");
        }
    }
}

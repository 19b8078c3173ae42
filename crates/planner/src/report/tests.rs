//! Every refusal of a report, and every combination of what the platform and a controller say.

use gpuaas_model::{MemberState, OperationKind, OperationState, Recovery, Timestamp};

use super::*;
use crate::test_views::{self, member};

const NOW: Timestamp = Timestamp::from_millis(7);

fn workload() -> WorkloadView {
    test_views::workload(vec![
        member("agent-1", 1, MemberState::Ready { since: NOW }),
        member("agent-2", 2, MemberState::Removed),
    ])
}

fn report() -> Report {
    Report {
        generation: 3,
        sequence: None,
        phase: Some("working".to_owned()),
        progress: Some(Progress { completed: 2, total: 5 }),
        members: vec![says(Health::Degraded)],
    }
}

fn says(health: Health) -> ReportedMember {
    let text = |text: &str| Some(text.to_owned());
    let (code, message, evidence) = (text("gpu_lost"), text("a GPU is gone"), text("Xid 79"));
    ReportedMember { member: "agent-1".to_owned(), health, code, message, evidence }
}

/// Checks a report on a running workload at generation 3.
fn check(report: &Report, last: Option<&LastReport>) -> Result<(), ReportRefusal> {
    let (workload, phases) = (workload(), ["working".to_owned(), "ready".to_owned()]);
    let lifecycle = Lifecycle::Running;
    report.check(&Subject { workload: &workload, lifecycle, generation: 3, phases: &phases, last })
}

/// The field that a refusal names, with `stale ` in front of it if the report is stale.
fn refused(report: &Report, last: Option<&LastReport>) -> String {
    match check(report, last).expect_err("it is refused") {
        ReportRefusal::Stale { field, .. } => format!("stale {field}"),
        ReportRefusal::Invalid { field, why, next } => {
            assert!(!why.is_empty() && !next.is_empty(), "{field}");
            field
        }
        ReportRefusal::Decommissioned(name) => panic!("{name} is running"),
    }
}

#[test]
fn report_of_another_generation_is_refused() {
    assert_eq!(check(&report(), None), Ok(()));
    assert_eq!(refused(&Report { generation: 2, ..report() }, None), "stale generation");
    assert_eq!(refused(&Report { generation: 4, ..report() }, None), "generation");
    let (workload, lifecycle) = (workload(), Lifecycle::Decommissioned);
    let ended = Subject { workload: &workload, lifecycle, generation: 3, phases: &[], last: None };
    let refused = report().check(&ended);
    assert_eq!(refused, Err(ReportRefusal::Decommissioned("train".parse().unwrap())));
}

#[test]
fn report_with_an_earlier_sequence_is_refused_within_its_generation() {
    let last = |generation, sequence, is_equal| LastReport { generation, sequence, is_equal };
    let with = |sequence| Report { sequence, ..report() };
    let fifth = last(3, Some(5), false);
    assert_eq!(refused(&with(Some(4)), Some(&fifth)), "stale sequence");
    assert_eq!(refused(&with(Some(5)), Some(&fifth)), "stale sequence", "another report with the same number");
    assert_eq!(refused(&with(None), Some(&fifth)), "sequence");
    assert_eq!(check(&with(Some(5)), Some(&last(3, Some(5), true))), Ok(()), "the same report again");
    assert_eq!(check(&with(Some(6)), Some(&fifth)), Ok(()));
    assert_eq!(
        check(&with(Some(1)), Some(&last(2, Some(5), false))),
        Ok(()),
        "the sequence starts again with each generation"
    );
    assert_eq!(check(&with(Some(1)), Some(&last(3, None, false))), Ok(()));
}

#[test]
fn report_about_something_that_does_not_exist_names_the_field() {
    let with = |change: &dyn Fn(&mut Report)| {
        let mut report = report();
        change(&mut report);
        refused(&report, None)
    };
    assert_eq!(with(&|of| of.phase = Some("dreaming".to_owned())), "phase");
    assert_eq!(with(&|of| of.progress = Some(Progress { completed: 6, total: 5 })), "progress.completed");
    assert_eq!(with(&|of| of.members[0].member = "agent-9".to_owned()), "members[0].member");
    assert_eq!(with(&|of| of.members[0].member = "agent-2".to_owned()), "members[0].member", "removed");
    assert_eq!(with(&|of| of.members.push(says(Health::Healthy))), "members[1].member", "twice");
    assert_eq!(with(&|of| of.members[0].health = Health::None), "members[0].health");
    for code in ["", "Gpu", "9gpu", "gpu lost", "gpu-lost", &"g".repeat(CODE_BYTES_MAX + 1)] {
        assert_eq!(with(&|of| of.members[0].code = Some(code.to_owned())), "members[0].code", "{code}");
    }
    for message in ["", " x", "a\nb", "\u{202e}x", &"m".repeat(501)] {
        assert_eq!(with(&|of| of.members[0].message = Some(message.to_owned())), "members[0].message", "{message:?}");
    }
    for evidence in ["", "a\u{1b}[2J", &"e".repeat(1_001)] {
        assert_eq!(with(&|of| of.members[0].evidence = Some(evidence.to_owned())), "members[0].evidence");
    }
    assert_eq!(with(&|of| of.members = vec![says(Health::Healthy); MEMBERS_MAX + 1]), "members");
}

#[test]
fn worse_judgment_counts_and_the_platforms_own_if_both_are_equally_bad() {
    let of = |health| Judgment { health, fault: None };
    for (index, own) in [Health::Healthy, Health::Progressing, Health::Degraded, Health::Failed].iter().enumerate() {
        for (other, reported) in
            [Health::Healthy, Health::Progressing, Health::Degraded, Health::Failed].iter().enumerate()
        {
            let worse = Judgment::worse(&of(*own), &of(*reported)).health;
            assert_eq!(worse, if other > index { *reported } else { *own }, "{own} {reported}");
        }
    }
    let report = MemberReport::of(&says(Health::Degraded), "service-account/op", None, NOW);
    let reported = report.judgment("agent-1", &"train".parse().unwrap());
    let own = of(Health::Degraded);
    assert_eq!(Judgment::worse(&own, &reported), &own);
}

#[test]
fn reported_fault_has_the_platforms_code_and_quotes_the_controller() {
    let name = "train".parse().unwrap();
    let report = MemberReport::of(&says(Health::Failed), "service-account/op", None, NOW);
    let fault = report.judgment("agent-1", &name).fault.expect("a failed member has a fault");
    assert_eq!(fault.code, "controller_reported");
    assert_eq!(fault.summary, "agent-1: service-account/op reports failed (gpu_lost): a GPU is gone");
    assert_eq!(fault.evidence, Some(Evidence::new("service-account/op", Some(NOW), "Xid 79")));
    for well in [Health::Healthy, Health::Progressing] {
        let report = MemberReport::of(&says(well), "service-account/op", None, NOW);
        assert_eq!(report.judgment("agent-1", &name).fault, None, "{well}");
    }
}

#[test]
fn repeated_report_keeps_the_time_of_the_first() {
    let later = Timestamp::from_millis(9);
    let first = MemberReport::of(&says(Health::Degraded), "op", None, NOW);
    assert_eq!(MemberReport::of(&says(Health::Degraded), "op", Some(&first), later), first);
    for other in [says(Health::Failed), ReportedMember { message: None, ..says(Health::Degraded) }] {
        assert_eq!(MemberReport::of(&other, "op", Some(&first), later).since, later);
    }
    assert_eq!(MemberReport::of(&says(Health::Degraded), "other", Some(&first), later).since, later);
}

#[test]
fn phase_and_progress_of_an_open_operation_come_before_the_reported_ones() {
    let status = Status {
        lifecycle: Lifecycle::Running,
        phase: "working".to_owned(),
        health: Health::Healthy,
        recovery: Recovery::None,
        progress: Progress { completed: 9, total: 9 },
    };
    let progress = Progress { completed: 2, total: 5 };
    let reported = ReportedStatus { generation: 3, phase: Some("ready".to_owned()), progress: Some(progress) };
    for state in OperationState::ALL {
        let operation = OperationView { kind: OperationKind::Upgrade, state: *state, steps: &[] };
        let shown = reported.shown(status.clone(), Some(&operation));
        let expected = match state.is_final() {
            true => Status { phase: "ready".to_owned(), progress, ..status.clone() },
            false => status.clone(),
        };
        assert_eq!(shown, expected, "{state}");
    }
    let nothing = ReportedStatus { generation: 3, phase: None, progress: None };
    assert_eq!(nothing.shown(status.clone(), None), status);
    assert!(reported.is_current(3) && !reported.is_current(4));
}

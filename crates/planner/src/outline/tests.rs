use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn step(key: &str, number: u64) -> OutlinedStep {
    OutlinedStep {
        key: StepKey::named(key),
        phase: "working".to_owned(),
        member: Some("agent-1".to_owned()),
        node_name: Some("gpu-2".parse().expect("a name")),
        action: "task rke2.stop".to_owned(),
        needs: Vec::new(),
        after: Vec::new(),
        deadline_ms: 1_000 + number,
        interrupts: None,
        does: "stop".to_owned(),
    }
}

fn member(name: &str, number: u128) -> OutlinedMember {
    OutlinedMember {
        name: name.to_owned(),
        allocation: Some(AllocationId::from_uuid(Uuid::from_u128(number))),
        node: Some(NodeId::from_uuid(Uuid::from_u128(100 + number))),
        node_name: format!("gpu-{number}").parse().expect("a name"),
        state: MemberStateName::Ready,
    }
}

fn outline() -> PlanOutline {
    PlanOutline {
        project: ProjectId::from_uuid(Uuid::from_u128(1)),
        workload: Some(WorkloadId::from_uuid(Uuid::from_u128(2))),
        name: "train".parse().expect("a name"),
        app: "rke2".to_owned(),
        kind: OperationKind::Stop,
        parameters: "{}".to_owned(),
        resumes: None,
        version: "v1".to_owned(),
        release: vec![("rke2.tar".to_owned(), "0".repeat(64))],
        settings_sha256: "1".repeat(64),
        members: vec![member("server-1", 1), member("agent-1", 2)],
        steps: vec![step("agent-1/stop", 0), step("server-1/stop", 1), step("stopped", 2)],
    }
}

/// Changes one thing that the digest covers. The numbers choose what, and in which member or step.
fn changed(mut of: PlanOutline, what: usize, at: usize) -> PlanOutline {
    let id = Uuid::from_u128(77);
    let (members, steps) = (of.members.len(), of.steps.len());
    let (member, step) = (&mut of.members[at % members], &mut of.steps[at % steps]);
    match what {
        0 => of.project = ProjectId::from_uuid(id),
        1 => of.workload = None,
        2 => of.name = "other".parse().expect("a name"),
        3 => of.app = "slurm".to_owned(),
        4 => of.kind = OperationKind::Start,
        5 => of.parameters = r#"{"force":true}"#.to_owned(),
        6 => of.resumes = Some(OperationId::from_uuid(id)),
        7 => of.version = "v2".to_owned(),
        8 => of.release[0].1 = "2".repeat(64),
        9 => of.settings_sha256 = "3".repeat(64),
        10 => member.name.push('0'),
        11 => member.allocation = Some(AllocationId::from_uuid(id)),
        12 => member.node = None,
        13 => member.node_name = "gpu-9".parse().expect("a name"),
        14 => member.state = MemberStateName::Failed,
        15 => of.members.swap(0, 1),
        16 => drop(of.members.pop()),
        17 => step.key = StepKey::named("other"),
        18 => step.phase.push('x'),
        19 => step.member = None,
        20 => step.node_name = None,
        21 => step.action = "task rke2.start".to_owned(),
        22 => step.needs.push(StepKey::named("x")),
        23 => step.after.push(StepKey::named("x")),
        24 => step.deadline_ms += 10,
        25 => step.interrupts = Some("none".to_owned()),
        26 => of.steps.swap(0, 2),
        27 => drop(of.steps.remove(at % steps)),
        _ => of.steps.push(super::tests::step("added", 9)),
    }
    of
}

proptest! {
    /// Red if a field is left out of the digest, or if the differences overlook it.
    #[test]
    fn whatever_changes_the_digest_is_named_and_nothing_else(what in 0_usize..29, at in 0_usize..6) {
        let (shown, now) = (outline(), changed(outline(), what, at));
        prop_assert_ne!(now.digest(), shown.digest());
        prop_assert!(!now.differences(&shown).is_empty());
        prop_assert!(!shown.differences(&now).is_empty());
        let same = changed(outline(), what, at);
        prop_assert_eq!(same.digest(), now.digest());
        prop_assert_eq!(same.differences(&now), Vec::new());
    }
}

#[test]
fn words_of_the_control_plane_do_not_change_the_digest() {
    let mut reworded = outline();
    reworded.steps[0].does = "halt".to_owned();
    assert_eq!(reworded.digest(), outline().digest());
}

#[test]
fn differences_say_what_is_added_left_out_and_changed() {
    let mut now = outline();
    now.steps[0].key = StepKey::named("agent-1/drain");
    now.steps[1].deadline_ms = 5;
    now.members[1].state = MemberStateName::Failed;
    let found = now.differences(&outline()).into_iter().map(|reason| format!("{}: {}", reason.field, reason.detail));
    assert_eq!(
        found.collect::<Vec<_>>(),
        [
            "members[agent-1]: failed instead of ready",
            "steps[agent-1/drain]: added: it would stop (gpu-2)",
            "steps[server-1/stop]: changed: the deadline is \"5 ms\" instead of \"1001 ms\"",
            "steps[agent-1/stop]: left out: it would no longer stop (gpu-2)",
        ]
    );
}

#[test]
fn number_and_length_of_differences_are_limited() {
    let mut now = outline();
    now.parameters = "x".repeat(100_000);
    now.steps = (0..100).map(|number| step(&format!("s-{number}"), number)).collect();
    let found = now.differences(&outline());
    assert_eq!(found.len(), DIFFERENCES_MAX + 1);
    assert_eq!(found[DIFFERENCES_MAX].detail, "and 84 more differences");
    assert!(found.iter().all(|reason| reason.detail.len() <= 512));
}

#[test]
fn each_interruption_is_said_once_in_the_order_of_the_steps() {
    let mut of = outline();
    for (at, sentence) in [(0, "pods end"), (1, "the API does not answer"), (2, "pods end")] {
        of.steps[at].interrupts = Some(sentence.to_owned());
    }
    assert_eq!(of.interrupts(), ["pods end", "the API does not answer"]);
}

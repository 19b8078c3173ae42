//! What faults and error pages offer, held against the planner: each command is one that the situation of its fault offers, and that the
//! planner accepts for a workload with that fault.

use std::path::Path;

use gpuaas_app_rke2::{FAULTS, FaultRow, OTHER_FAULTS, Rke2, Subject};
use gpuaas_model::{Fault, Health, Lifecycle, MemberState, OperationKind, Timestamp};
use gpuaas_planner::{
    App, OperationRequest, Parameters, PlanRefusal, WorkloadView, check, lifecycle, recovery::SITUATIONS,
};
use serde_json::json;

use crate::{AGENT, SERVER, workload};

/// Commands of a workload that start no operation.
const READING: [&str; 6] = ["access", "diff", "kubeconfig", "logs", "resume", "show"];
/// Lifecycles in which a person reads a page.
const LIFECYCLES: [Lifecycle; 3] = [Lifecycle::Running, Lifecycle::Failed, Lifecycle::Stopped];

/// Returns the operation that a command of a workload requests; `None` for one that starts none, or continues the last.
fn requested(command: &str) -> Option<OperationRequest> {
    let mut words = command.split_whitespace().skip(2);
    let verb = words.next().expect("a verb");
    if READING.contains(&verb) {
        return None;
    }
    let kind = OperationKind::ALL.iter().copied().find(|kind| kind.as_str() == verb.replace('-', "_"));
    let kind = kind.unwrap_or_else(|| panic!("{command}: the planner has no such operation"));
    let mut parameters = Parameters::new();
    let mut set = |name: &str, value| parameters.insert(name.to_owned(), value);
    let member = |word: &str| if word == "MEMBER" { "agent-1".to_owned() } else { word.to_owned() };
    assert!(words.next().is_some(), "{command} names no workload");
    while let Some(word) = words.next() {
        match word {
            "--scope" => {
                let scope = words.next().filter(|scope| *scope != "SCOPE").unwrap_or("whole-runtime");
                set("scope", json!(scope.replace('-', "_")));
            }
            "--member" => {
                set("member", json!(member(words.next().expect("a member"))));
            }
            // Where new members go is not part of the plan's request.
            "--agent" => {
                words.next();
            }
            "--reason" => {
                words.next();
                set("reason", json!("it is broken"));
            }
            // The command line names the members.
            "--force" if kind == OperationKind::Decommission => {
                set("give_up", json!(["agent-1"]));
            }
            "--force" => {
                set("force", json!(true));
            }
            "--give-up" if kind == OperationKind::Decommission => {
                words.next();
                set("give_up", json!(["agent-1"]));
            }
            "--give-up" => {
                set("give_up", json!(true));
            }
            flag if flag.starts_with("--") => panic!("{command}: {flag} is not known here"),
            word => {
                set("member", json!(member(word)));
            }
        }
    }
    Some(OperationRequest { kind, parameters })
}

/// Returns why the planner does not carry out a request for this workload.
fn refusal(request: &OperationRequest, of: &WorkloadView) -> Option<String> {
    let app = Rke2::default();
    let planned = || -> Result<Vec<gpuaas_planner::Finding>, PlanRefusal> {
        request.check(app.manifest())?;
        lifecycle::check(request.kind, of.lifecycle, &of.name)?;
        let subjects = app.subjects(request, of)?;
        if request.kind == OperationKind::AddMember {
            // There is nobody to plan for until it is placed.
            return Ok(Vec::new());
        }
        let plan = app.plan(request, of, &subjects.existing)?;
        Ok(check(&plan, &app.manifest().phases, &of.members))
    };
    match planned() {
        Ok(findings) if findings.is_empty() => None,
        Ok(findings) => Some(format!("{findings:?}")),
        Err(refusal) => Some(format!("{refusal:?}")),
    }
}

/// A workload whose members are ready and well.
fn healthy(lifecycle: Lifecycle) -> WorkloadView {
    let mut of = workload(lifecycle);
    for member in &mut of.members {
        let since = Timestamp::from_millis(1);
        member.state = match lifecycle {
            Lifecycle::Stopped => MemberState::Stopped { since },
            _ => MemberState::Ready { since },
        };
        (member.health, member.own_health) = (Health::Healthy, Health::Healthy);
    }
    of
}

/// Returns the fault of a row for a member, and the workload with it: the member is unwell, or has failed.
fn faulty(row: &FaultRow, at: usize, lifecycle: Lifecycle, has_failed: bool) -> (Fault, WorkloadView) {
    let mut of = healthy(lifecycle);
    let member = &mut of.members[at];
    let subject = Subject {
        workload: "train",
        member: &member.name,
        machine: member.machine.name.as_str(),
        is_server: at == SERVER,
        is_deployed: lifecycle == Lifecycle::Running,
        is_leaving: false,
    };
    let remedy = row.remedy(&subject);
    let fault = Fault {
        code: row.code.to_owned(),
        class: remedy.class(),
        summary: row.summary.to_owned(),
        evidence: None,
        next: remedy.next(&subject),
    };
    let shown = Some(fault.clone());
    (member.health, member.own_health) = (Health::Degraded, Health::Degraded);
    (member.fault, member.own_fault) = (shown.clone(), shown);
    if has_failed {
        member.state = MemberState::Failed { since: Timestamp::from_millis(1), fault: fault.clone() };
    }
    (fault, of)
}

#[test]
fn command_of_every_fault_is_offered_by_its_situation_and_accepted_by_the_planner() {
    let mut accepted = 0;
    for row in FAULTS.iter().chain(OTHER_FAULTS) {
        for at in [SERVER, AGENT] {
            // A deployment that failed has failed members; a member in service of a running workload may have failed or be unwell.
            for (lifecycle, has_failed) in
                [(Lifecycle::Running, false), (Lifecycle::Running, true), (Lifecycle::Failed, true)]
            {
                let (fault, of) = faulty(row, at, lifecycle, has_failed);
                let command = fault.next.command.as_deref().expect("every fault of RKE2 has a command");
                let verb = command.split(' ').nth(2);
                let situation = SITUATIONS.iter().find(|of| of.class == Some(fault.class)).expect("a situation");
                let is_offered = situation.offers.iter().any(|offer| offer.command().split(' ').nth(2) == verb);
                assert!(is_offered || verb == Some("logs"), "{}: {} does not offer {command}", row.code, fault.class);
                if let Some(request) = requested(command) {
                    assert_eq!(refusal(&request, &of), None, "{} in {lifecycle}: {command}", row.code);
                    accepted += 1;
                }
            }
        }
    }
    assert!(accepted > 50, "only {accepted} commands start an operation");
}

/// Returns the commands of a workload in the code spans of a page. Its lines are wrapped.
fn commands(page: &str) -> Vec<String> {
    let spans = page.split('`').skip(1).step_by(2);
    let spans = spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
    spans.filter(|span| span.starts_with("gpuaas workload ") && !span.contains('…')).collect()
}

#[test]
fn every_operation_that_an_error_page_offers_is_carried_out_in_some_state() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/errors");
    let unwell = |lifecycle, from: usize| {
        let mut of = healthy(lifecycle);
        for member in &mut of.members[from..] {
            (member.health, member.own_health) = (Health::Degraded, Health::Degraded);
        }
        of
    };
    let unreachable = |lifecycle| {
        let mut of = healthy(lifecycle);
        let agent = &mut of.members[AGENT];
        (agent.health, agent.own_health) = (Health::Degraded, Health::Degraded);
        agent.machine.unreachable_since = Some(Timestamp::from_millis(1));
        of
    };
    let mut offered = 0;
    for entry in std::fs::read_dir(folder).expect("the error pages").flatten() {
        let name = entry.file_name().into_string().expect("a name");
        let page = std::fs::read_to_string(entry.path()).expect("a page");
        for command in commands(&page) {
            // A verb alone is about a command, and offers none.
            let Some(request) = (command.split(' ').count() > 3).then(|| requested(&command)).flatten() else {
                continue;
            };
            let states = |lifecycle| {
                [healthy(lifecycle), unwell(lifecycle, AGENT), unwell(lifecycle, SERVER), unreachable(lifecycle)]
            };
            let mut workloads = LIFECYCLES.into_iter().flat_map(states);
            let mut refusals = Vec::new();
            let is_accepted = workloads.any(|of| match refusal(&request, &of) {
                None => true,
                Some(why) => {
                    refusals.push(why);
                    false
                }
            });
            assert!(is_accepted, "{name}: no workload accepts {command}: {refusals:#?}");
            offered += 1;
        }
    }
    assert!(offered > 50, "only {offered} operations are offered");
}

#[test]
fn commands_that_no_planner_accepts_are_found() {
    let of = healthy(Lifecycle::Running);
    let refused = |command: &str| refusal(&requested(command).expect("an operation"), &of);
    assert_eq!(refused("gpuaas workload drain-member train agent-1 --force"), None);
    for command in [
        "gpuaas workload upgrade NAME",
        "gpuaas workload drain-member NAME server-1",
        "gpuaas workload repair NAME --scope member --member MEMBER",
        "gpuaas workload start NAME",
    ] {
        assert!(refused(command).is_some(), "{command} is accepted");
    }
}

//! The app's configurations, plans and parameters as readable files in `tests/golden`. `INSTA_UPDATE=always` rewrites them.

#[path = "golden/members.rs"]
mod members;

use std::fmt::Write;

use gpuaas_app_rke2::Rke2;
use gpuaas_model::{
    AllocationId, Code, Health, MemberId, MemberPlace, MemberState, OperationKind, SecretId, Timestamp,
};
use gpuaas_planner::{
    App, ArtifactView, MachineView, MemberView, Occupancy, OperationRequest, Plan, PlanRefusal, ReleaseView,
    SecretView, StepAction, StepKey, StepOutput, StepSpec, WorkloadView, check, test_views,
};
use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn member(component: &str, ordinal: u32, state: MemberState) -> MemberView {
    let number = u128::from(ordinal) + if component == "server" { 0 } else { 100 };
    let health = Health::Progressing;
    let of = test_views::member(&format!("{component}-{ordinal}"), number, state);
    let machine = MachineView { name: format!("gpu-{number:02}").parse().expect("a name"), ..of.machine };
    MemberView { machine, health, own_health: health, touched: false, ..of }
}

fn workload(config: Value, members: Vec<MemberView>) -> WorkloadView {
    let secret = |number: u128| SecretView { id: SecretId::from_uuid(id(number)), sha256: "0".repeat(64) };
    let names = ["server-token", "agent-token", "join-token", "admin-kubeconfig"];
    WorkloadView {
        config,
        release: ReleaseView { version: "v1.36.3+rke2r1".into(), artifacts: Vec::new() },
        secrets: names.into_iter().zip(3_000..).map(|(name, number)| (name.to_owned(), secret(number))).collect(),
        ..test_views::workload(members)
    }
}

fn pending() -> Vec<MemberView> {
    let state = || MemberState::Pending;
    vec![member("server", 1, state()), member("agent", 1, state()), member("agent", 2, state())]
}

fn plan(kind: OperationKind, workload: &WorkloadView) -> Plan {
    let targets: Vec<MemberId> = workload.members.iter().map(|member| member.id).collect();
    Rke2::default().plan(&OperationRequest::of(kind), workload, &targets).expect("a plan")
}

fn config_of(key: &str, workload: &WorkloadView) -> String {
    let plan = plan(OperationKind::Deploy, workload);
    let step = plan.steps.iter().find(|step| step.key.to_string() == key).expect("the step");
    let params =
        Rke2::default().render(step, &OperationRequest::of(OperationKind::Deploy), workload).expect("rendered");
    params["config"].as_str().expect("a configuration").to_owned()
}

/// Formats one line per step: phase, key, action, deadline, and the steps that it waits for.
fn listed(plan: &Plan) -> String {
    let mut text = String::new();
    let names = |keys: &[StepKey]| keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    for step in &plan.steps {
        let action = match &step.action {
            StepAction::NodeTask { task, .. } => format!("task {task}"),
            StepAction::ClusterCall { call } => format!("call {call}"),
            StepAction::Record { record } => format!("record {record:?}"),
        };
        let line = format!(
            "{:<30} {:<22} {action:<28} {:>4} s  needs [{}] after [{}]",
            step.phase,
            step.key.to_string(),
            step.deadline_ms / 1_000,
            names(&step.needs),
            names(&step.after)
        );
        writeln!(text, "{}", line.trim_end()).expect("writing to a String succeeds");
    }
    text
}

fn settings() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("golden");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings
}

#[test]
fn golden_configurations_are_what_is_written_on_nodes() {
    let plain = workload(Value::Null, pending());
    let all = json!({
        "tls_san": ["k8s.example", "10.9.0.1"], "node_labels": { "rack": "b12", "example.com/tier": "gold \"1\"" },
        "cluster_cidr": "10.52.0.0/16", "service_cidr": "10.53.0.0/16",
    });
    let all = workload(all, pending());
    // Nodes register at a name that stays the same when the server moves to another machine.
    let named = json!({ "registration_address": "rke2.example", "tls_san": ["10.9.0.1", "rke2.example"] });
    let named = workload(named, pending());
    settings().bind(|| {
        assert_snapshot!("config_server", config_of("server-1/configure", &plain));
        assert_snapshot!("config_agent", config_of("agent-2/configure", &plain));
        assert_snapshot!("config_server_all_settings", config_of("server-1/configure", &all));
        assert_snapshot!("config_agent_all_settings", config_of("agent-1/configure", &all));
        assert_snapshot!("config_server_registration_address", config_of("server-1/configure", &named));
        assert_snapshot!("config_agent_registration_address", config_of("agent-1/configure", &named));
    });
}

#[test]
fn golden_plans_list_steps_in_order() {
    let ready = MemberState::Ready { since: Timestamp::from_millis(0) };
    let all_pending = workload(Value::Null, pending());
    let resumed = workload(
        Value::Null,
        vec![member("server", 1, ready.clone()), member("agent", 1, ready), member("agent", 2, MemberState::Pending)],
    );
    settings().bind(|| {
        assert_snapshot!("plan_deploy", listed(&plan(OperationKind::Deploy, &all_pending)));
        assert_snapshot!("plan_deploy_resumed", listed(&plan(OperationKind::Deploy, &resumed)));
        assert_snapshot!("plan_add_member", listed(&plan(OperationKind::AddMember, &resumed)));
        assert_snapshot!("plan_decommission", listed(&plan(OperationKind::Decommission, &resumed)));
    });
}

/// Returns the plan of an operation on the members that it is about, or the refusal. An added member is the last one.
fn requested(kind: OperationKind, parameters: Value, workload: &WorkloadView) -> Result<Plan, PlanRefusal> {
    let app = Rke2::default();
    let parameters = parameters.as_object().cloned().expect("an object");
    let request = OperationRequest { kind, parameters };
    request.check(app.manifest())?;
    let subjects = app.subjects(&request, workload)?;
    let added = subjects.added.and_then(|_| workload.members.last()).map(|member| member.id);
    let targets: Vec<MemberId> = subjects.existing.into_iter().chain(added).collect();
    let plan = app.plan(&request, workload, &targets)?;
    assert_eq!(check(&plan, &app.manifest().phases, &workload.members), []);
    Ok(plan)
}

fn running(members: Vec<MemberView>) -> WorkloadView {
    let (health, own_health) = (Health::Healthy, Health::Healthy);
    let healthy = |member| MemberView { health, own_health, touched: true, ..member };
    workload(json!({ "node_labels": { "rack": "b12" } }), members.into_iter().map(healthy).collect())
}

fn since(of: impl Fn(Timestamp) -> MemberState) -> MemberState {
    of(Timestamp::from_millis(0))
}

fn ready() -> MemberState {
    since(|since| MemberState::Ready { since })
}

#[test]
fn operations_offered_for_a_member_are_those_that_are_accepted() {
    use OperationKind as K;
    let app = Rke2::default();
    let by = AllocationId::from_uuid(id(9_000));
    let states = [
        MemberState::Pending,
        ready(),
        since(|since| MemberState::Draining { since }),
        since(|since| MemberState::Drained { since }),
        since(|since| MemberState::Stopped { since }),
        since(|since| MemberState::Removing { since }),
        MemberState::Removed,
    ];
    for state in states {
        let of = running(vec![member("server", 1, ready()), member("agent", 1, state.clone())]);
        for member in &of.members {
            let name = &member.name;
            let requests = [
                (K::DrainMember, json!({ "member": name, "force": true })),
                (K::UncordonMember, json!({ "member": name })),
                (K::RemoveMember, json!({ "member": name, "force": true })),
                (K::ReplaceMember, json!({ "member": name, "by": by })),
                (K::Repair, json!({ "scope": "member", "member": name })),
            ];
            let accepted = requests.into_iter().filter(|(kind, parameters)| {
                let parameters = parameters.as_object().cloned().expect("an object");
                app.subjects(&OperationRequest { kind: *kind, parameters }, &of).is_ok()
            });
            let accepted: Vec<K> = accepted.map(|(kind, _)| kind).collect();
            assert_eq!(app.member_operations(member, &of), accepted, "{name} {state:?}");
        }
    }
    let of = running(vec![member("server", 1, ready()), member("agent", 1, ready())]);
    let offered = |at: usize| app.member_operations(&of.members[at], &of);
    assert_eq!(offered(0), [K::UncordonMember]);
    assert_eq!(offered(1), [K::DrainMember, K::UncordonMember, K::RemoveMember, K::ReplaceMember]);
}

#[test]
fn golden_plans_of_a_running_cluster_list_steps_in_order() {
    use OperationKind as K;
    let of = running(vec![member("server", 1, ready()), member("agent", 1, ready()), member("agent", 2, ready())]);
    let growing = running(vec![
        member("server", 1, ready()),
        member("agent", 1, ready()),
        member("agent", 2, MemberState::Pending),
    ]);
    let mut drained = running(vec![
        member("server", 1, ready()),
        member("agent", 1, since(|since| MemberState::Drained { since })),
        member("agent", 2, ready()),
    ]);
    drained.facts.insert("cordoned/agent-1".to_owned(), Value::Bool(true));
    let mut broken = of.clone();
    (broken.members[1].health, broken.members[1].own_health) = (Health::Degraded, Health::Degraded);
    let replacement = json!({ "member": "agent-1", "by": AllocationId::from_uuid(id(9_000)) });
    let plans = [
        ("plan_drain", K::DrainMember, json!({ "member": "agent-1", "timeout_seconds": 90 }), &of),
        ("plan_uncordon", K::UncordonMember, json!({ "member": "agent-1" }), &drained),
        ("plan_remove", K::RemoveMember, json!({ "member": "agent-1" }), &of),
        ("plan_remove_unwell", K::RemoveMember, json!({ "member": "agent-1" }), &broken),
        ("plan_replace", K::ReplaceMember, replacement, &growing),
        ("plan_stop", K::Stop, json!({}), &of),
        ("plan_start", K::Start, json!({}), &drained),
        ("plan_reconcile", K::Reconcile, json!({}), &of),
        ("plan_repair_member", K::Repair, json!({ "scope": "member", "member": "agent-1" }), &broken),
        ("plan_repair_whole_runtime", K::Repair, json!({ "scope": "whole_runtime" }), &broken),
    ];
    settings().bind(|| {
        for (name, kind, parameters, of) in plans {
            assert_snapshot!(name, listed(&requested(kind, parameters, of).expect("a plan")));
        }
    });
}

#[test]
fn requests_that_would_harm_or_change_nothing_are_refused() {
    use OperationKind as K;
    let of = running(vec![member("server", 1, ready()), member("agent", 1, ready())]);
    let own = of.members[1].place.allocation().expect("an allocation");
    let mut drained = of.clone();
    drained.members[1].state = since(|since| MemberState::Drained { since });
    let mut removed = of.clone();
    removed.members[1].state = MemberState::Removed;
    for (kind, parameters, of, field, code) in [
        (K::RemoveMember, json!({ "member": "server-1" }), &of, "parameters.member", Code::LastServer),
        (K::DrainMember, json!({ "member": "server-1" }), &of, "parameters.member", Code::LastServer),
        (K::DrainMember, json!({ "member": "agent-1" }), &of, "parameters.member", Code::LastAgent),
        (K::RemoveMember, json!({ "member": "agent-1" }), &of, "parameters.member", Code::LastAgent),
        (K::DrainMember, json!({ "member": "agent-1" }), &drained, "parameters.member", Code::NothingToDo),
        (K::DrainMember, json!({ "member": "agent-9" }), &of, "parameters.member", Code::MemberUnknown),
        (K::UncordonMember, json!({ "member": "agent-1" }), &removed, "parameters.member", Code::MemberUnknown),
        (K::ReplaceMember, json!({ "member": "agent-1", "by": own }), &of, "parameters.by", Code::AllocationInUse),
        (K::Repair, json!({ "scope": "whole_runtime" }), &of, "parameters.scope", Code::NothingToDo),
        (K::Repair, json!({ "scope": "member", "member": "agent-1" }), &of, "parameters.scope", Code::NothingToDo),
        (K::Repair, json!({ "scope": "member" }), &of, "parameters.member", Code::FieldInvalid),
        (
            K::Repair,
            json!({ "scope": "control_plane", "member": "agent-1" }),
            &of,
            "parameters.member",
            Code::FieldInvalid,
        ),
    ] {
        match requested(kind, parameters.clone(), of) {
            Err(PlanRefusal::Refused(reason)) => {
                assert_eq!((reason.field.as_str(), reason.code), (field, code), "{kind} {parameters}");
                assert!(reason.next.is_some(), "{kind} {parameters}");
            }
            other => panic!("{kind} {parameters}: {other:?}"),
        }
    }
    let forced = json!({ "member": "agent-1", "force": true });
    assert!(requested(K::DrainMember, forced, &of).is_ok());
}

#[test]
fn golden_manifest_lists_promises() {
    let app = Rke2::default();
    let manifest = app.manifest();
    let text = json!({
        "name": manifest.name, "promises": manifest.promises, "not_promised": manifest.not_promised, "phases": manifest.phases,
        "placement_schema": manifest.placement_schema, "added_members_schema": manifest.added_members_schema,
        "config_schema": manifest.config_schema, "operations": manifest.operations,
    });
    settings().bind(|| assert_snapshot!("manifest", serde_json::to_string_pretty(&text).expect("JSON")));
}

/// Returns a step and its rendered parameters.
fn rendered(kind: OperationKind, key: &str, workload: &WorkloadView) -> (StepSpec, Value) {
    let step = plan(kind, workload).steps.into_iter().find(|step| step.key.to_string() == key).expect("the step");
    let params =
        Rke2::default().render(&step, &OperationRequest::of(OperationKind::Deploy), workload).expect("rendered");
    (step, params)
}

#[test]
fn golden_requirements_match() {
    let fresh = workload(Value::Null, pending());
    let mut touched = workload(Value::Null, pending());
    touched.members.iter_mut().for_each(|member| member.touched = true);
    let mut installed = workload(Value::Null, pending());
    installed.facts.insert("installed/server-1".to_owned(), json!(true));
    let pretty = |(_, params): (StepSpec, Value)| serde_json::to_string_pretty(&params).expect("JSON");
    settings().bind(|| {
        assert_snapshot!("preflight_server", pretty(rendered(OperationKind::Deploy, "server-1/preflight", &fresh)));
        assert_snapshot!(
            "preflight_agent_touched",
            pretty(rendered(OperationKind::Deploy, "agent-1/preflight", &touched))
        );
        assert_snapshot!("residue", pretty(rendered(OperationKind::Decommission, "server-1/residue", &installed)));
    });
    // If nothing was installed, nothing ran: paths that only an uninstall deletes, and ports and rules with these names, belong to other
    // software.
    let (_, of_nothing) = rendered(OperationKind::Decommission, "server-1/residue", &fresh);
    assert!(of_nothing["paths"].as_array().expect("paths").iter().all(|path| path != "/opt/cni/bin"));
    for of_others in ["ports", "udp_ports", "link_prefixes", "firewall_marks", "mount_prefixes", "group_prefixes"] {
        assert_eq!(of_nothing.get(of_others).and_then(Value::as_array).map_or(0, Vec::len), 0, "{of_others}");
    }
    // The uninstall removes every path that must be gone, and nothing that may belong to other software.
    let (_, of_installed) = rendered(OperationKind::Decommission, "server-1/residue", &installed);
    let (_, uninstall) = rendered(OperationKind::Decommission, "server-1/uninstall", &installed);
    let removed = uninstall["paths"].as_array().expect("paths");
    assert!(of_installed["paths"].as_array().expect("paths").iter().all(|path| removed.contains(path)), "{uninstall}");
    assert_eq!(rendered(OperationKind::Decommission, "server-1/uninstall", &fresh).1, json!({}));
    // The preflight of a node without members is that of a server.
    let of_node = serde_json::to_value(Rke2::default().preflight(Occupancy::Free).expect("wants")).expect("JSON");
    assert_eq!(of_node, rendered(OperationKind::Deploy, "server-1/preflight", &fresh).1);
}

#[test]
fn inspection_after_a_member_was_given_up_finds_whatever_its_residue_check_reports() {
    let mut installed = workload(Value::Null, pending());
    installed.facts.insert("installed/server-1".to_owned(), json!(true));
    let (_, residue) = rendered(OperationKind::Decommission, "server-1/residue", &installed);
    let residue: Vec<&str> = residue["paths"].as_array().expect("paths").iter().filter_map(Value::as_str).collect();
    let absent = |occupancy| Rke2::default().preflight(occupancy).expect("wants").absent_paths;
    let (free, given_up) = (absent(Occupancy::Free), absent(Occupancy::GivenUp));
    assert!(residue.len() > 10 && residue.iter().all(|path| given_up.iter().any(|of| of == path)), "{given_up:?}");
    // A finding names each of the others once: itself, or a folder around it.
    for path in &free {
        let around = given_up.iter().filter(|of| path == *of || path.starts_with(&format!("{of}/")));
        assert_eq!(around.count(), 1, "{path} in {given_up:?}");
    }
    assert!(!free.iter().any(|path| path == "/var/lib/rancher/rke2"), "an operator may have put files there");
}

/// Returns a workload whose release is as large as RKE2's own.
fn with_real_size(members: Vec<MemberView>) -> WorkloadView {
    let artifact = |name: &str, size_bytes| ArtifactView { name: name.to_owned(), sha256: "0".repeat(64), size_bytes };
    let mut workload = workload(Value::Null, members);
    workload.release.artifacts =
        vec![artifact("rke2.linux-amd64.tar.gz", 50_000_000), artifact("rke2-images.linux-amd64.tar.zst", 800_000_000)];
    workload
}

#[test]
fn deadlines_and_free_space_follow_the_release_size() {
    let (none, large) = (workload(Value::Null, pending()), with_real_size(pending()));
    let seconds = |workload: &WorkloadView, key: &str| {
        let plan = plan(OperationKind::Deploy, workload);
        plan.steps.iter().find(|step| step.key.to_string() == key).expect("the step").deadline_ms / 1_000
    };
    for (step, more) in [("fetch", 85), ("install", 53), ("start", 400), ("configure", 0), ("wait-ready", 0)] {
        for member in ["server-1", "agent-2"] {
            let key = format!("{member}/{step}");
            assert_eq!(seconds(&large, &key), seconds(&none, &key) + more, "{key}");
        }
    }
    let free_bytes = |workload: &WorkloadView| {
        rendered(OperationKind::Deploy, "server-1/preflight", workload).1["free_bytes_min"].as_u64().expect("a number")
    };
    let cluster = 1 << 30;
    assert_eq!((free_bytes(&none), free_bytes(&large)), (cluster, cluster + 9_900_000_000));
    let mut large = large;
    large.members[0].touched = true;
    assert_eq!(free_bytes(&large), cluster + 9_050_000_000, "the artifacts are already staged");
    large.facts.insert("installed/server-1".to_owned(), json!(true));
    assert_eq!(free_bytes(&large), cluster, "the images are already imported");
}

#[test]
fn start_gives_up_on_a_server_that_is_no_etcd_member_except_during_a_reset() {
    let params = rendered(OperationKind::Deploy, "server-1/start", &workload(Value::Null, pending())).1;
    let texts = |list: &str| -> Vec<String> {
        let texts = params[list].as_array().into_iter().flatten().filter_map(|entry| entry["text"].as_str());
        texts.filter(|text| text.contains("member of the etcd cluster")).map(str::to_owned).collect()
    };
    assert_eq!(texts("give_up_on").len(), 2);
    assert_eq!(texts("exceptions"), texts("give_up_on"));
}

#[test]
fn all_blocking_findings_are_reported_with_the_fix_of_the_first() {
    let fresh = workload(Value::Null, pending());
    let (step, _) = rendered(OperationKind::Deploy, "agent-1/preflight", &fresh);
    let finding = |check: &str, severity: &str| {
        json!({ "check": check, "severity": severity, "detail": format!("{check} is so"), "fix": format!("mend {check}"),
                "evidence": "seen there" })
    };
    let apply =
        |findings: Value| Rke2::default().step_outputs(&step, &json!({ "passed": 1, "findings": findings }), &fresh);
    assert_eq!(apply(json!([finding("swap_on", "warning")])), Ok(Vec::new()), "a warning blocks nothing");
    let fault =
        apply(json!([finding("swap_on", "warning"), finding("leftover", "blocking"), finding("noexec", "blocking")]));
    let fault = fault.expect_err("blocked");
    let evidence = fault.evidence.expect("what was seen");
    assert_eq!(evidence.text, "leftover is so (seen there); noexec is so (seen there)");
    assert_eq!(
        (fault.code.as_str(), fault.summary.as_str()),
        ("rke2_preflight_blocked", "agent-1: blocking finding leftover on gpu-101")
    );
    assert_eq!(
        fault.next.text,
        "ask the operator to follow this advice of the agent on gpu-101: \"mend leftover\", then resume"
    );
    assert_eq!(fault.next.command.as_deref(), Some("gpuaas workload resume train"));
    let fault = apply(json!([finding("inotify_low", "blocking")])).expect_err("blocked");
    assert_eq!(fault.next.text, "ask the operator to run gpuaas node fix gpu-101 inotify, then resume");
    let fault = apply(json!("no list")).expect_err("no report");
    assert_eq!(fault.code, "task_result_invalid");
    let fault = apply(json!([finding("of_its_own", "blocking")])).expect_err("blocked");
    assert!(!fault.next.text.contains("mend"), "the next action of an unknown check is not shown: {}", fault.next.text);
}

#[test]
fn operations_without_a_plan_are_refused() {
    let running = workload(Value::Null, pending());
    let request = OperationRequest {
        kind: OperationKind::Upgrade,
        parameters: [("version".to_owned(), json!("v1.37.1+rke2r1"))].into_iter().collect(),
    };
    let refusal = Rke2::default().plan(&request, &running, &[]).expect_err("it has no plan");
    assert_eq!(refusal.to_string(), "upgrade is not available yet for rke2");
    let mut external = running;
    let machine = "edge-1".parse().expect("a name");
    external.members[1].place = MemberPlace::External { machine, address: "192.0.2.7".to_owned() };
    let refusal = Rke2::default().plan(&OperationRequest::of(OperationKind::Deploy), &external, &[]);
    let refusal = refusal.expect_err("it is refused").to_string();
    assert_eq!(refusal, "agent-1 is on a machine that takes no tasks");
}

#[test]
fn residue_is_reported_by_kind_and_installation_is_recorded() {
    let fresh = workload(Value::Null, pending());
    let (step, _) = rendered(OperationKind::Decommission, "server-1/residue", &fresh);
    let items = json!([
        { "kind": "path", "what": "/etc/cni" }, { "kind": "unit", "what": "rke2-server.service" },
        { "kind": "mount", "what": "/run/k3s/x" }, { "kind": "link", "what": "cni0" },
        { "kind": "port", "what": "6443/tcp at 10.4.0.7" }, { "kind": "firewall_rule", "what": ":KUBE-FIREWALL -" },
    ]);
    let fault = Rke2::default().step_outputs(&step, &json!({ "items": items }), &fresh).expect_err("left");
    assert_eq!(
        fault.evidence.expect("what is left").text,
        "path /etc/cni, unit rke2-server.service, mount /run/k3s/x, link cni0, listener 6443/tcp at 10.4.0.7, firewall rule :KUBE-FIREWALL -"
    );
    assert_eq!(fault.next.command.as_deref(), Some("gpuaas workload resume train"));
    let reset =
        "ask the operator to reset and reimage gpu-01 (gpuaas node reset gpu-01 --force --reason TEXT), then resume";
    assert_eq!(fault.next.text, reset, "a tenant has no shell on the node");
    let unseen = json!({ "items": [], "unseen": ["firewall rules: no program that lists them is installed"] });
    let fault = Rke2::default().step_outputs(&step, &unseen, &fresh).expect_err("unchecked items are not clean");
    assert_eq!(
        fault.evidence.expect("the unchecked items").text,
        "not checked: firewall rules: no program that lists them is installed"
    );
    // The node's own report of an uninstall counts for nothing: it may be about an earlier workload, or its tenant ran the uninstall. But
    // from its begin on, a start is not enough to bring the member back.
    for status in [json!(0), Value::Null] {
        let (step, _) = rendered(OperationKind::Decommission, "server-1/uninstall", &fresh);
        assert_eq!(
            Rke2::default().step_outputs(&step, &json!({ "exit_status": status }), &fresh),
            Ok(vec![StepOutput::Fact("joined/server-1".to_owned(), json!(false))])
        );
    }
    let steps = plan(OperationKind::Deploy, &fresh).steps;
    let step = steps.into_iter().find(|step| step.key.to_string() == "server-1/install").expect("the step");
    let outputs =
        Rke2::default().step_outputs(&step, &json!({ "version_line": "rke2 version", "files_written": 9 }), &fresh);
    assert_eq!(outputs, Ok(vec![StepOutput::Fact("installed/server-1".to_owned(), json!(true))]));
}

proptest! {
    #[test]
    fn property_every_plan_is_valid_and_starts_agents_after_the_server(
        agents in 0_u32..20, states in proptest::collection::vec(0_u8..3, 21), kind in 0_usize..3,
    ) {
        let state = |number: u8| match number {
            0 => MemberState::Pending,
            1 => MemberState::Ready { since: Timestamp::from_millis(1) },
            _ => MemberState::Preparing { since: Timestamp::from_millis(1) },
        };
        let mut members = vec![member("server", 1, state(states[0]))];
        members.extend((1..=agents).map(|ordinal| member("agent", ordinal, state(states[ordinal as usize]))));
        let workload = workload(Value::Null, members);
        let kind = [OperationKind::Deploy, OperationKind::AddMember, OperationKind::Decommission][kind];
        let plan = plan(kind, &workload);
        let app = Rke2::default();
        prop_assert_eq!(check(&plan, &app.manifest().phases, &workload.members), []);
        if kind == OperationKind::Decommission {
            return Ok(());
        }
        let gate = if kind == OperationKind::Deploy { "server-ready" } else { "api_ready" };
        for step in plan.steps.iter().filter(|step| step.key.to_string().ends_with("/preflight")) {
            if step.key.to_string().starts_with("agent") {
                prop_assert_eq!(step.needs.iter().map(ToString::to_string).collect::<Vec<_>>(), [gate]);
            }
        }
    }
}

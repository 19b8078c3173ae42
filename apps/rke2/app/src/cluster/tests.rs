use std::collections::BTreeMap;

use gpuaas_model::{MemberState, SecretId, Timestamp};
use gpuaas_planner::{ReleaseView, SecretView, test_views};
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::ObservedCluster;

const VERSION: &str = "v1.36.3+rke2r1";
const SINCE: Timestamp = Timestamp::from_millis(5);
const READY: MemberState = MemberState::Ready { since: SINCE };

fn id(number: u128) -> MemberId {
    MemberId::from_uuid(Uuid::from_u128(number))
}

fn member(number: u128, component_key: &str, state: MemberState) -> MemberView {
    test_views::member(&format!("{component_key}-1"), number, state)
}

/// A server on gpu-1 and an agent on gpu-2.
fn workload(agent: MemberState) -> WorkloadView {
    let secret = SecretView { id: SecretId::from_uuid(Uuid::from_u128(9)), sha256: "0".repeat(64) };
    WorkloadView {
        config: json!({ "node_labels": { "rack": "b12" } }),
        release: ReleaseView { version: VERSION.to_owned(), artifacts: Vec::new() },
        secrets: BTreeMap::from([(names::ADMIN_KUBECONFIG.to_owned(), secret)]),
        ..test_views::workload(vec![member(1, names::SERVER, READY), member(2, names::AGENT, agent)])
    }
}

fn kube_node(number: u128) -> ObservedKubeNode {
    ObservedKubeNode {
        name: format!("gpu-{number}"),
        ready: true,
        not_ready_reason: None,
        ready_since: Some(SINCE),
        unschedulable: false,
        kubelet_version: VERSION.to_owned(),
        labels: BTreeMap::from([("rack".to_owned(), "b12".to_owned())]),
    }
}

fn judged(workload: &WorkloadView, kube_nodes: Vec<ObservedKubeNode>) -> ClusterJudgment {
    let observed = serde_json::to_value(ObservedCluster { kube_nodes }).expect("plain data");
    judge(workload, Ok(&observed)).expect("it is readable")
}

/// The member's judgment as texts: code, summary, evidence and command.
fn texts(judgment: &Judgment) -> [String; 4] {
    let fault = judgment.fault.clone().expect("a fault");
    let evidence = fault.evidence.expect("evidence");
    [fault.code, fault.summary, evidence.text, fault.next.command.expect("a command")]
}

#[test]
fn members_in_service_with_ready_kube_nodes_are_well() {
    let judged_members = |agent: MemberState| judged(&workload(agent), vec![kube_node(1), kube_node(2)]).members;
    assert_eq!(judged_members(READY), [(id(1), WELL), (id(2), WELL)]);
    assert_eq!(judged_members(MemberState::Drained { since: SINCE }).len(), 2);
    for absent in [MemberState::Joining { since: SINCE }, MemberState::Stopped { since: SINCE }, MemberState::Removed] {
        assert_eq!(judged_members(absent), [(id(1), WELL)], "its steps know more");
    }
}

#[test]
fn kube_node_that_is_not_ready_or_missing_names_member_reason_and_repair() {
    let reason = "kubelet not ready: Kubelet stopped posting node status.";
    let lost = ObservedKubeNode { ready: false, not_ready_reason: Some(reason.to_owned()), ..kube_node(2) };
    let found = judged(&workload(READY), vec![kube_node(1), lost]);
    assert_eq!((found.members[0].clone(), found.drift), ((id(1), WELL), Vec::new()));
    let repair = "gpuaas workload repair train --scope member --member agent-1";
    let [code, summary, evidence, command] = texts(&found.members[1].1);
    assert_eq!([code.as_str(), summary.as_str()], ["kube_node_not_ready", "agent-1: its KubeNode is not Ready"]);
    assert_eq!([evidence.as_str(), command.as_str()], [reason, repair]);
    let found = judged(&workload(READY), vec![kube_node(2)]);
    let [code, _, evidence, command] = texts(&found.members[0].1);
    assert_eq!([code.as_str(), evidence.as_str()], ["kube_node_missing", "the cluster has no KubeNode gpu-1"]);
    assert_eq!(command, "gpuaas workload repair train --scope control-plane");
    assert!(found.drift.is_empty(), "the fault of the member says it: {:?}", found.drift);
}

#[test]
fn labels_that_are_gone_are_drift_and_no_fault_and_cordons_are_the_tenants() {
    let cordoned = ObservedKubeNode { unschedulable: true, ..kube_node(1) };
    let unlabelled =
        ObservedKubeNode { labels: BTreeMap::new(), kubelet_version: "v1.35.0+rke2r1".to_owned(), ..kube_node(2) };
    let stranger = kube_node(7);
    let found = judged(&workload(READY), vec![cordoned, unlabelled, stranger]);
    let drift: Vec<_> = found.drift.iter().map(|of| (of.member.as_deref(), of.field.as_str())).collect();
    assert_eq!(drift, [(Some("agent-1"), "labels.rack")]);
    assert!(found.members.iter().all(|(_, judgment)| *judgment == WELL), "{:?}", found.members);
}

#[test]
fn silent_cluster_is_a_fault_of_its_server_and_nothing_else() {
    let silent = |code: Code| judge(&workload(READY), Err(&TaskFailure::new(code, "10.0.0.1:6443: refused\nagain")));
    for code in [Code::ClusterUnreachable, Code::ClusterNotReady] {
        let judgment = silent(code).expect("a failure is judged");
        let [(member, judgment)] = &judgment.members[..] else { panic!("{judgment:?}") };
        let [code, _, evidence, command] = texts(judgment);
        assert_eq!((*member, code.as_str()), (id(1), "cluster_unreachable"));
        assert_eq!(command, "gpuaas workload repair train --scope control-plane");
        assert!(evidence.contains("6443") && !evidence.contains('\n'), "{evidence:?}");
    }
    for code in [Code::RateLimited, Code::Unavailable, Code::Internal, Code::StateConflict] {
        assert_eq!(silent(code).expect("a failure is judged"), ClusterJudgment::default(), "{code}");
    }
    let unreadable = judge(&workload(READY), Ok(&json!({ "nodes": [] }))).expect_err("it is unreadable");
    assert_eq!(unreadable.code, Code::Internal);
}

#[test]
fn cluster_is_followed_while_it_runs_and_its_server_is_in_service() {
    assert_eq!(followed_through(&workload(READY)), Some(id(1)));
    let stopping = WorkloadView { lifecycle: Lifecycle::Stopping, ..workload(READY) };
    assert_eq!(followed_through(&stopping), None);
    let mut repaired = workload(READY);
    repaired.members[0].state = MemberState::Preparing { since: SINCE };
    assert_eq!(followed_through(&repaired), None);
    let unread = WorkloadView { secrets: BTreeMap::new(), ..workload(READY) };
    assert_eq!(followed_through(&unread), None);
}

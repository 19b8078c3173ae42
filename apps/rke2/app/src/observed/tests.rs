use gpuaas_planner::{ReleaseView, test_views};
use serde_json::json;

use super::*;

const VERSION: &str = "v1.36.3+rke2r1";
const SINCE: Timestamp = Timestamp::from_millis(5);

fn workload(state: MemberState) -> WorkloadView {
    WorkloadView {
        config: json!({ "node_labels": { "rack": "b12" } }),
        release: ReleaseView { version: VERSION.to_owned(), artifacts: Vec::new() },
        ..test_views::workload(vec![test_views::member("agent-1", 2, state)])
    }
}

fn ready() -> WorkloadView {
    workload(MemberState::Ready { since: SINCE })
}

fn kube_node() -> ObservedKubeNode {
    ObservedKubeNode {
        name: "gpu-2".to_owned(),
        ready: true,
        not_ready_reason: None,
        ready_since: Some(SINCE),
        unschedulable: false,
        kubelet_version: VERSION.to_owned(),
        labels: BTreeMap::from([("rack".to_owned(), "b12".to_owned()), ("other".to_owned(), "x".to_owned())]),
    }
}

fn found(workload: &WorkloadView, kube_nodes: Vec<ObservedKubeNode>) -> Vec<Difference> {
    let observed = serde_json::to_value(ObservedCluster { kube_nodes }).expect("plain data");
    compare(workload, &observed).expect("it is readable")
}

/// The only difference as text: field, desired, observed, command.
fn one(workload: &WorkloadView, kube_nodes: Vec<ObservedKubeNode>) -> [String; 4] {
    let found = found(workload, kube_nodes);
    let [difference] = &found[..] else { panic!("{found:?}") };
    let Difference { field, desired, observed, action, .. } = difference.clone();
    [field, desired, observed, action.command.expect("a command")]
}

#[test]
fn cluster_as_wanted_has_no_difference() {
    assert_eq!(found(&ready(), vec![kube_node()]), Vec::new());
    let cordoned = ObservedKubeNode { unschedulable: true, ..kube_node() };
    assert_eq!(found(&workload(MemberState::Drained { since: SINCE }), vec![cordoned]), Vec::new());
    assert_eq!(found(&workload(MemberState::Pending), Vec::new()), Vec::new(), "not in service");
}

#[test]
fn each_deviation_is_named_with_its_command() {
    let repair = "gpuaas workload repair train --scope member --member agent-1";
    let uncordon = "gpuaas workload uncordon-member train agent-1";
    assert_eq!(one(&ready(), Vec::new()), ["kube_node", "present", "absent", repair]);
    let lost = Some("kubelet not ready: stopped posting".to_owned());
    let not_ready = ObservedKubeNode { ready: false, not_ready_reason: lost, ..kube_node() };
    assert_eq!(found(&ready(), vec![not_ready.clone()])[0].since, Some(SINCE));
    assert_eq!(one(&ready(), vec![not_ready]), ["ready", "ready", "kubelet not ready: stopped posting", repair]);
    let cordoned = ObservedKubeNode { unschedulable: true, ..kube_node() };
    assert_eq!(one(&ready(), vec![cordoned.clone()]), ["cordon", "schedulable", "cordoned", uncordon]);
    let drained = workload(MemberState::Drained { since: SINCE });
    assert_eq!(one(&drained, vec![kube_node()]), ["cordon", "cordoned", "schedulable", uncordon]);
    let older = ObservedKubeNode { kubelet_version: "v1.35.0+rke2r1".to_owned(), ..kube_node() };
    assert_eq!(one(&ready(), vec![older]), ["version", VERSION, "v1.35.0+rke2r1", repair]);
    let reconcile = "gpuaas workload reconcile train";
    let unlabelled = ObservedKubeNode { labels: BTreeMap::new(), ..kube_node() };
    assert_eq!(one(&ready(), vec![unlabelled]), ["labels.rack", "b12", "absent", reconcile]);
    let stranger = ObservedKubeNode { name: "laptop".to_owned(), ..kube_node() };
    let kubectl = "gpuaas workload kubeconfig train --merge";
    assert_eq!(
        one(&ready(), vec![kube_node(), stranger]),
        ["kube_node", "only KubeNodes of members", "present: laptop", kubectl]
    );
    let mut set_by_platform = ready();
    set_by_platform.facts.insert(names::cordoned("agent-1"), Value::Bool(true));
    assert_eq!(
        one(&set_by_platform, vec![cordoned]),
        ["cordon", "schedulable", "cordoned", uncordon],
        "it is hidden nowhere"
    );
}

#[test]
fn hostile_cluster_is_bounded_and_shown_in_one_line() {
    let mut nodes: Vec<ObservedKubeNode> = (0..1_000)
        .map(|number| ObservedKubeNode { name: format!("n{number}\u{1b}[2J{}", "x".repeat(5_000)), ..kube_node() })
        .collect();
    nodes.push(ObservedKubeNode {
        labels: BTreeMap::from([("rack".to_owned(), "line\nline\u{202e}".repeat(1_000))]),
        kubelet_version: "v".repeat(10_000),
        ..kube_node()
    });
    let found = found(&ready(), nodes);
    assert_eq!(found.len(), 2 + STRANGERS_MAX + 1);
    assert_eq!(found.last().expect("a count").observed, "984 more");
    for difference in found {
        assert!(difference.observed.len() <= OBSERVED_BYTES_MAX, "{difference:?}");
        assert!(!difference.observed.contains(['\n', '\u{1b}', '\u{202e}']), "{difference:?}");
    }
}

#[test]
fn what_no_effects_return_is_a_failure_and_no_agreement() {
    let refused = compare(&ready(), &json!({ "nodes": [] })).expect_err("it is unreadable");
    assert_eq!(refused.code, Code::Internal);
}

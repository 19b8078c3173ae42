use super::*;
use crate::demo::lifecycle::observation::{Api, KubeNode, Member, Pod};

/// No failed aspect.
const NONE: [Aspect; 0] = [];

fn expected() -> Expected {
    Expected::running("demo-1", "demo-2", 2)
}

/// Returns an observation that agrees with [`expected`].
fn agreeing() -> Observation {
    let member = |name: &str, node: &str| Member {
        name: name.to_owned(),
        node: node.to_owned(),
        state: "ready".to_owned(),
        health: "healthy".to_owned(),
    };
    let node = |name: &str| KubeNode {
        name: name.to_owned(),
        ready: true,
        schedulable: true,
        label: Some(LABEL_VALUE.to_owned()),
    };
    let machine = |node: &str, state: [&str; 2], pods: usize| Machine {
        node: node.to_owned(),
        unit: state[0].to_owned(),
        boot: state[1].to_owned(),
        processes: vec![PROCESS.to_owned(); pods],
        ..Machine::default()
    };
    let cluster = Cluster {
        user: format!("{SERVICE_ACCOUNTS}a-1"),
        nodes: vec![node("demo-1"), node("demo-2")],
        pods: vec![
            pod("web-1", WEB, "demo-1"),
            pod("web-2", WEB, "demo-2"),
            pod("everywhere-1", EVERYWHERE, "demo-1"),
            pod("everywhere-2", EVERYWHERE, "demo-2"),
        ],
    };
    Observation {
        api: Api {
            lifecycle: "running".to_owned(),
            health: "healthy".to_owned(),
            members: vec![member("server-1", "demo-1"), member("agent-1", "demo-2")],
            ..Api::default()
        },
        kubectl: Kubectl::Cluster(cluster),
        machines: vec![
            machine("demo-1", ["active", "enabled"], 2),
            machine("demo-2", ["active", "enabled"], 2),
            machine("demo-3", ["", ""], 0),
        ],
    }
}

fn pod(name: &str, app: &str, node: &str) -> Pod {
    Pod { name: name.to_owned(), app: app.to_owned(), node: node.to_owned(), ready: true }
}

/// Returns the failed aspects after a change of what is seen.
fn after(expected: &Expected, change: impl FnOnce(&mut Observation)) -> Vec<Aspect> {
    let mut seen = agreeing();
    change(&mut seen);
    failed(&compare(expected, &seen))
}

fn cluster(seen: &mut Observation) -> &mut Cluster {
    match &mut seen.kubectl {
        Kubectl::Cluster(cluster) => cluster,
        Kubectl::NoAnswer(why) => panic!("{why}"),
    }
}

fn difference(field: &str) -> Difference {
    Difference { field: field.to_owned(), text: format!("agent-1 {field}: other") }
}

#[test]
fn agreement_fails_in_no_aspect_and_leaves_out_what_does_not_apply() {
    let checks = compare(&expected(), &agreeing());
    assert_eq!(failed(&checks), NONE, "{checks:#?}");
    assert!(!checks.iter().any(|check| check.aspect == Aspect::Processes), "a running workload has processes");
}

#[test]
fn each_deviation_fails_in_its_own_aspect_alone() {
    let wanted = expected();
    assert_eq!(after(&wanted, |seen| seen.api.health = "degraded".to_owned()), [Aspect::Members]);
    assert_eq!(after(&wanted, |seen| seen.machines[1].unit = "inactive".to_owned()), [Aspect::Members]);
    assert_eq!(after(&wanted, |seen| cluster(seen).nodes[1].ready = false), [Aspect::Nodes]);
    let stranger = KubeNode { name: "demo-3".to_owned(), ready: false, schedulable: true, label: None };
    assert_eq!(after(&wanted, |seen| cluster(seen).nodes.push(stranger)), [Aspect::Nodes]);
    assert_eq!(after(&wanted, |seen| cluster(seen).nodes[1].schedulable = false), [Aspect::Cordons]);
    assert_eq!(after(&wanted, |seen| cluster(seen).nodes[1].label = None), [Aspect::Labels]);
    assert_eq!(after(&wanted, |seen| cluster(seen).pods[3].ready = false), [Aspect::Pods]);
    assert_eq!(after(&wanted, |seen| cluster(seen).pods.push(pod("pinned", WEB, "demo-3"))), [Aspect::Pods]);
    assert_eq!(after(&wanted, |seen| seen.machines[1].processes.clear()), [Aspect::Pods], "they only seem ready");
    assert_eq!(after(&wanted, |seen| cluster(seen).user = "eve".to_owned()), [Aspect::Access]);
    assert_eq!(after(&wanted, |seen| seen.machines[1].boot = "disabled".to_owned()), [Aspect::Files]);
    assert_eq!(after(&wanted, |seen| seen.machines[2].paths = vec!["etc/cni".to_owned()]), [Aspect::Residue]);
}

#[test]
fn difference_in_the_api_fails_the_aspect_that_it_is_about() {
    for (field, aspect) in [
        ("cordon", Aspect::Cordons),
        ("labels.rack", Aspect::Labels),
        ("kube_node", Aspect::Nodes),
        ("config", Aspect::Files),
        ("state", Aspect::Members),
    ] {
        assert_eq!(after(&expected(), |seen| seen.api.differences.push(difference(field))), [aspect], "{field}");
    }
    assert_eq!(after(&expected(), |seen| seen.api.unknown.push("its cluster".to_owned())), [Aspect::Members]);
}

#[test]
fn pods_may_neither_stay_on_a_drained_node_nor_come_back_under_other_names() {
    let mut wanted = expected();
    wanted.set_drained("demo-2", true);
    let drained = |seen: &mut Observation| {
        seen.api.members[1].state = "drained".to_owned();
        cluster(seen).nodes[1].schedulable = false;
    };
    assert_eq!(after(&wanted, drained), [Aspect::Pods], "web-2 is still on demo-2");
    let moved = |seen: &mut Observation| {
        drained(seen);
        cluster(seen).pods[1].node = "demo-1".to_owned();
        seen.machines[0].processes.push(PROCESS.to_owned());
    };
    assert_eq!(after(&wanted, moved), NONE);
    let kept = Expected { kept: vec!["web-9".to_owned()], ..expected() };
    assert_eq!(after(&kept, |_| ()), [Aspect::Pods]);
    let busy = Expected { busy: Some("demo-3"), ..expected() };
    assert_eq!(after(&busy, |_| ()), [Aspect::Pods]);
}

#[test]
fn stopped_cluster_must_be_silent_and_its_nodes_idle() {
    let wanted = Expected { lifecycle: Lifecycle::Stopped, ..expected() };
    let stopped = |seen: &mut Observation| {
        (seen.api.lifecycle, seen.kubectl) = ("stopped".to_owned(), Kubectl::NoAnswer("connection refused".to_owned()));
        seen.api.members.iter_mut().for_each(|member| member.state = "stopped".to_owned());
        for machine in &mut seen.machines {
            "inactive".clone_into(&mut machine.unit);
            machine.processes.clear();
        }
    };
    assert_eq!(after(&wanted, stopped), NONE);
    let left = |seen: &mut Observation| {
        stopped(seen);
        seen.machines[1].processes.push("containerd-shim".to_owned());
    };
    assert_eq!(after(&wanted, left), [Aspect::Processes]);
    let answering = |seen: &mut Observation| {
        let kubectl = seen.kubectl.clone();
        stopped(seen);
        seen.kubectl = kubectl;
    };
    assert_eq!(after(&wanted, answering), [Aspect::Nodes]);
}

#[test]
fn changed_configuration_fails_in_files() {
    let wanted = Expected { config: Some(("demo-2", "token-file: t\n".to_owned())), ..expected() };
    let with = |text: &'static str| move |seen: &mut Observation| seen.machines[1].config = Some(text.to_owned());
    assert_eq!(after(&wanted, with("token-file: t\n")), NONE);
    assert_eq!(after(&wanted, with("token-file: t\n# changed by hand\n")), [Aspect::Files]);
    assert_eq!(after(&wanted, |_| ()), [Aspect::Files]);
}

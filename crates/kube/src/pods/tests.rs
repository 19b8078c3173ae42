use serde_json::{Value, json};

use super::*;

fn pod(change: impl Fn(&mut Value)) -> Pod {
    let mut pod = json!({
        "metadata": {
            "namespace": "web", "name": "api-1", "uid": "u1",
            "ownerReferences": [{"kind": "ReplicaSet", "name": "api", "controller": true}],
        },
        "spec": {"volumes": [{"name": "token", "projected": {}}]},
        "status": {"phase": "Running"},
    });
    change(&mut pod);
    serde_json::from_value::<FoundPod>(pod).unwrap().checked().unwrap()
}

fn owned_by(kind: &'static str) -> impl Fn(&mut Value) {
    move |pod| pod["metadata"]["ownerReferences"][0]["kind"] = kind.into()
}

fn without_controller(pod: &mut Value) {
    pod["metadata"]["ownerReferences"][0]["controller"] = false.into();
}

fn with_empty_dir(pod: &mut Value) {
    pod["spec"]["volumes"] = json!([{"name": "token"}, {"name": "cache", "emptyDir": {}}]);
}

const CAREFUL: DrainOptions = DrainOptions { force: false, delete_empty_dir_data: false };
const FORCE: DrainOptions = DrainOptions { force: true, delete_empty_dir_data: false };
const DELETE: DrainOptions = DrainOptions { force: false, delete_empty_dir_data: true };
const BOTH: DrainOptions = DrainOptions { force: true, delete_empty_dir_data: true };

fn decide(pod: &Pod, options: DrainOptions) -> Disposition {
    pod.disposition(options, &DaemonSets::new())
}

#[test]
fn pod_with_a_controller_is_evicted_and_one_without_needs_force() {
    assert_eq!(decide(&pod(|_| {}), CAREFUL), Disposition::Evict);
    let bare = pod(without_controller);
    assert_eq!(decide(&bare, CAREFUL), Disposition::Needs(FORCE));
    assert_eq!(decide(&bare, DELETE), Disposition::Needs(FORCE));
    assert_eq!(decide(&bare, FORCE), Disposition::Evict);
}

#[test]
fn empty_dir_needs_its_own_option() {
    let cached = pod(with_empty_dir);
    assert_eq!(decide(&cached, FORCE), Disposition::Needs(DELETE));
    assert_eq!(decide(&cached, DELETE), Disposition::Evict);
    let bare = pod(|pod| {
        with_empty_dir(pod);
        without_controller(pod);
    });
    assert_eq!(decide(&bare, CAREFUL), Disposition::Needs(BOTH));
    assert_eq!(decide(&bare, BOTH), Disposition::Evict);
}

#[test]
fn pod_of_a_daemon_set_stays_unless_the_daemon_set_is_gone() {
    let of = pod(owned_by("DaemonSet"));
    let name = of.daemon_set().unwrap().clone();
    assert_eq!(name.to_string(), "web/api");
    let decide = |options, exists| of.disposition(options, &DaemonSets::from([(name.clone(), exists)]));
    assert_eq!(decide(BOTH, true), Disposition::StayOfDaemonSet);
    assert_eq!(decide(CAREFUL, false), Disposition::Needs(FORCE));
    assert_eq!(decide(FORCE, false), Disposition::Evict);
}

#[test]
fn mirror_pod_stays_under_every_option() {
    let mirror = pod(|pod| {
        owned_by("Node")(pod);
        with_empty_dir(pod);
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "abc"});
    });
    for options in [CAREFUL, BOTH] {
        assert_eq!(decide(&mirror, options), Disposition::StayAsMirror);
    }
    let bare = pod(|pod| {
        without_controller(pod);
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "abc"});
    });
    assert_eq!(decide(&bare, CAREFUL), Disposition::StayAsMirror);
}

#[test]
fn finished_and_ending_pods_need_no_option() {
    for phase in ["Succeeded", "Failed"] {
        for owner in ["Job", "DaemonSet"] {
            let finished = pod(|pod| {
                owned_by(owner)(pod);
                with_empty_dir(pod);
                pod["status"]["phase"] = phase.into();
            });
            assert_eq!(decide(&finished, CAREFUL), Disposition::Evict, "{phase} {owner}");
        }
        let bare = pod(|pod| {
            without_controller(pod);
            pod["status"]["phase"] = phase.into();
        });
        assert_eq!(decide(&bare, CAREFUL), Disposition::Evict, "{phase}");
    }
    let ending = pod(|pod| {
        without_controller(pod);
        pod["metadata"]["deletionTimestamp"] = "2026-07-01T00:00:00Z".into();
    });
    assert_eq!(decide(&ending, CAREFUL), Disposition::Await);
}

#[test]
fn pod_whose_name_would_leave_a_path_or_a_line_is_refused() {
    for bad in ["", "a/b", "../x", "a\nb", "\u{1b}[31m"] {
        let found = json!({"metadata": {"namespace": "web", "name": bad}});
        let error = serde_json::from_value::<FoundPod>(found).unwrap().checked().unwrap_err();
        assert!(matches!(error, KubeError::Unreadable(_)) && !error.to_string().contains('\u{1b}'), "{error}");
        let owner = json!([{"kind": "DaemonSet", "name": bad, "controller": true}]);
        let found = json!({"metadata": {"namespace": "web", "name": "api", "ownerReferences": owner}});
        assert!(serde_json::from_value::<FoundPod>(found).unwrap().checked().is_err(), "{bad:?}");
    }
}

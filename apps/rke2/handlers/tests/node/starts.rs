//! Starts: of masked units, and the evidence of those that fail.

use futures::{FutureExt, future::LocalBoxFuture};
use gpuaas_app_rke2_tasks::Rke2Start;
use gpuaas_host::{UnitFileState, now};
use gpuaas_model::Timestamp;
use serde_json::json;

use crate::{Case, sandbox::Node};

const UNIT: &str = "rke2-server.service";
const CAUSE: &str =
    r#"E1127 00:17:37.123456    1234 run.go:72] "command failed" err="failed to load kubelet config file""#;

pub(crate) fn cases() -> Vec<(&'static str, Case)> {
    vec![
        ("start_lifts_a_mask", start_lifts_a_mask as Case),
        ("start_after_a_stop_is_of_a_later_second", start_after_a_stop_is_of_a_later_second),
        ("failure_has_the_cause_from_the_kubelets_log", failure_has_the_cause_from_the_kubelets_log),
    ]
}

fn start_lifts_a_mask(node: &Node) -> LocalBoxFuture<'_, ()> {
    async move {
        node.with_rke2().await;
        std::os::unix::fs::symlink("/dev/null", node.path("/etc/systemd/system").join(UNIT)).unwrap();
        let started = node.task::<Rke2Start>(json!({ "role": "server", "give_up_on": [], "restarts_max": 0 })).await;
        assert_eq!(started.unwrap().unit.active, "active");
        assert_eq!(node.host.units().unit_file_state(UNIT).await.unwrap(), UnitFileState::Enabled);
    }
    .boxed_local()
}

fn start_after_a_stop_is_of_a_later_second(node: &Node) -> LocalBoxFuture<'_, ()> {
    async move {
        node.with_rke2().await;
        let task = || node.task::<Rke2Start>(json!({ "role": "server", "give_up_on": [], "restarts_max": 0 }));
        let start = async || task().await.unwrap().started_at.expect("the init knows it");
        let first = start().await;
        assert_eq!(start().await, first, "a unit that runs is not started again");
        node.file("/var/lib/kubelet/pki/kubelet.crt", 0o600, "of the first kubelet");
        node.host.units().stop(UNIT).await.unwrap();
        let stopped = now();
        let second = start().await;
        let in_seconds = |at: Timestamp| at.as_millis() / 1_000;
        assert!(in_seconds(stopped) < in_seconds(second), "stopped at {stopped}, started at {second}");
    }
    .boxed_local()
}

fn failure_has_the_cause_from_the_kubelets_log(node: &Node) -> LocalBoxFuture<'_, ()> {
    async move {
        node.with_rke2().await;
        // A second until the restart, in which all lines are read.
        let unit = "[Service]\nType=notify\nRestart=always\nRestartSec=1s\nExecStart=/usr/local/bin/rke2 server\n\
                    [Install]\nWantedBy=multi-user.target\n";
        node.file(&format!("/usr/local/lib/systemd/system/{UNIT}"), 0o644, unit);
        node.file("/var/lib/rancher/rke2/agent/logs/kubelet.log", 0o640, &format!("I1127 ordinary\n{CAUSE}\n"));
        let start = || node.task::<Rke2Start>(json!({ "role": "server", "give_up_on": [], "restarts_max": 0 }));
        for (line, has_cause) in
            [("level=fatal msg=other", false), ("level=error msg=\"Kubelet exited: exit 1\"", true)]
        {
            // The line is followed by more than a failure's journal holds.
            node.program("rke2", &format!("echo '{line}'\nfor n in $(seq 100); do echo line $n; done\nexit 1"));
            let failure = start().await.unwrap_err();
            let last = failure.journal.last().unwrap();
            assert_eq!(last.text == format!("kubelet.log: {CAUSE}"), has_cause, "{line}: {}", last.text);
            assert!(failure.journal.len() <= gpuaas_wire::task::TaskFailure::JOURNAL_LINES_MAX);
        }
    }
    .boxed_local()
}

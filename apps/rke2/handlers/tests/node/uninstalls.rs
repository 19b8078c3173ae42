//! Uninstalls: what they found and removed, also after an interruption.

use futures::{FutureExt, future::LocalBoxFuture};
use gpuaas_app_rke2_tasks::Rke2Uninstall;
use serde_json::json;

use crate::{Case, sandbox::Node};

pub(crate) fn cases() -> Vec<(&'static str, Case)> {
    vec![
        ("uninstall_lists_what_it_found_and_removed", uninstall_lists_what_it_found_and_removed as Case),
        ("interrupted_uninstall_reports_what_it_found_first", interrupted_uninstall_reports_what_it_found_first),
        ("uninstall_without_rke2_lists_nothing", uninstall_without_rke2_lists_nothing),
    ]
}

async fn installed(node: &Node, script: &str) {
    node.with_rke2().await;
    node.file("/etc/rancher/rke2/token", 0o600, "x");
    node.file("/etc/cni/net.d/10-other.conf", 0o600, "x");
    node.program("rke2-uninstall.sh", script);
}

fn uninstall_lists_what_it_found_and_removed(node: &Node) -> LocalBoxFuture<'_, ()> {
    async move {
        installed(node, "rm -r $root/etc/rancher $root/usr/local/lib/systemd/system/rke2-server.service\nrm $0").await;
        let paths = ["/usr/local/bin/rke2", "/var/lib/rancher"];
        let ended = node.task::<Rke2Uninstall>(json!({ "paths": paths })).await.unwrap();
        let removed = [
            "/etc/rancher",
            "/usr/local/bin/rke2",
            "/usr/local/bin/rke2-uninstall.sh",
            "/usr/local/lib/systemd/system/rke2-server.service",
            "/var/lib/rancher",
            "rke2-server.service",
        ];
        assert_eq!(ended.exit_status, Some(0));
        assert_eq!(ended.removed, removed);
        assert_eq!(ended.found, [&["/etc/cni"], &removed[..]].concat(), "the script left a path that it should remove");
        let again = node.task::<Rke2Uninstall>(json!({ "paths": paths })).await.unwrap();
        assert_eq!((again.exit_status, again.found, again.removed), (None, Vec::new(), Vec::new()));
    }
    .boxed_local()
}

fn interrupted_uninstall_reports_what_it_found_first(node: &Node) -> LocalBoxFuture<'_, ()> {
    async move {
        installed(node, "rm -r $root/etc/rancher\nrm $0\n: > $root/run/begun\nexec sleep 1000").await;
        let uninstall = || node.task::<Rke2Uninstall>(json!({ "paths": ["/usr/local/bin/rke2"] }));
        tokio::select! {
            biased;
            ended = uninstall() => panic!("the script hangs, but the task ended: {ended:?}"),
            () = node.until("the script runs", async || node.path("/run/begun").exists()) => {}
        }
        let ended = uninstall().await.unwrap();
        assert_eq!(ended.exit_status, Some(0), "a script that removed itself has completed");
        let removed = ["/etc/rancher", "/usr/local/bin/rke2", "/usr/local/bin/rke2-uninstall.sh"];
        assert_eq!(ended.removed, removed);
        assert!(ended.found.contains(&"rke2-server.service".to_owned()), "{:?}", ended.found);
    }
    .boxed_local()
}

fn uninstall_without_rke2_lists_nothing(node: &Node) -> LocalBoxFuture<'_, ()> {
    async move {
        node.file("/etc/cni/net.d/10-other.conf", 0o600, "x");
        let ended = node.task::<Rke2Uninstall>(json!({})).await.unwrap();
        assert_eq!((ended.found, ended.removed), (Vec::new(), Vec::new()), "this belongs to other software");
    }
    .boxed_local()
}

//! Stops that end everything, and the unit's state at the next boot.

use futures::{FutureExt, future::LocalBoxFuture};
use gpuaas_app_rke2_tasks::{Rke2Enable, Rke2Stop};
use gpuaas_host::UnitFileState;
use gpuaas_model::Code;
use serde_json::json;

use crate::{Case, sandbox::Node};

const UNIT: &str = "rke2-server.service";
/// Ends the shims of this node and fails, as a script that ends with any status.
const KILLALL: &str = "echo ran >> $root/run/killalls\n\
                       for exe in /proc/[0-9]*/exe; do\n\
                         case $(readlink $exe) in $root/var/lib/rancher/*) pid=${exe#/proc/}; kill -9 ${pid%/exe};; esac\n\
                       done\n\
                       exit 1";

pub(crate) fn cases() -> Vec<(&'static str, Case)> {
    vec![
        ("plain_stop_leaves_shims_and_enablement", plain_stop_leaves_shims_and_enablement as Case),
        ("kill_all_ends_shims_and_disables_and_is_not_repeated", kill_all_ends_shims_and_disables_and_is_not_repeated),
        ("interrupted_kill_all_is_finished", interrupted_kill_all_is_finished),
        ("survivors_of_a_killall_that_succeeds_are_named", survivors_of_a_killall_that_succeeds_are_named),
        ("shims_without_a_script_are_a_failure_and_no_installation_is_none", shims_without_a_script_are_a_failure),
        ("enable_lifts_a_mask_and_starts_nothing", enable_lifts_a_mask_and_starts_nothing),
    ]
}

async fn running(node: &Node) {
    node.with_rke2().await;
    node.program("rke2-killall.sh", KILLALL);
    node.host.units().enable(UNIT).await.unwrap();
    node.start_by_hand().await;
}

async fn state(node: &Node) -> UnitFileState {
    node.host.units().unit_file_state(UNIT).await.unwrap()
}

fn plain_stop_leaves_shims_and_enablement(node: &Node) -> LocalBoxFuture<'_, ()> {
    async move {
        running(node).await;
        assert!(node.task::<Rke2Stop>(json!({ "role": "server" })).await.unwrap().changed);
        assert_eq!((node.shims().await, state(node).await), (1, UnitFileState::Enabled));
        assert!(!node.task::<Rke2Stop>(json!({ "role": "server" })).await.unwrap().changed);
    }
    .boxed_local()
}

fn kill_all_ends_shims_and_disables_and_is_not_repeated(node: &Node) -> LocalBoxFuture<'_, ()> {
    async move {
        running(node).await;
        let stop = async || node.task::<Rke2Stop>(json!({ "role": "server", "kill_all": true })).await.unwrap();
        assert!(stop().await.changed);
        assert_eq!((node.shims().await, state(node).await), (0, UnitFileState::Disabled));
        assert!(!stop().await.changed, "nothing was left to do");
        assert_eq!(std::fs::read_to_string(node.path("/run/killalls")).unwrap(), "ran\n");
        // A killall that was interrupted leaves the manifests, which it removes last.
        node.file("/var/lib/rancher/rke2/agent/pod-manifests/etcd.yaml", 0o644, "");
        assert!(stop().await.changed);
        assert_eq!(std::fs::read_to_string(node.path("/run/killalls")).unwrap(), "ran\nran\n");
    }
    .boxed_local()
}

fn interrupted_kill_all_is_finished(node: &Node) -> LocalBoxFuture<'_, ()> {
    async move {
        running(node).await;
        let killall = std::fs::read_to_string(node.path("/usr/local/bin/rke2-killall.sh")).unwrap();
        node.program("rke2-killall.sh", ": > $root/run/begun\nexec sleep 1000");
        let stop = || node.task::<Rke2Stop>(json!({ "role": "server", "kill_all": true }));
        tokio::select! {
            biased;
            ended = stop() => panic!("the script hangs, but the task ended: {ended:?}"),
            () = node.until("the script runs", async || node.path("/run/begun").exists()) => {}
        }
        assert_eq!((node.shims().await, state(node).await), (1, UnitFileState::Disabled));
        node.file("/usr/local/bin/rke2-killall.sh", 0o755, &killall);
        assert!(stop().await.unwrap().changed);
        assert_eq!(node.shims().await, 0);
    }
    .boxed_local()
}

fn survivors_of_a_killall_that_succeeds_are_named(node: &Node) -> LocalBoxFuture<'_, ()> {
    async move {
        running(node).await;
        node.program("rke2-killall.sh", "exit 0");
        let failure = node.task::<Rke2Stop>(json!({ "role": "server", "kill_all": true })).await.unwrap_err();
        assert_eq!(failure.code, Code::HostFailed);
        let shim = "/var/lib/rancher/rke2/data/v1/bin/containerd-shim-runc-v2 (";
        assert!(failure.message.contains(shim) && failure.message.contains("ended with 0"), "{}", failure.message);
    }
    .boxed_local()
}

fn shims_without_a_script_are_a_failure(node: &Node) -> LocalBoxFuture<'_, ()> {
    async move {
        let stop = || node.task::<Rke2Stop>(json!({ "role": "server", "kill_all": true }));
        assert!(!stop().await.unwrap().changed, "nothing is installed");
        running(node).await;
        std::fs::remove_file(node.path("/usr/local/bin/rke2-killall.sh")).unwrap();
        let failure = stop().await.unwrap_err();
        assert!(failure.message.contains("rke2-killall.sh does not exist"), "{}", failure.message);
    }
    .boxed_local()
}

fn enable_lifts_a_mask_and_starts_nothing(node: &Node) -> LocalBoxFuture<'_, ()> {
    async move {
        node.with_rke2().await;
        std::os::unix::fs::symlink("/dev/null", node.path("/etc/systemd/system").join(UNIT)).unwrap();
        node.host.units().daemon_reload().await.unwrap();
        assert_eq!(state(node).await, UnitFileState::Masked);
        assert!(node.task::<Rke2Enable>(json!({ "role": "server" })).await.unwrap().changed);
        assert_eq!(state(node).await, UnitFileState::Enabled);
        assert_eq!(node.host.units().unit(UNIT).await.unwrap().unwrap().active, "inactive");
        assert!(!node.task::<Rke2Enable>(json!({ "role": "server" })).await.unwrap().changed);
        let failure = node.task::<Rke2Enable>(json!({ "role": "agent" })).await.unwrap_err();
        assert_eq!(failure.code, Code::HostFailed, "the agent's unit is not installed: {}", failure.message);
    }
    .boxed_local()
}

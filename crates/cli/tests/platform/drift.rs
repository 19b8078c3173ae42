//! Changes by hand on a node: the platform corrects them by itself, says so, and restarts nothing.

use std::{collections::BTreeSet, fs, os::unix::fs::symlink};

use gpuaas_client::AuditQuery;
use serde_json::Value;

use crate::world::{PROJECT, Platform, eventually};

const CONFIG: &str = "etc/rancher/rke2/config.yaml";
const MASK: &str = "etc/systemd/system/rke2-agent.service";
const ENABLED: &str = ".sandbox/enabled";

/// The processes of RKE2, without those with which a drift check reads the version.
fn rke2_processes(platform: &Platform) -> BTreeSet<i32> {
    let is_rke2 = |text: &str| {
        let mut words = text.split(' ');
        words.next().is_some_and(|program| program.ends_with("/rke2")) && words.next() != Some("--version")
    };
    platform.processes().into_iter().filter(|(_, text)| is_rke2(text)).map(|(pid, _)| pid).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_file_and_masked_unit_are_corrected_by_the_platform_without_a_restart() {
    let platform = Platform::with_release(2, &[]).await;
    let client = platform.client();
    let started = client.deploy_workload(&platform.deployment("train", &[2]).await).await.expect("accepted");
    let deployed = platform.await_end(&started).await;
    assert_eq!(deployed.operation.state, "succeeded", "{:?}", deployed.operation.fault);
    let workload = async || client.get_workload(Some(PROJECT.into()), "train").await.expect("a workload").workload;
    let generation = workload().await.generation;
    let etag = client.workload_etag(Some(PROJECT.into()), "train").await.expect("an ETag");
    let [config, mask, enabled] = [CONFIG, MASK, ENABLED].map(|path| platform.node_file(2, path));
    let written = fs::read_to_string(&config).expect("the platform wrote it");
    assert!(fs::read_to_string(&enabled).expect("readable").contains("rke2-agent.service"));
    let running = rke2_processes(&platform);

    fs::write(&config, format!("{written}node-label: [by-hand=yes]\n")).expect("written");
    fs::write(&enabled, "").expect("written");
    fs::create_dir_all(mask.parent().expect("a folder")).expect("made");
    symlink("/dev/null", &mask).expect("masked");

    eventually("the file stays as it was changed", async || {
        fs::read_to_string(&config).is_ok_and(|now| now == written)
    })
    .await;
    eventually("the unit stays masked or disabled", async || {
        mask.symlink_metadata().is_err()
            && fs::read_to_string(&enabled).is_ok_and(|names| names.contains("rke2-agent.service"))
    })
    .await;
    eventually("the drift stays", async || {
        let workload = workload().await;
        workload.drift.is_none() && workload.recovery == "none"
    })
    .await;
    let left: Vec<i32> = running.difference(&rke2_processes(&platform)).copied().collect();
    assert!(!running.is_empty() && left.is_empty(), "these of {running:?} ended: {left:?}");
    assert_eq!(workload().await.generation, generation, "nothing that the tenant wants has changed");

    let operations = client.list_operations(Some(PROJECT.into()), Some("train".into()), None).await.expect("listed");
    let own: Vec<_> = operations.items.iter().filter(|operation| operation.kind == "reconcile").collect();
    assert!(!own.is_empty() && own.iter().all(|operation| operation.requested_by == "control-plane"), "{own:?}");
    let reason = own[0].reason.clone().expect("a reason");
    assert!(reason.contains("agent-1: "), "{reason}");
    let query = AuditQuery { action: Some("operation.start".into()), ..AuditQuery::default() };
    let audit = client.list_audit(&query).await.expect("records").items;
    assert!(audit.iter().all(|record| record.actor == "control-plane" && record.actor_type == "control_plane"));
    assert_eq!((audit.len(), &audit[0].metadata["reason"]), (own.len(), &Value::from(reason.clone())));
    let listed = platform.gpuaas(&["operation", "list", "--project", PROJECT]).stdout;
    assert!(String::from_utf8_lossy(&listed).contains("control-plane"));
    let shown = platform.gpuaas(&["operation", "show", &own[0].id]).stdout;
    assert!(String::from_utf8_lossy(&shown).contains(&format!("REASON   {reason}")));
    // A request with the ETag from before: only the platform changed the workload since.
    let seen = client.clone().with_if_match(etag);
    let removed = seen.decommission_workload(Some(PROJECT.into()), "train").await.expect("accepted");
    assert_eq!(platform.await_end(&removed).await.operation.state, "succeeded");
}

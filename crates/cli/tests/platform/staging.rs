//! Artifacts that a node stages between download and installation, while its tenant is root.

use std::{fs, path::Path};

use gpuaas_api_types::{Artifact, CreateAllocation, CreateProject};
use gpuaas_crash_points::Point;
use gpuaas_model::TaskType;

use crate::{
    artifacts::{ARCHIVE, IMAGES, release_of},
    world::{PROJECT, Platform, eventually, import_request, until},
};

const VERSION: &str = "v1.0.0";
const STAGING: &str = "var/lib/gpuaas-agent/artifacts";
const PROGRAM: &str = "#!/bin/sh\ntest \"$1\" = --version && echo rke2 version v1.0.0\n";
/// Exits at once, so that a start fails soon.
const UNIT: &str = "[Service]\nType=notify\nExecStart=/usr/local/bin/rke2 server\nRestart=always\nRestartSec=100ms\n\
                    [Install]\nWantedBy=multi-user.target\n";

fn script(name: &str) -> String {
    fs::read_to_string(format!("{}/../standin/package/bin/{name}", env!("CARGO_MANIFEST_DIR"))).expect("a script")
}

/// Overwrites every staged artifact with other bytes of the same length.
fn poison(staging: &Path, imported: &[Artifact]) {
    for artifact in imported {
        let poison = vec![b'x'; usize::try_from(artifact.size_bytes).expect("a size")];
        fs::write(staging.join(&artifact.sha256), poison).expect("written");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn poisoned_staged_artifact_is_not_installed_and_staging_is_removed_with_the_workload() {
    let releases = tempfile::tempdir().expect("a folder");
    let files = [
        ("bin/rke2", PROGRAM.to_owned()),
        ("bin/rke2-killall.sh", script("rke2-killall.sh")),
        ("bin/rke2-uninstall.sh", script("rke2-uninstall.sh")),
        ("lib/systemd/system/rke2-server.service", UNIT.to_owned()),
    ];
    let release = release_of(releases.path(), VERSION, &files);
    let platform = tokio::task::block_in_place(|| Platform::start(1));
    let client = platform.client();
    let imported = client.import_artifacts(&import_request(&release)).await.expect("imported").items;
    client.create_project(&CreateProject { name: PROJECT.to_owned() }).await.expect("made");
    let ask = CreateAllocation { project: PROJECT.to_owned(), node: "demo-1".to_owned() };
    client.create_allocation(&ask).await.expect("made");
    eventually("the allocation does not become active", async || {
        let list = client.list_allocations(Some(PROJECT.to_owned()), None).await.expect("listed");
        list.items.iter().all(|allocation| allocation.state == "active")
    })
    .await;

    // A former tenant left files under the digests of the release, each of the right length.
    let staging = platform.node_file(1, STAGING);
    fs::create_dir_all(&staging).expect("made");
    poison(&staging, &imported);
    // The present tenant replaces files between download and installation.
    let laying_out = Point::TaskBegun(TaskType::Rke2Install).to_string();
    let points = platform.node_file(1, gpuaas_crash_points::FOLDER_OF_SANDBOX);
    fs::create_dir_all(&points).expect("made");
    fs::write(points.join(&laying_out), "").expect("armed");
    let started = client.deploy_workload(&platform.deployment("train", &[]).await).await.expect("accepted");
    let reached = points.join(format!("{laying_out}.reached"));
    tokio::task::block_in_place(|| until("the installation does not begin", || reached.exists()));
    for artifact in &imported {
        let fetched = fs::read(staging.join(&artifact.sha256)).expect("staged");
        assert_eq!(gpuaas_trust::sha256_hex(&fetched), artifact.sha256, "a poisoned file was reused");
    }
    poison(&staging, &imported);
    platform.signal_agent(1, "CONT");
    let ended = platform.await_end(&started).await;
    let step = |key: &str| ended.steps.iter().find(|step| step.key == key).map(|step| step.state.clone());
    let laid_out = (step("server-1/fetch"), step("server-1/install"));
    assert_eq!(laid_out, (Some("succeeded".to_owned()), Some("succeeded".to_owned())), "{:?}", ended.operation.fault);
    let read = |path: &str| fs::read(platform.node_file(1, path)).expect("a file");
    assert_eq!(read("usr/local/bin/rke2"), PROGRAM.as_bytes());
    let images = fs::read(release.join(IMAGES)).expect("images");
    assert_eq!(read(&format!("var/lib/rancher/rke2/agent/images/{IMAGES}")), images);
    assert!(imported.iter().any(|artifact| artifact.name == ARCHIVE));

    let removed = client.decommission_workload(Some(PROJECT.to_owned()), "train").await.expect("accepted");
    let removed = platform.await_end(&removed).await;
    assert_eq!(removed.operation.state, "succeeded", "{:?}", removed.operation.fault);
    assert!(!staging.exists(), "staged artifacts remain");
}

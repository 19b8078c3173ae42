//! Releases that must not be imported: each says what is wrong with it, and nothing of it is offered.

use std::{
    fs,
    path::{Path, PathBuf},
};

use gpuaas_api_types::ImportRelease;
use gpuaas_client::ClientError;

use crate::world::{Platform, release};

const ARCHIVE: &str = "rke2.linux-amd64.tar.gz";
const SUMS: &str = "sha256sum-amd64.txt";

/// A copy of the stand-in's release that a test may spoil.
fn copy(platform: &Platform, name: &str) -> PathBuf {
    let folder = platform.folder.join(name);
    fs::create_dir_all(&folder).expect("made");
    for entry in fs::read_dir(release()).expect("a release").flatten() {
        fs::copy(entry.path(), folder.join(entry.file_name())).expect("copied");
    }
    folder
}

fn replace_sum(folder: &Path, name: &str) {
    let digest = gpuaas_trust::sha256_hex(&fs::read(folder.join(name)).expect("a file"));
    let sums = fs::read_to_string(folder.join(SUMS)).expect("sums");
    let lines = sums.lines().map(|line| match line.split_once("  ") {
        Some((_, of)) if of == name => format!("{digest}  {name}\n"),
        _ => format!("{line}\n"),
    });
    fs::write(folder.join(SUMS), lines.collect::<String>()).expect("written");
}

/// An archive with one entry whose path leads out of it.
fn leading_out() -> Vec<u8> {
    let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut archive = tar::Builder::new(gzip);
    let mut header = tar::Header::new_gnu();
    let path = b"bin/../../../etc/cron.d/own";
    header.as_mut_bytes()[..path.len()].copy_from_slice(path);
    header.set_size(4);
    header.set_mode(0o644);
    header.set_cksum();
    archive.append(&header, &b"evil"[..]).expect("appended");
    archive.into_inner().and_then(flate2::write::GzEncoder::finish).expect("packed")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_not_what_its_sums_say_or_leads_out_of_itself_is_refused_whole() {
    let platform = Platform::start(0);
    let client = platform.client();
    let import = async |source: String, version: Option<&str>| {
        let ask = ImportRelease { app: "rke2".into(), version: version.map(str::to_owned), source };
        match client.import_artifacts(&ask).await {
            Err(ClientError::Problem(problem)) => problem.code,
            other => panic!("it is not refused with a problem: {other:?}"),
        }
    };
    let of = |folder: PathBuf| folder.to_string_lossy().into_owned();

    let changed = copy(&platform, "changed");
    let mut bytes = fs::read(changed.join(ARCHIVE)).expect("an archive");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(changed.join(ARCHIVE), &bytes).expect("written");
    assert_eq!(import(of(changed), None).await, "artifact_digest_mismatch");

    let truncated = copy(&platform, "truncated");
    let file = fs::File::options().write(true).open(truncated.join(ARCHIVE)).expect("an archive");
    file.set_len(100_000).expect("cut");
    assert_eq!(import(of(truncated), None).await, "artifact_truncated");

    let out = copy(&platform, "leading-out");
    fs::write(out.join(ARCHIVE), leading_out()).expect("written");
    replace_sum(&out, ARCHIVE);
    assert_eq!(import(of(out), None).await, "artifact_unsafe_path");

    let missing = copy(&platform, "missing");
    fs::remove_file(missing.join(ARCHIVE)).expect("removed");
    assert_eq!(import(of(missing), None).await, "artifact_missing");

    let unlisted = copy(&platform, "unlisted");
    fs::write(unlisted.join(SUMS), "").expect("written");
    assert_eq!(import(of(unlisted), None).await, "artifact_unlisted");

    assert_eq!(import("http://releases.example/v1".into(), None).await, "field_invalid");
    assert_eq!(import("../release".into(), None).await, "field_invalid");
    assert_eq!(import(of(copy(&platform, "good")), Some("../../etc")).await, "field_invalid");
    assert_eq!(import("https://127.0.0.1:1/v1".into(), None).await, "unavailable");

    assert!(client.list_artifacts().await.expect("a list").items.is_empty(), "nothing is offered");
    assert_eq!(client.get_app("rke2").await.expect("an app").status, "draft");
}

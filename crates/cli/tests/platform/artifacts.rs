//! Releases that the control plane must refuse to import: each refusal names the defect, and none of the release is offered.

use std::{
    fs,
    path::{Path, PathBuf},
};

use gpuaas_api_types::{CreateProject, CreateToken, ImportRelease, Problem};
use gpuaas_client::{AuditQuery, ClientError};

use crate::world::{Platform, release};

pub(crate) const ARCHIVE: &str = "rke2.linux-amd64.tar.gz";
pub(crate) const IMAGES: &str = "rke2-images.linux-amd64.tar.zst";
const SUMS: &str = "sha256sum-amd64.txt";

/// Copies the stand-in's release into a folder in which a test may damage it.
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

/// Returns an archive with one entry whose path escapes the extraction folder.
fn escaping_archive() -> Vec<u8> {
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

/// Returns an import request for the app's release, with `source` left empty.
fn empty_request() -> ImportRelease {
    ImportRelease { app: "rke2".into(), version: None, source: String::new(), sums_sha256: None, signature: None }
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> Problem {
    match answer {
        Err(ClientError::Problem(problem)) => *problem,
        other => panic!("expected a problem document, got {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn release_with_wrong_sums_or_escaping_paths_is_refused() {
    let platform = Platform::start(0);
    let client = platform.client();
    let import = async |source: String, version: Option<&str>| {
        let ask = ImportRelease { version: version.map(str::to_owned), source, ..empty_request() };
        assert_refused(client.import_artifacts(&ask).await).code
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
    fs::write(out.join(ARCHIVE), escaping_archive()).expect("written");
    replace_sum(&out, ARCHIVE);
    assert_eq!(import(of(out), None).await, "artifact_unsafe_path");

    let missing = copy(&platform, "missing");
    fs::remove_file(missing.join(ARCHIVE)).expect("removed");
    assert_eq!(import(of(missing), None).await, "artifact_missing");

    let unlisted = copy(&platform, "unlisted");
    fs::write(unlisted.join(SUMS), "").expect("written");
    assert_eq!(import(of(unlisted), None).await, "checksum_missing");

    assert_eq!(import("http://releases.example/v1".into(), None).await, "field_invalid");
    assert_eq!(import("../release".into(), None).await, "field_invalid");
    assert_eq!(import(of(copy(&platform, "good")), Some("../../etc")).await, "field_invalid");
    assert_eq!(import("https://127.0.0.1:1/v1".into(), None).await, "release_unreachable");

    assert!(client.list_artifacts().await.expect("a list").items.is_empty(), "an artifact is listed");
    assert_eq!(client.get_app("rke2").await.expect("an app").status, "draft");
}

/// Writes a valid release of the smallest possible files; returns its folder.
fn small_release(within: &Path, version: &str) -> PathBuf {
    release_of(within, version, &[])
}

/// Like [`small_release`], with these programs and units in its archive.
pub(crate) fn release_of(within: &Path, version: &str, files: &[(&str, String)]) -> PathBuf {
    // One Zstandard frame with one block of 1,024 zeros, which is an empty tar.
    const EMPTY_TAR_ZST: [u8; 11] = [0x28, 0xb5, 0x2f, 0xfd, 0x60, 0x00, 0x03, 0x03, 0x20, 0x00, 0x00];
    let folder = within.join(version);
    fs::create_dir_all(&folder).expect("made");
    let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(if name.starts_with("bin/") { 0o755 } else { 0o644 });
        archive.append_data(&mut header, name, text.as_bytes()).expect("appended");
    }
    let archive = archive.into_inner().and_then(flate2::write::GzEncoder::finish).expect("packed");
    let mut sums = String::new();
    for (name, bytes) in [(ARCHIVE, &archive[..]), (IMAGES, &EMPTY_TAR_ZST[..])] {
        fs::write(folder.join(name), bytes).expect("written");
        sums.push_str(&format!("{}  {name}\n", gpuaas_trust::sha256_hex(bytes)));
    }
    fs::write(folder.join(SUMS), sums).expect("written");
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn release_needs_a_digest_or_trusted_signature_which_its_record_names() {
    let releases = tempfile::tempdir().expect("a folder");
    let releases = releases.path().canonicalize().expect("a path");
    let pair = minisign::KeyPair::generate_unencrypted_keypair().expect("a key");
    let settings = [
        ("GPUAAS_ALLOW_UNVERIFIED_RELEASES", "false"),
        ("GPUAAS_RELEASE_IMPORT_DIR", releases.to_str().expect("text")),
        ("GPUAAS_RELEASE_TRUSTED_KEYS", &pair.pk.to_base64()),
    ];
    let platform = Platform::start_with(0, &settings);
    let client = platform.client();
    let ask = |folder: &Path| ImportRelease { source: folder.to_string_lossy().into_owned(), ..empty_request() };

    let first = small_release(&releases, "v1.0.0");
    let problem = assert_refused(client.import_artifacts(&ask(&first)).await);
    assert_eq!((problem.code.as_str(), problem.status), ("release_unverified", 422));
    let sums = fs::read(first.join(SUMS)).expect("sums");
    let sha256 = gpuaas_trust::sha256_hex(&sums);
    for (digest, code) in [(&sha256[1..], "field_invalid"), (&"0".repeat(64)[..], "artifact_digest_mismatch")] {
        let ask = ImportRelease { sums_sha256: Some(digest.to_owned()), ..ask(&first) };
        assert_eq!(assert_refused(client.import_artifacts(&ask).await).code, code, "{digest}");
    }
    assert!(client.list_artifacts().await.expect("a list").items.is_empty(), "an artifact is listed");
    let by_digest = ImportRelease { sums_sha256: Some(sha256.clone()), ..ask(&first) };
    let imported = client.import_artifacts(&by_digest).await.expect("imported").items;
    assert_eq!(imported[0].verified_by, Some(format!("sums-sha256:{sha256}")));

    let second = small_release(&releases, "v2.0.0");
    let signature = minisign::sign(None, &pair.sk, std::io::Cursor::new(&sums), None, None).expect("signed");
    fs::write(second.join(format!("{SUMS}.minisig")), signature.into_string()).expect("written");
    let imported = client.import_artifacts(&ask(&second)).await.expect("imported").items;
    let by_key = imported[0].verified_by.clone().expect("a recorded verification");
    assert!(by_key.starts_with("key:") && by_key.len() == "key:".len() + 16, "{by_key}");

    let audit = client.list_audit(&AuditQuery::default()).await.expect("listed").items;
    let kept = |by: &str| audit.iter().any(|of| of.action == "artifact.import" && of.metadata["verified_by"] == by);
    assert!(kept(&format!("sums-sha256:{sha256}")) && kept(&by_key), "{audit:#?}");
    let events = client.list_events(None, 0).await.expect("listed").items;
    assert!(events.iter().any(|of| of.kind == "artifact.imported" && of.data["verified_by"] == by_key), "{events:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn release_source_is_shown_only_to_platform_roles() {
    let releases = tempfile::tempdir().expect("a folder");
    let releases = releases.path().canonicalize().expect("a path");
    let platform = Platform::start(0);
    let admin = platform.client();
    let folder = small_release(&releases, "v1.0.0").to_string_lossy().into_owned();
    admin.import_artifacts(&ImportRelease { source: folder.clone(), ..empty_request() }).await.expect("imported");
    admin.create_project(&CreateProject { name: "tenants".to_owned() }).await.expect("made");
    for (role, is_shown) in [("platform-operator", true), ("project-admin", false), ("viewer", false)] {
        let project = (!is_shown).then(|| "tenants".to_owned());
        let ask = CreateToken { name: role.to_owned(), role: role.to_owned(), project, ttl_seconds: Some(600) };
        let secret = admin.create_token(&ask).await.expect("a token").secret;
        let listed = platform.client_with(&secret).list_artifacts().await.expect("listed").items;
        assert_eq!(listed.len(), 2, "{role}");
        for artifact in listed {
            assert_eq!(artifact.source, is_shown.then(|| folder.clone()), "{role}");
            assert_eq!(artifact.verified_by, is_shown.then(|| "nothing".to_owned()), "{role}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_sources_get_identical_refusals() {
    let releases = tempfile::tempdir().expect("a folder");
    let releases = releases.path().canonicalize().expect("a path");
    let import_dir = releases.join("own");
    fs::create_dir(&import_dir).expect("made");
    let platform = Platform::start_with(0, &[("GPUAAS_RELEASE_IMPORT_DIR", import_dir.to_str().expect("text"))]);
    let client = platform.client();
    let elsewhere = small_release(&releases, "v1.0.0").to_string_lossy().into_owned();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let open = listener.local_addr().expect("an address").port();
    let mut answers = std::collections::BTreeSet::new();
    for source in [
        elsewhere,
        import_dir.join("nowhere").to_string_lossy().into_owned(),
        "/etc".to_owned(),
        format!("https://127.0.0.1:{open}/v1"),
        "https://127.0.0.1:1/v1".to_owned(),
        "https://no.such.name.invalid/v1".to_owned(),
    ] {
        let problem = assert_refused(client.import_artifacts(&ImportRelease { source, ..empty_request() }).await);
        answers.insert((problem.code, problem.detail, problem.next));
    }
    assert_eq!(answers.len(), 1, "{answers:#?}");
    listener.set_nonblocking(true).expect("set");
    assert!(listener.accept().is_err(), "a private address was connected to");
}

//! Files: written completely or not at all, only when they change, and only at their path.

use camino::Utf8Path;
use gpuaas_host::{Changed, ContentId, FileSpec, HostError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{Backend, Bench};

pub async fn second_write_changes_nothing_and_a_new_mode_is_a_change(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let path = "/etc/contract/config";
    assert_eq!(bench.file(path, 0o600, "a: 1").await, Changed::Yes);
    assert_eq!(bench.file(path, 0o600, "a: 1").await, Changed::No);
    assert_eq!(bench.file(path, 0o640, "a: 1").await, Changed::Yes);
    assert_eq!(bench.file(path, 0o640, "a: 2").await, Changed::Yes);
    let mode = bench.run(&format!("stat -c %a $root{path}")).await;
    assert_eq!((mode.output.trim(), bench.text(path).await.as_str()), ("640", "a: 2"));
    assert_eq!(bench.host.files().list("/etc/contract".into()).await.unwrap(), ["config"], "no draft remains");
}

pub async fn reader_of_a_replaced_file_reads_the_old_content(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let path = "/etc/contract/config";
    bench.file(path, 0o600, &"old".repeat(50_000)).await;
    let mut reader = bench.host.files().open(path.into()).await.unwrap();
    let mut text = vec![0; 3];
    reader.read_exact(&mut text).await.unwrap();
    bench.file(path, 0o600, "new").await;
    reader.read_to_end(&mut text).await.unwrap();
    assert_eq!(String::from_utf8(text).unwrap(), "old".repeat(50_000));
    assert_eq!(bench.text(path).await, "new");
}

pub async fn missing_folders_are_created(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    assert_eq!(bench.file("/var/lib/contract/a/b/file", 0o600, "x").await, Changed::Yes);
    assert_eq!(bench.host.files().list("/var/lib/contract/a".into()).await.unwrap(), ["b"]);
    let folder = Utf8Path::new("/var/lib/contract/own");
    assert_eq!(bench.host.files().make_folder(folder, 0o700).await.unwrap(), Changed::Yes);
    assert_eq!(bench.host.files().make_folder(folder, 0o700).await.unwrap(), Changed::No);
    assert_eq!(bench.host.files().make_folder(folder, 0o755).await.unwrap(), Changed::Yes);
    assert_eq!(bench.run(&format!("stat -c %a $root{folder}")).await.output.trim(), "755");
    bench.file("/var/lib/contract/file", 0o600, "no folder").await;
    let under = FileSpec { path: "/var/lib/contract/file/x".into(), mode: 0o600, content: Vec::new() };
    assert!(matches!(bench.host.files().write(&under).await, Err(HostError::File { .. })), "a file is not a folder");
}

pub async fn link_is_replaced_and_its_target_stays(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.file("/var/lib/contract/precious", 0o640, "precious").await;
    bench.run("ln -s precious $root/var/lib/contract/link").await;
    assert_eq!(bench.file("/var/lib/contract/link", 0o600, "new").await, Changed::Yes);
    assert_eq!(bench.text("/var/lib/contract/link").await, "new");
    assert_eq!(bench.text("/var/lib/contract/precious").await, "precious");
    // The drafts of copies and writes do not follow links either.
    bench.run("cd $root/var/lib/contract && ln -s precious .copied.draft && ln -s precious .written.draft").await;
    let (from, to) = (Utf8Path::new("/var/lib/contract/link"), Utf8Path::new("/var/lib/contract/copied"));
    bench.host.files().copy_verified(from, to, 0o600, ContentId::of(b"new")).await.unwrap();
    bench.file("/var/lib/contract/written", 0o600, "new").await;
    assert_eq!(bench.text("/var/lib/contract/precious").await, "precious");
}

pub async fn removal_does_not_follow_links(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.file("/var/lib/contract/kept/file", 0o600, "kept").await;
    bench.file("/var/lib/contract/gone/deep/file", 0o600, "gone").await;
    bench
        .run("cd $root/var/lib/contract && ln -s ../kept gone/link && ln -s kept link && ln -s nowhere dangling")
        .await;
    for path in ["/var/lib/contract/link", "/var/lib/contract/gone", "/var/lib/contract/dangling"] {
        assert!(bench.host.files().exists(path.into()).await.unwrap(), "{path}");
        assert_eq!(bench.host.files().remove(path.into()).await.unwrap(), Changed::Yes, "{path}");
        assert_eq!(bench.host.files().remove(path.into()).await.unwrap(), Changed::No, "{path}");
        assert!(!bench.host.files().exists(path.into()).await.unwrap(), "{path}");
    }
    assert_eq!(bench.host.files().remove("/nowhere/at/all".into()).await.unwrap(), Changed::No);
    assert_eq!(bench.text("/var/lib/contract/kept/file").await, "kept");
}

pub async fn second_copy_changes_nothing_and_the_mode_is_set(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let (from, to) = (Utf8Path::new("/var/lib/contract/from"), Utf8Path::new("/var/lib/contract/to/copy"));
    let (x, y) = ("x".repeat(200_000), "y".repeat(200_000));
    let copy =
        async |bytes: &str| bench.host.files().copy_verified(from, to, 0o644, ContentId::of(bytes.as_bytes())).await;
    bench.file(from.as_str(), 0o600, &x).await;
    assert_eq!(copy(&x).await.unwrap(), Changed::Yes);
    assert_eq!(copy(&x).await.unwrap(), Changed::No);
    assert_eq!(bench.run(&format!("stat -c %a $root{to}")).await.output.trim(), "644");
    bench.file(from.as_str(), 0o600, &y).await;
    assert_eq!(copy(&x).await.unwrap(), Changed::No, "the copy already has the requested content");
    assert_eq!(copy(&y).await.unwrap(), Changed::Yes);
    assert_eq!(bench.text(to.as_str()).await, y);
    assert_eq!(bench.host.files().list("/var/lib/contract/to".into()).await.unwrap(), ["copy"]);
}

pub async fn copy_with_another_digest_is_refused(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let (from, to) = (Utf8Path::new("/var/lib/contract/from"), Utf8Path::new("/var/lib/contract/to/copy"));
    bench.file(from.as_str(), 0o600, "evil bytes").await;
    for other in ["good bytes", "good", "good bytes and more"] {
        let id = ContentId::of(other.as_bytes());
        let refused = bench.host.files().copy_verified(from, to, 0o644, id).await;
        assert!(matches!(refused, Err(HostError::ContentMismatch { .. })), "{other}: {refused:?}");
        let refused = bench.host.files().read_verified(from, id).await;
        assert!(matches!(refused, Err(HostError::ContentMismatch { .. })), "{other}: {refused:?}");
        assert!(!bench.host.files().has_content(from, id).await.unwrap(), "{other}");
    }
    assert_eq!(bench.host.files().list("/var/lib/contract/to".into()).await.unwrap(), [""; 0]);
    let own = ContentId::of(b"evil bytes");
    assert_eq!(bench.host.files().read_verified(from, own).await.unwrap(), b"evil bytes");
    assert!(bench.host.files().has_content(from, own).await.unwrap());
    // The right length, but other content.
    bench.file(to.as_str(), 0o644, "good bytes").await;
    assert_eq!(bench.host.files().copy_verified(from, to, 0o644, own).await.unwrap(), Changed::Yes);
    assert_eq!(bench.text(to.as_str()).await, "evil bytes");
}

pub async fn file_writable_by_others_is_not_trusted(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let (from, to) = (Utf8Path::new("/var/lib/contract/from"), Utf8Path::new("/var/lib/contract/copy"));
    let id = ContentId::of(b"good bytes");
    for spoil in ["chmod 666 from", "ln from other", "mkfifo pipe && mv pipe from", "ln -s good from"] {
        bench.host.files().remove("/var/lib/contract".into()).await.unwrap();
        bench.file("/var/lib/contract/good", 0o600, "good bytes").await;
        if !spoil.starts_with("ln -s") {
            bench.file(from.as_str(), 0o600, "good bytes").await;
            assert!(bench.host.files().has_content(from, id).await.unwrap());
        }
        bench.run(&format!("cd $root/var/lib/contract && {spoil}")).await;
        assert!(!bench.host.files().has_content(from, id).await.unwrap(), "{spoil}");
        let read = bench.host.files().read_verified(from, id).await;
        assert!(matches!(read, Err(HostError::UnsafePath { .. })), "{spoil}: {read:?}");
        let appended = bench.host.files().append(from).await.map(drop);
        assert!(matches!(appended, Err(HostError::UnsafePath { .. })), "{spoil}: {appended:?}");
        // A copy's content is checked, not its source's, and the copy has one name and one writer.
        if matches!(spoil, "chmod 666 from" | "ln from other") {
            assert_eq!(bench.host.files().copy_verified(from, to, 0o644, id).await.unwrap(), Changed::Yes, "{spoil}");
            assert!(bench.host.files().has_content(to, id).await.unwrap(), "{spoil}");
        }
    }
}

pub async fn appends_of_two_clients_are_in_order(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let path = Utf8Path::new("/var/lib/contract/ledger");
    for (client, line) in [(bench.host.clone(), "one\n"), (backend.client(), "two\n")] {
        let mut file = client.files().append(path).await.unwrap();
        file.write_all(line.as_bytes()).await.unwrap();
        file.flush().await.unwrap();
        client.files().sync(path).await.unwrap();
    }
    assert_eq!(bench.text(path.as_str()).await, "one\ntwo\n");
    assert_eq!(bench.run(&format!("stat -c %a $root{path}")).await.output.trim(), "600");
    bench.host.files().rename(path, Utf8Path::new("/var/lib/contract/other")).await.unwrap();
    assert_eq!(bench.host.files().list("/var/lib/contract".into()).await.unwrap(), ["other"]);
}

pub async fn file_longer_than_the_limit_is_refused(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let path = Utf8Path::new("/var/lib/contract/file");
    assert_eq!(bench.host.files().read(path, 3).await.unwrap(), None);
    bench.file(path.as_str(), 0o600, "four").await;
    assert_eq!(bench.host.files().read(path, 4).await.unwrap().unwrap(), b"four");
    assert!(matches!(bench.host.files().read(path, 3).await, Err(HostError::TooLong { bytes_max: 3, .. })));
    for bad in ["var/lib", "/var/../etc/passwd", ""] {
        assert!(matches!(bench.host.files().read(bad.into(), 3).await, Err(HostError::InvalidPath { .. })), "{bad}");
    }
}

pub async fn file_owner_is_the_user_of_the_host(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let own = bench.run("id -u; id -g").await.output.replace('\n', " ");
    if !own.starts_with("0 ") {
        return eprintln!("NOT RUN: changing owners needs root");
    }
    let (file, folder, copy) = ("/var/lib/contract/folder/file", "/var/lib/contract/folder", "/var/lib/contract/copy");
    let lay_out = async || {
        let written = bench.file(file, 0o600, "x").await;
        let made = bench.host.files().make_folder(folder.into(), 0o700).await.unwrap();
        let copied = bench.host.files().copy_verified(file.into(), copy.into(), 0o600, ContentId::of(b"x")).await;
        [written, made, copied.unwrap()]
    };
    assert_eq!(lay_out().await, [Changed::Yes; 3]);
    assert_eq!(lay_out().await, [Changed::No; 3]);
    let all = format!("$root{file} $root{folder} $root{copy}");
    let owners = format!("stat -c '%u %g' {all}");
    bench.run(&format!("chown 12345:12345 {all}")).await;
    assert_eq!(bench.run(&owners).await.output, "12345 12345\n".repeat(3));
    assert_eq!(lay_out().await, [Changed::Yes; 3]);
    assert_eq!(bench.run(&owners).await.output, "0 0\n".repeat(3));
}

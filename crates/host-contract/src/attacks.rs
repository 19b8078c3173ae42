//! File operations as root on a machine whose tenant is also root: nothing that a tenant plants redirects what the agent reads and writes.

use std::time::Duration;

use camino::Utf8Path;
use gpuaas_host::{Changed, ContentId, FileSpec, HostError};

use crate::{Backend, Bench};

/// An operation on a planted object must end, with success or an error, long before this.
const HANGS_AFTER: Duration = Duration::from_secs(5);
const FOLDER: &str = "/var/lib/contract";

fn at(name: &str) -> camino::Utf8PathBuf {
    Utf8Path::new(FOLDER).join(name)
}

/// Asserts that the operation is refused as unfit, and in time.
async fn refused<T>(what: &str, operation: impl Future<Output = Result<T, HostError>>) {
    let ended = tokio::time::timeout(HANGS_AFTER, operation).await;
    match ended {
        Ok(Err(HostError::UnsafePath { .. })) => {}
        Ok(Err(other)) => panic!("{what} is refused for another reason: {other}"),
        Ok(Ok(_)) => panic!("{what} succeeds"),
        Err(_) => panic!("{what} hangs"),
    }
}

/// Asserts that every operation that would have to follow the link is refused.
async fn everything_is_refused(bench: &Bench, path: &Utf8Path) {
    let (host, free) = (&bench.host, at("free"));
    refused("a read", host.files().read(path, 100)).await;
    refused("an open", host.files().open(path)).await;
    refused("a size query", host.files().size(path)).await;
    refused("a sync", host.files().sync(path)).await;
    refused("an append", host.files().append(path)).await;
    refused("a copy", host.files().copy_verified(path, &free, 0o600, ContentId::of(b"x"))).await;
    refused("a verified read", host.files().read_verified(path, ContentId::of(b"x"))).await;
    assert!(!host.files().exists(&free).await.unwrap());
}

pub async fn link_in_a_path_is_not_followed(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.file(at("victim/file").as_str(), 0o640, "precious").await;
    bench.file(at("own").as_str(), 0o600, "own").await;
    bench.run(&format!("cd $root{FOLDER} && ln -s victim planted && ln -s $root{FOLDER}/victim absolute")).await;
    let host = &bench.host;
    for link in ["planted", "absolute"] {
        let (inside, new) = (at(link).join("file"), at(link).join("new"));
        everything_is_refused(&bench, &inside).await;
        let file = FileSpec { path: new.clone(), mode: 0o600, content: b"x".to_vec() };
        refused("a write", host.files().write(&file)).await;
        refused("a new folder", host.files().make_folder(&new, 0o700)).await;
        refused("a folder in place of the link", host.files().make_folder(&at(link), 0o711)).await;
        refused("a removal", host.files().remove(&inside)).await;
        refused("a removal of an empty folder", host.files().remove_empty_folder(&new)).await;
        refused("a rename to it", host.files().rename(&at("own"), &new)).await;
        refused("a rename from it", host.files().rename(&inside, &at("free"))).await;
        refused("a copy to it", host.files().copy_verified(&at("own"), &new, 0o600, ContentId::of(b"own"))).await;
        refused("a list", host.files().list(&at(link))).await;
        refused("an existence check", host.files().exists(&inside)).await;
    }
    assert_eq!(host.files().list(&at("victim")).await.unwrap(), ["file"]);
    assert_eq!(
        bench.run(&format!("cat $root{FOLDER}/victim/file; stat -c %a $root{FOLDER}/victim")).await.output,
        "precious755\n"
    );
}

pub async fn link_in_place_of_a_file_is_not_followed(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.file(at("precious").as_str(), 0o640, "precious").await;
    bench.run(&format!("cd $root{FOLDER} && ln -s precious link && ln -s made dangling")).await;
    everything_is_refused(&bench, &at("link")).await;
    everything_is_refused(&bench, &at("dangling")).await;
    assert_eq!(bench.host.files().list(FOLDER.into()).await.unwrap(), ["dangling", "link", "precious"]);
    assert_eq!(bench.text(at("precious").as_str()).await, "precious");
}

pub async fn hard_linked_file_is_not_changed(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.file(at("precious").as_str(), 0o640, "precious").await;
    bench.run(&format!("cd $root{FOLDER} && ln precious other")).await;
    refused("an append", bench.host.files().append(&at("other"))).await;
    // The content and mode match, but the file has a second name through which it could be changed later.
    assert_eq!(bench.file(at("other").as_str(), 0o640, "precious").await, Changed::Yes);
    assert_eq!(bench.file(at("other").as_str(), 0o600, "new").await, Changed::Yes);
    assert_eq!(bench.text(at("precious").as_str()).await, "precious");
    assert_eq!(bench.run(&format!("stat -c '%a %h' $root{FOLDER}/precious")).await.output.trim(), "640 1");
}

pub async fn named_pipe_does_not_block_operations(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.run(&format!("mkdir -p $root{FOLDER} && mkfifo $root{FOLDER}/pipe")).await;
    everything_is_refused(&bench, &at("pipe")).await;
    let tree = bench.host.inventory().tree();
    let text = tokio::task::spawn_blocking(move || tree.text(at("pipe").as_str()));
    assert_eq!(tokio::time::timeout(HANGS_AFTER, text).await.expect("reading a pipe hangs").unwrap(), None);
    assert_eq!(bench.file(at("pipe").as_str(), 0o600, "a file").await, Changed::Yes);
    assert_eq!(bench.text(at("pipe").as_str()).await, "a file");
}

pub async fn device_is_not_opened(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let made = bench.run(&format!("mkdir -p $root{FOLDER} && mknod $root{FOLDER}/device c 1 3")).await;
    if made.status != Some(0) {
        return eprintln!("NOT RUN: creating a device needs root: {}", made.output);
    }
    everything_is_refused(&bench, &at("device")).await;
    assert_eq!(bench.host.inventory().tree().text(at("device").as_str()), None);
    assert_eq!(bench.host.files().remove(&at("device")).await.unwrap(), Changed::Yes);
}

pub async fn mount_is_neither_emptied_nor_appended_to(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.file(at("precious/file").as_str(), 0o640, "precious").await;
    bench.file(at("going/own").as_str(), 0o600, "own").await;
    let text = format!(
        "cd $root{FOLDER} && mkdir going/mounted && touch ledger && \
         mount --bind precious going/mounted && mount --bind precious/file ledger"
    );
    let mounted = bench.run(&text).await;
    let tried = async {
        if mounted.status != Some(0) {
            return None;
        }
        let appended = bench.host.files().append(&at("ledger")).await.map(drop);
        let removed = bench.host.files().remove(&at("going")).await.map(drop);
        Some((appended, removed))
    };
    let tried = tried.await;
    bench.run(&format!("cd $root{FOLDER}; umount going/mounted; umount ledger")).await;
    let Some((appended, removed)) = tried else {
        return eprintln!("NOT RUN: mounting needs root: {}", mounted.output);
    };
    refused("an append", std::future::ready(appended)).await;
    refused("a removal", std::future::ready(removed)).await;
    assert_eq!(bench.text(at("precious/file").as_str()).await, "precious");
}

pub async fn removal_of_a_folder_keeps_link_targets(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.file(at("precious/file").as_str(), 0o640, "precious").await;
    let text = format!(
        "cd $root{FOLDER} && mkdir -p going/a/b && ln -s ../../precious going/a/link && ln precious/file going/a/b/other && mkfifo going/pipe"
    );
    bench.run(&text).await;
    assert_eq!(bench.host.files().remove(&at("going")).await.unwrap(), Changed::Yes);
    assert_eq!(bench.host.files().list(FOLDER.into()).await.unwrap(), ["precious"]);
    assert_eq!(bench.text(at("precious/file").as_str()).await, "precious");
}

pub async fn links_of_distributions_are_followed(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    // A unit of the distribution is found under either path, whether `/lib` is merged or not. A sandbox has no such unit.
    if backend.is_machine() {
        let unit = bench.run("cd /lib/systemd/system && ls -d multi-user.target").await;
        assert_eq!(unit.output.trim(), "multi-user.target");
        assert!(bench.host.files().exists("/lib/systemd/system/multi-user.target".into()).await.unwrap());
        assert!(bench.host.files().exists("/usr/lib/systemd/system/multi-user.target".into()).await.unwrap());
        return;
    }
    bench.file("/usr/lib/contract/file", 0o600, "x").await;
    bench.run("ln -s usr/lib $root/lib && ln -s ../run $root/var/run").await;
    assert_eq!(bench.text("/lib/contract/file").await, "x");
    bench.file("/var/run/contract", 0o600, "y").await;
    assert_eq!(bench.text("/run/contract").await, "y");
    // The distribution's target counts, whatever the link contains.
    bench.run("rm $root/lib && mkdir -p $root/elsewhere/contract && ln -s elsewhere $root/lib").await;
    bench.file("/lib/contract/file", 0o600, "z").await;
    assert_eq!(bench.text("/usr/lib/contract/file").await, "z");
    assert_eq!(bench.run("ls $root/elsewhere/contract").await.output, "");
}

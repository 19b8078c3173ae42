use std::{
    fs,
    os::unix::fs::symlink,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use camino::Utf8PathBuf;

use super::*;
use crate::removal;

fn write(root: &Root, file: &FileSpec) -> Result<Changed, HostError> {
    let (_caller, cancellation) = Cancellation::new();
    super::write(root, file, &cancellation)
}

fn copy(root: &Root, from: &str, to: &str, bytes: &[u8]) -> Result<Changed, HostError> {
    let (_caller, cancellation) = Cancellation::new();
    copy_verified(root, from.into(), to.into(), 0o600, ContentId::of(bytes), &cancellation)
}

fn remove(root: &Root, path: &str) -> Result<Changed, HostError> {
    root.place(path.into())?.map_or(Ok(Changed::No), |place| removal::remove(&place))
}

fn root() -> (tempfile::TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    let path = Utf8PathBuf::from_path_buf(folder.path().to_owned()).unwrap();
    (folder, Root::new(path))
}

fn file(path: &str, content: &str) -> FileSpec {
    FileSpec { path: path.into(), mode: 0o600, content: content.as_bytes().to_vec() }
}

#[test]
fn second_write_changes_nothing_and_a_new_mode_is_a_change() {
    let (_folder, root) = root();
    let mut file = file("/etc/rancher/config", "a: 1");
    assert_eq!(write(&root, &file).unwrap(), Changed::Yes);
    assert_eq!(write(&root, &file).unwrap(), Changed::No);
    file.mode = 0o640;
    assert_eq!(write(&root, &file).unwrap(), Changed::Yes);
    assert_eq!(list(&root, "/etc/rancher".into()).unwrap(), ["config"]);
    assert_eq!(read(&root, &file.path, 100).unwrap().unwrap(), b"a: 1");
    assert!(matches!(read(&root, &file.path, 3), Err(HostError::TooLong { .. })));
}

#[test]
fn a_draft_planted_as_a_link_is_not_followed() {
    let (folder, root) = root();
    fs::create_dir(folder.path().join("etc")).unwrap();
    let victim = folder.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, folder.path().join("etc/.x.draft")).unwrap();
    write(&root, &file("/etc/x", "new")).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

#[test]
fn failed_write_leaves_no_draft() {
    let (_folder, root) = root();
    make_folder(&root, "/etc/taken".into(), 0o750).unwrap();
    assert!(write(&root, &file("/etc/taken", "a")).is_err(), "a folder cannot be replaced");
    write(&root, &file("/etc/from", "a")).unwrap();
    assert!(copy(&root, "/etc/from", "/etc/taken", b"a").is_err());
    assert!(matches!(copy(&root, "/etc/from", "/etc/to", b"b"), Err(HostError::ContentMismatch { .. })));
    assert_eq!(list(&root, "/etc".into()).unwrap(), ["from", "taken"]);
}

#[test]
fn removing_a_missing_path_changes_nothing() {
    let (_folder, root) = root();
    assert_eq!(remove(&root, "/nowhere/x").unwrap(), Changed::No);
    make_folder(&root, "/a/b".into(), 0o750).unwrap();
    assert_eq!(make_folder(&root, "/a/b".into(), 0o750).unwrap(), Changed::No);
    assert_eq!(remove(&root, "/a").unwrap(), Changed::Yes);
}

#[test]
fn depth_of_a_removal_is_bounded() {
    let (folder, root) = root();
    let mut deep = folder.path().join("deep");
    for _ in 0..100 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    let refused = remove(&root, "/deep").unwrap_err();
    assert!(matches!(refused, HostError::UnsafePath { .. }), "{refused}");
    fs::create_dir_all(folder.path().join("wide")).unwrap();
    for name in 0..3_000 {
        fs::write(folder.path().join("wide").join(name.to_string()), "").unwrap();
    }
    assert_eq!(remove(&root, "/wide").unwrap(), Changed::Yes);
}

/// Swaps a folder with a link to another one in a loop, until `stop` is set.
fn swapping(folder: &std::path::Path, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<u32> {
    let (own, planted) = (folder.join("own"), folder.join("planted"));
    std::thread::spawn(move || {
        let mut swaps = 0;
        while !stop.load(Ordering::Relaxed) {
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(rustix::fs::CWD, &own, rustix::fs::CWD, &planted, exchange).unwrap();
            swaps += 1;
        }
        swaps
    })
}

#[test]
fn folder_swapped_for_a_link_does_not_redirect_writes() {
    const ROUNDS: usize = 500;
    let (folder, root) = root();
    for made in ["own/sub", "victim/sub"] {
        fs::create_dir_all(folder.path().join(made)).unwrap();
    }
    fs::write(folder.path().join("victim/sub/old"), "precious").unwrap();
    symlink("victim", folder.path().join("planted")).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = swapping(folder.path(), stop.clone());
    let mut done = 0;
    for round in 0..ROUNDS {
        // Either refused, or done in the folder that the path led to at the lookup.
        done += usize::from(write(&root, &file(&format!("/own/sub/{round}"), "x")).is_ok());
        drop(open_append(&root, "/own/sub/old".into()));
        drop(remove(&root, "/own/sub/old"));
        drop(make_folder(&root, "/own/sub/made".into(), 0o700));
    }
    stop.store(true, Ordering::Relaxed);
    let swaps = swapper.join().unwrap();
    assert!(swaps > 0 && done < ROUNDS, "no write met a swap: {swaps} swaps, {done} writes");
    let victim: Vec<_> =
        fs::read_dir(folder.path().join("victim/sub")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(victim, ["old"], "{done} of {ROUNDS} writes");
    assert_eq!(fs::read_to_string(folder.path().join("victim/sub/old")).unwrap(), "precious");
}

#[test]
fn cancelled_copy_does_not_replace_the_file() {
    const BYTES: u64 = 256 << 20;
    let (folder, root) = root();
    fs::File::create(folder.path().join("from")).unwrap().set_len(BYTES).unwrap();
    let (caller, cancellation) = Cancellation::new();
    let (to, real) = (root.clone(), folder.path().join("x/to"));
    let zeros = ContentId { sha256: Sha256::of(b""), size_bytes: BYTES };
    let copying =
        std::thread::spawn(move || copy_verified(&to, "/from".into(), "/x/to".into(), 0o600, zeros, &cancellation));
    drop(caller);
    assert!(matches!(copying.join().unwrap(), Err(HostError::Cancelled)));
    assert!(!real.exists());
    assert!(list(&root, "/x".into()).unwrap().is_empty(), "no draft remains");
}

#[test]
fn append_and_overwrite_keep_the_same_file() {
    let (folder, root) = root();
    write(&root, &file("/var/notes", "one two")).unwrap();
    let inode = |path: &str| std::os::unix::fs::MetadataExt::ino(&fs::metadata(folder.path().join(path)).unwrap());
    let before = inode("var/notes");
    append_bytes(&root, "/var/notes".into(), b" three", Durable::OnReturn).unwrap();
    overwrite(&root, "/var/notes".into(), 4, b"TWO", Durable::Later).unwrap();
    assert_eq!(read(&root, "/var/notes".into(), 100).unwrap().unwrap(), b"one TWO three");
    assert_eq!(inode("var/notes"), before);
    // Overwriting never extends a file; neither call creates a file or follows a link.
    overwrite(&root, "/var/notes".into(), 11, b"long", Durable::OnReturn).unwrap_err();
    overwrite(&root, "/var/notes".into(), u64::MAX, b"x", Durable::OnReturn).unwrap_err();
    symlink(folder.path().join("var/notes"), folder.path().join("var/link")).unwrap();
    for path in ["/var/none", "/var/link", "/none/notes"] {
        append_bytes(&root, path.into(), b"x", Durable::OnReturn).unwrap_err();
        overwrite(&root, path.into(), 0, b"x", Durable::OnReturn).unwrap_err();
    }
    assert_eq!(read(&root, "/var/notes".into(), 100).unwrap().unwrap(), b"one TWO three");
    assert_eq!(list(&root, "/var".into()).unwrap(), ["link", "notes"]);
    assert!(!folder.path().join("none").exists());
}

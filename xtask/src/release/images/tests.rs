use std::collections::HashSet;
use std::fs;
use std::io::Read as _;

use camino::Utf8PathBuf;

use super::*;
use crate::components::ComponentFile;

const NODE: [&str; 11] = [
    "kubernetes",
    "containerd",
    "containerd-shim-runc-v2",
    "runc",
    "coredns",
    "flanneld",
    "bridge",
    "host-local",
    "loopback",
    "portmap",
    "pause",
];

fn programs(dir: &Utf8Path, names: &[&str]) -> ComponentsDir {
    fs::create_dir_all(dir).unwrap();
    for name in names {
        fs::write(dir.join(name), name).unwrap();
    }
    let file = |name: &&str| ComponentFile { name: (*name).to_owned(), sha256: "00".to_owned(), size: 0 };
    ComponentsDir { dir: dir.to_owned(), files: names.iter().map(file).collect() }
}

/// Names and contents of an archive of small programs, in archive order.
fn archive(dir: &Utf8Path) -> Vec<(String, Vec<u8>)> {
    let (control_plane, node) = (programs(&dir.join("c"), &["etcd"]), programs(&dir.join("n"), &NODE));
    // A program that runs and prints its arguments.
    std::os::unix::fs::symlink("/bin/echo", node.program("busybox")).unwrap();
    let charts: Utf8PathBuf = dir.join("charts");
    fs::create_dir_all(&charts).unwrap();
    fs::write(charts.join("a.yaml"), "a").unwrap();
    let (target, scratch) = (dir.join("images.tar.zst"), dir.join("scratch"));
    fs::create_dir_all(&scratch).unwrap();
    let sources = Sources { control_plane: &control_plane, node: Some(&node), charts: &charts };
    write(&sources, &target, &scratch).unwrap();
    let mut tar = tar::Archive::new(zstd::Decoder::new(File::open(&target).unwrap()).unwrap());
    let entries = tar.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (entry.path().unwrap().display().to_string(), content)
    });
    entries.collect()
}

#[test]
fn archive_begins_with_its_lists_and_contains_shared_layers_once() {
    let dir = tempfile::tempdir().unwrap();
    let entries = archive(Utf8Path::from_path(dir.path()).unwrap());
    assert_eq!([&entries[0].0, &entries[1].0], ["components.json", "manifest.json"]);
    let names: HashSet<&String> = entries.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), entries.len(), "the archive contains an entry twice");
    for (name, content) in &entries[2..] {
        assert_eq!(*name.split('.').next().unwrap(), hex::encode(digest(&SHA256, content)), "{name}");
    }
    let images: Vec<Value> = serde_json::from_slice(&entries[1].1).unwrap();
    assert_eq!(images.len(), IMAGES.len());
    assert!(images[0]["RepoTags"][0].as_str().unwrap().starts_with(RUNTIME));
    let layers = |image: &Value| -> Vec<String> { serde_json::from_value(image["Layers"].clone()).unwrap() };
    for image in &images {
        let configuration = image["Config"].as_str().unwrap().to_owned();
        assert!(layers(image).iter().chain([&configuration]).all(|name| names.contains(name)), "{image}");
    }
    let first: Vec<&String> = entries.iter().map(|(name, _)| name).filter(|name| name.ends_with(".tar")).collect();
    assert_eq!(first[..2], layers(&images[0]).iter().collect::<Vec<_>>());
}

#[test]
fn program_with_several_names_is_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let entries = archive(Utf8Path::from_path(dir.path()).unwrap());
    let (_, layer) = entries.iter().find(|(name, _)| name.ends_with(".tar")).unwrap();
    let mut tar = tar::Archive::new(layer.as_slice());
    let found: Vec<(String, tar::EntryType)> = tar
        .entries()
        .unwrap()
        .map(Result::unwrap)
        .map(|entry| (entry.path().unwrap().display().to_string(), entry.header().entry_type()))
        .collect();
    assert_eq!(found[0], ("bin/kubelet".to_owned(), tar::EntryType::Regular));
    assert!(found[1..].iter().all(|(_, kind)| *kind == tar::EntryType::Link) && found.len() == 6, "{found:?}");
}

//! The images archive: a list of the components' paths on this machine for sandbox nodes, and the images for booted ones.
//!
//! The list comes first, so that sandbox nodes need not read further. A full archive continues in the format of `docker save`: a manifest,
//! and each configuration and layer once under its digest, those of the runtime image first. Layers are shared: the six Kubernetes programs
//! are one file in one layer, which the runtime image uses too.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;

use anyhow::Context as _;
use aws_lc_rs::digest::{SHA256, digest};
use camino::Utf8Path;
use serde_json::{Value, json};

use super::layer::{Content, Entry, Layer, files_of, header};
use crate::components::{ComponentsDir, VERSION};

/// Image with the programs that a node runs directly; its name is part of a path on the node.
const RUNTIME: &str = "index.docker.io/rancher/rke2-runtime";
/// Name, layers from bottom to top, and default command.
const IMAGES: [(&str, &[&str], &str); 10] = [
    (RUNTIME, &["kubernetes", "runtime"], "/bin/kubelet"),
    ("docker.io/stand-in/kube-apiserver", &["kubernetes"], "/bin/kube-apiserver"),
    ("docker.io/stand-in/kube-controller-manager", &["kubernetes"], "/bin/kube-controller-manager"),
    ("docker.io/stand-in/kube-scheduler", &["kubernetes"], "/bin/kube-scheduler"),
    ("docker.io/stand-in/kube-proxy", &["kubernetes"], "/bin/kube-proxy"),
    ("docker.io/stand-in/etcd", &["etcd"], "/bin/etcd"),
    ("docker.io/stand-in/coredns", &["coredns"], "/bin/coredns"),
    ("docker.io/stand-in/flannel", &["busybox", "flannel"], "/bin/flanneld"),
    ("docker.io/stand-in/pause", &["pause"], "/bin/pause"),
    ("docker.io/stand-in/busybox", &["busybox"], "/bin/sh"),
];
/// Fast; the result is a third larger than the smallest possible.
const COMPRESSION_LEVEL: i32 = 3;

/// Content of the archive.
pub(super) struct Sources<'a> {
    pub(super) control_plane: &'a ComponentsDir,
    /// Without it, the images are left out.
    pub(super) node: Option<&'a ComponentsDir>,
    /// Manifests that every cluster receives.
    pub(super) charts: &'a Utf8Path,
}

/// Full names of all images, one per line.
pub(super) fn list() -> String {
    IMAGES.iter().map(|(name, ..)| format!("{}\n", tagged(name))).collect()
}

fn tagged(name: &str) -> String {
    format!("{name}:{}", VERSION.replace('+', "-"))
}

/// Writes the archive to `target`; uses `scratch` for layers.
pub(super) fn write(sources: &Sources<'_>, target: &Utf8Path, scratch: &Utf8Path) -> anyhow::Result<()> {
    let file = File::create(target).with_context(|| target.to_string())?;
    let mut tar = tar::Builder::new(zstd::Encoder::new(file, COMPRESSION_LEVEL)?);
    append(&mut tar, "components.json", &component_list(sources.control_plane)?)?;
    if let Some(node) = sources.node {
        append_images(&mut tar, sources, node, scratch)?;
    }
    tar.into_inner()?.finish()?;
    Ok(())
}

fn component_list(components: &ComponentsDir) -> anyhow::Result<Vec<u8>> {
    let entries: Vec<_> = components
        .files
        .iter()
        .map(|file| json!({ "name": file.name, "sha256": file.sha256, "size": file.size, "path": components.program(&file.name) }))
        .collect();
    Ok(serde_json::to_vec_pretty(&json!({ "version": VERSION, "components": entries }))?)
}

fn append_images<W: Write>(
    tar: &mut tar::Builder<W>,
    sources: &Sources<'_>,
    node: &ComponentsDir,
    scratch: &Utf8Path,
) -> anyhow::Result<()> {
    let mut layers = BTreeMap::new();
    for (name, entries) in contents(sources, node)? {
        layers.insert(name, Layer::write(scratch, name, &entries)?);
    }
    let (mut manifest, mut configurations) = (Vec::new(), Vec::new());
    for (name, parts, command) in IMAGES {
        let parts: Vec<&Layer> = parts.iter().filter_map(|part| layers.get(part)).collect();
        let configuration = serde_json::to_vec(&configuration(&parts, command))?;
        let file = format!("{}.json", hex::encode(digest(&SHA256, &configuration)));
        let files: Vec<String> = parts.iter().map(|layer| layer.file_name()).collect();
        manifest.push(json!({ "Config": file, "RepoTags": [tagged(name)], "Layers": files }));
        configurations.push((file, configuration));
    }
    append(tar, "manifest.json", &serde_json::to_vec(&manifest)?)?;
    configurations.sort();
    configurations.dedup();
    for (name, configuration) in configurations {
        append(tar, &name, &configuration)?;
    }
    let order = IMAGES.iter().flat_map(|(_, parts, _)| parts.iter());
    for name in order {
        // Removed from the map: a layer that several images share is written once.
        if let Some(layer) = layers.remove(name) {
            let file = File::open(&layer.path).with_context(|| layer.path.to_string())?;
            tar.append_data(&mut header(0o644, layer.size), layer.file_name(), file)?;
        }
    }
    Ok(())
}

fn configuration(layers: &[&Layer], command: &str) -> Value {
    let digests: Vec<String> = layers.iter().map(|layer| format!("sha256:{}", layer.digest)).collect();
    let history: Vec<Value> = layers.iter().map(|_| json!({ "created": EPOCH })).collect();
    json!({
        "architecture": "amd64",
        "os": "linux",
        "created": EPOCH,
        "config": { "Cmd": [command], "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"] },
        "rootfs": { "type": "layers", "diff_ids": digests },
        "history": history,
    })
}

const EPOCH: &str = "1970-01-01T00:00:00Z";

/// Name and entries of every layer.
fn contents(sources: &Sources<'_>, node: &ComponentsDir) -> anyhow::Result<Vec<(&'static str, Vec<Entry>)>> {
    let program = |name: &str| Entry::program(&format!("bin/{name}"), node.program(name));
    let kubernetes = ["kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl"]
        .map(|name| Entry::name(&format!("bin/{name}"), "bin/kubelet"));
    let kubelet = Entry::program("bin/kubelet", node.program("kubernetes"));
    let mut runtime = vec![
        program("containerd"),
        Entry::name("bin/ctr", "bin/containerd"),
        program("containerd-shim-runc-v2"),
        program("runc"),
    ];
    runtime.extend(files_of(sources.charts, "charts")?);
    let plugin = |name: &str| Entry::program(&format!("opt/cni/bin/{name}"), node.program(name));
    let mut flannel = vec![program("flanneld")];
    flannel.extend(["bridge", "host-local", "loopback", "portmap"].map(plugin));
    let etcd = Entry::program("bin/etcd", sources.control_plane.program("etcd"));
    Ok(vec![
        ("kubernetes", std::iter::once(kubelet).chain(kubernetes).collect()),
        ("runtime", runtime),
        ("etcd", vec![etcd]),
        ("coredns", vec![program("coredns")]),
        ("busybox", busybox(node)?),
        ("flannel", flannel),
        ("pause", vec![program("pause")]),
    ])
}

/// A shell with basic utilities and the files that they need.
fn busybox(node: &ComponentsDir) -> anyhow::Result<Vec<Entry>> {
    let program = node.program("busybox");
    let applets = crate::shell::capture(std::process::Command::new(&program).arg("--list"))?;
    let folder = |path: &str, mode| Entry { path: path.to_owned(), mode, content: Content::Folder };
    let text = |path: &str, text| Entry { path: path.to_owned(), mode: 0o644, content: Content::Text(text) };
    let mut entries = vec![
        folder("tmp", 0o1777),
        folder("root", 0o700),
        text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
        text("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
        Entry::program("bin/busybox", program),
    ];
    let mut names: Vec<&str> = applets.lines().map(str::trim).filter(|name| *name != "busybox").collect();
    names.sort_unstable();
    entries.extend(names.iter().map(|name| Entry {
        path: format!("bin/{name}"),
        mode: 0o777,
        content: Content::Symlink("busybox"),
    }));
    Ok(entries)
}

fn append<W: Write>(tar: &mut tar::Builder<W>, name: &str, content: &[u8]) -> anyhow::Result<()> {
    Ok(tar.append_data(&mut header(0o644, content.len() as u64), name, content)?)
}

#[cfg(test)]
mod tests;

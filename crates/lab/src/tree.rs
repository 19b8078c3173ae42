//! A node's copy of the root file system and its individual files.
//!
//! The copy is an overlay: fast to create and small. But overlays cannot be stacked, and containerd keeps images and containers as overlays
//! below `/var/lib`. That folder is therefore copied and mounted as a plain file system, which is common on real machines. It is all of
//! `/var/lib`, because uninstallers remove folders in it (`/var/lib/rancher`, `/var/lib/kubelet`) and could not remove a mount point.
//!
//! Guarantees: the shared tree is never written to.

use std::{fs, process::Command};

use anyhow::{Context, ensure};
use camino::{Utf8Path, Utf8PathBuf};
use rustix::{
    fs::statfs,
    mount::{MountFlags, mount, mount_bind},
};

use super::{
    place::{self, DOMAIN},
    plan::Plan,
    resource::Resource,
    state::{self, Journal},
};
use crate::shell;

/// Magic number of overlay file systems.
const OVERLAY_MAGIC: u64 = 0x794c_7630;
/// The folder that must not be on an overlay.
const PLAIN: &str = "var/lib";

/// Creates the tree and mounts it.
pub(super) fn create(plan: &Plan, shared: &Utf8Path, journal: &mut Journal) -> anyhow::Result<()> {
    let (root, data) = (place::root_of(&plan.name), place::data_of(&plan.name));
    state::new_folder(journal, Utf8Path::new(place::DATA))?;
    journal.record(Resource::Tree(data.clone()))?;
    journal.record(Resource::Mounts(root.clone()))?;
    fs::create_dir_all(&root).with_context(|| root.to_string())?;
    if let Err(error) = overlay(shared, &data, &root) {
        eprintln!("    {}: cannot mount an overlay ({error:#}); copying the tree", plan.name);
        copy(shared, &data, &root)?;
    }
    mount_plain(shared, &data, &root)?;
    personalise(plan, &root)
}

fn overlay(shared: &Utf8Path, data: &Utf8Path, root: &Utf8Path) -> anyhow::Result<()> {
    let (upper, work) = (data.join("upper"), data.join("work"));
    for folder in [&upper, &work] {
        fs::create_dir_all(folder).with_context(|| folder.to_string())?;
    }
    // The root folder takes its mode from the upper folder.
    fs::set_permissions(&upper, fs::metadata(shared)?.permissions())?;
    let options = format!("lowerdir={shared},upperdir={upper},workdir={work}");
    ensure!(!shared.as_str().contains([':', ',', '\\']), "an overlay accepts no path with `:`, `,` or `\\`: {shared}");
    let options = std::ffi::CString::new(options)?;
    Ok(mount("overlay", root.as_str(), "overlay", MountFlags::empty(), options.as_c_str())?)
}

fn copy(shared: &Utf8Path, data: &Utf8Path, root: &Utf8Path) -> anyhow::Result<()> {
    let tree = data.join("tree");
    copy_content(shared, &tree)?;
    mount_bind(tree.as_str(), root.as_str()).with_context(|| format!("mounting {root}"))
}

/// Mounts a copy of [`PLAIN`] over the overlay's; as a tmpfs if the disk itself is an overlay.
fn mount_plain(shared: &Utf8Path, data: &Utf8Path, root: &Utf8Path) -> anyhow::Result<()> {
    let (own, point) = (data.join("plain"), root.join(PLAIN));
    if is_overlay(data)? {
        mount("tmpfs", point.as_str(), "tmpfs", MountFlags::empty(), c"mode=0755")
            .with_context(|| point.to_string())?;
        return copy_content(&shared.join(PLAIN), &point);
    }
    copy_content(&shared.join(PLAIN), &own)?;
    mount_bind(own.as_str(), point.as_str()).with_context(|| format!("mounting {point}"))
}

/// Reports whether a folder is on an overlay: the plain folders of nodes there are in memory.
pub(super) fn is_overlay(folder: &Utf8Path) -> anyhow::Result<bool> {
    Ok(u64::try_from(statfs(folder.as_str())?.f_type)? == OVERLAY_MAGIC)
}

/// Copies the content of a folder, with shared blocks where the file system supports them.
fn copy_content(from: &Utf8Path, to: &Utf8Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| to.to_string())?;
    let content = from.join(".");
    shell::capture(Command::new("cp").args(["--archive", "--reflink=auto", content.as_str(), to.as_str()])).map(drop)
}

/// Writes the files that differ between nodes.
fn personalise(plan: &Plan, root: &Utf8Path) -> anyhow::Result<()> {
    let id = fs::read_to_string("/proc/sys/kernel/random/uuid").context("reading a random machine ID")?;
    let (name, gateway) = (&plan.name, plan.subnet.gateway());
    let files = [
        ("etc/machine-id", format!("{}\n", id.trim().replace('-', ""))),
        ("etc/hostname", format!("{name}\n")),
        ("etc/hosts", format!("127.0.0.1 localhost\n127.0.1.1 {name}.{DOMAIN} {name}\n::1 localhost ip6-localhost\n")),
        ("etc/resolv.conf", format!("search {DOMAIN}\nnameserver {gateway}\n")),
    ];
    for (path, text) in files {
        let path: Utf8PathBuf = root.join(path);
        // It may be a link to a file that exists only on a running system.
        if path.is_symlink() {
            fs::remove_file(&path).with_context(|| path.to_string())?;
        }
        fs::write(&path, text).with_context(|| path.to_string())?;
    }
    Ok(())
}

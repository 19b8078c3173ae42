//! The root file system of all nodes: Debian, built with debootstrap once per recipe and kept in the user's cache.
//!
//! Guarantees: a cached tree is complete, because it gets its final name last. It is never written to: nodes use copies.

mod recipe;

use std::{fs, process::Stdio, time::Instant};

use anyhow::{Context, ensure};
use camino::{Utf8Path, Utf8PathBuf};

use super::{
    cache, cgroups, mounts, packages,
    place::{SERVICES, UNFINISHED, group},
    resource::Resource,
    state::Journal,
};

/// The tree within the folder.
const TREE: &str = "tree";
/// The list of installed packages, next to the tree.
const MANIFEST: &str = "packages";
/// Output of debootstrap.
const LOG: &str = "debootstrap.log";

/// The lab's folder in the user's cache.
pub(super) fn cache() -> anyhow::Result<Utf8PathBuf> {
    let cache = cache::folder()?.join("lab");
    Utf8PathBuf::from_path_buf(cache).ok().context("the cache folder's path is not UTF-8")
}

/// Lists folders that a crash left incomplete. The caller holds the lab's lock, so none is being filled.
pub(super) fn unfinished() -> anyhow::Result<Vec<Utf8PathBuf>> {
    let cache = cache()?;
    if !cache.exists() {
        return Ok(Vec::new());
    }
    let entries = cache.read_dir_utf8().with_context(|| cache.to_string())?.flatten();
    Ok(entries.filter(|entry| entry.file_name().starts_with(UNFINISHED)).map(|entry| entry.into_path()).collect())
}

/// Returns the tree; builds it if it is not cached.
pub(super) fn ensure(journal: &mut Journal) -> anyhow::Result<Utf8PathBuf> {
    let cache = cache()?;
    let cached = cache.join(format!("{}-{}", recipe::SUITE, &recipe::digest()[..16]));
    if !cached.exists() {
        fs::create_dir_all(&cache).with_context(|| cache.to_string())?;
        let folder = cache.join(format!("{UNFINISHED}{}", std::process::id()));
        for resource in [Resource::Mounts(folder.clone()), Resource::Tree(folder.clone())] {
            journal.record(resource)?;
        }
        fs::create_dir(&folder).with_context(|| folder.to_string())?;
        build(&folder)?;
        fs::rename(&folder, &cached).with_context(|| format!("renaming the tree to {cached}"))?;
    }
    Ok(cached.join(TREE))
}

fn build(folder: &Utf8Path) -> anyhow::Result<()> {
    let (tree, log) = (folder.join(TREE), folder.join(LOG));
    eprintln!("==> building a root file system of Debian {} (first time only, about a minute)", recipe::SUITE);
    let began = Instant::now();
    let words = recipe::debootstrap(&tree);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let file = fs::File::create(&log).with_context(|| log.to_string())?;
    let status = cgroups::joined(&group(SERVICES), &words)?
        .env("PATH", packages::path())
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .status()
        .context("starting debootstrap")?;
    ensure!(status.success(), "debootstrap failed ({status}); the end of its output:\n{}", tail(&log));
    ensure!(mounts::below(folder)?.is_empty(), "debootstrap left mounts below {folder}");
    recipe::finish(&tree)?;
    fs::copy(tree.join("var/lib/dpkg/status"), folder.join(MANIFEST)).context("copying the list of packages")?;
    eprintln!("    {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

fn tail(log: &Utf8Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

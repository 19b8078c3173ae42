//! Installs the programs in the data directory, where RKE2 unpacks its runtime image.
//!
//! A sandbox node links the programs of its machine. The images archive contains `components.json` with names, sizes, SHA-256
//! digests and paths of the genuine programs. Each program is verified before it is linked. A verified digest is recorded in
//! the program's folder with inode, size and modification time, so that hundreds of megabytes are read once per build and not
//! once per start.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;

use anyhow::Context as _;
use aws_lc_rs::digest::{Context as Digest, SHA256, digest};
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};

use crate::log;
use crate::paths::{self, HostPaths};
use crate::version::{RELEASE, RELEASE_TAG, RUNTIME_IMAGE};

const ARCHIVE: &str = "agent/images/rke2-images.linux-amd64.tar.zst";
const LIST: &str = "components.json";
/// Limit of the list, which is a few hundred bytes; a longer one is truncated and fails to parse.
const LIST_BYTES_MAX: u64 = 64 << 10;
/// The record of verified digests, in the programs' folder (the per-user cache).
const VERIFIED: &str = "verified.json";

#[derive(Debug, Deserialize)]
struct ComponentList {
    version: String,
    components: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    name: String,
    sha256: String,
    size: u64,
    path: Utf8PathBuf,
}

/// Metadata of a file when its digest was last verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct VerifiedFile {
    sha256: String,
    size: u64,
    inode: u64,
    mtime_ns: i128,
}

/// Installs the programs of a sandbox node and returns their folder.
pub(crate) fn install(host: &HostPaths) -> anyhow::Result<Utf8PathBuf> {
    install_with(host, |target| link_components(host, target))
}

/// Prepares the data folder and returns its `bin`. If the release is not installed yet, calls `fill` with the release's folder, in which
/// `bin` and `charts` exist and are empty.
pub(crate) fn install_with(
    host: &HostPaths,
    fill: impl FnOnce(&Utf8Path) -> anyhow::Result<()>,
) -> anyhow::Result<Utf8PathBuf> {
    let reference = hex::encode(digest(&SHA256, RUNTIME_IMAGE.as_bytes()));
    let folder = format!("{RELEASE_TAG}-{}", &reference[..12]);
    let (target, bin) = (host.data("data").join(&folder), host.data("data").join(&folder).join("bin"));
    if target.join(".extracted").exists() && target.join("charts").is_dir() && bin.is_dir() {
        log::info!("Runtime image {RUNTIME_IMAGE} bin and charts directories already exist; skipping extract");
    } else {
        // Remove what an interrupted installation left.
        for part in ["bin", "charts"] {
            if target.join(part).exists() {
                fs::remove_dir_all(target.join(part))?;
            }
            paths::make_dir(&target.join(part), 0o755)?;
        }
        fill(&target).with_context(|| format!("failed to get runtime image {RUNTIME_IMAGE}"))?;
        paths::write(&target.join(".extracted"), 0o644, RUNTIME_IMAGE)?;
    }
    // Relative, so that the link is valid under any root.
    paths::link(&host.data("bin"), &format!("data/{folder}/bin"))?;
    Ok(bin)
}

fn link_components(host: &HostPaths, target: &Utf8Path) -> anyhow::Result<()> {
    let archive = host.data(ARCHIVE);
    if !archive.exists() {
        log::info!("Pulling runtime image {RUNTIME_IMAGE}");
        anyhow::bail!("no images archive in {} and the stand-in does not pull", archive.parent().unwrap_or(&archive));
    }
    let list = read_list(&archive)?;
    anyhow::ensure!(list.version == RELEASE, "the archive is of {}, expected {RELEASE}", list.version);
    let mut records: BTreeMap<Utf8PathBuf, BTreeMap<String, VerifiedFile>> = BTreeMap::new();
    for entry in &list.components {
        anyhow::ensure!(Utf8Path::new(&entry.name).file_name() == Some(entry.name.as_str()), "bad component name");
        let cache = entry.path.parent().unwrap_or(Utf8Path::new("/")).to_owned();
        let record = records.entry(cache.clone()).or_insert_with(|| recorded(&cache));
        verify(entry, record)?;
        place(&entry.path, &target.join("bin").join(&entry.name))?;
    }
    for (cache, record) in records {
        // Without the record, the next start only takes longer.
        let _ = serde_json::to_vec_pretty(&record).map(|json| paths::write(&cache.join(VERIFIED), 0o644, json));
    }
    Ok(())
}

fn read_list(archive: &Utf8Path) -> anyhow::Result<ComponentList> {
    let file = fs::File::open(archive).with_context(|| archive.to_string())?;
    let mut tar = tar::Archive::new(zstd::Decoder::new(file)?);
    for entry in tar.entries()? {
        let entry = entry?;
        if entry.path()?.as_os_str() == LIST {
            let mut text = String::new();
            entry.take(LIST_BYTES_MAX).read_to_string(&mut text)?;
            return serde_json::from_str(&text).with_context(|| format!("{LIST} in {archive}"));
        }
    }
    anyhow::bail!("{archive} does not contain {LIST}: it is not an archive of the stand-in")
}

fn recorded(cache: &Utf8Path) -> BTreeMap<String, VerifiedFile> {
    // An unreadable record counts as empty: all digests are computed again.
    fs::read(cache.join(VERIFIED)).ok().and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default()
}

fn verify(entry: &Entry, record: &mut BTreeMap<String, VerifiedFile>) -> anyhow::Result<()> {
    let mut file = fs::File::open(&entry.path).with_context(|| entry.path.to_string())?;
    let meta = file.metadata()?;
    anyhow::ensure!(meta.len() == entry.size, "{} has {} bytes, not {}", entry.path, meta.len(), entry.size);
    let seen = VerifiedFile {
        sha256: entry.sha256.clone(),
        size: meta.len(),
        inode: meta.ino(),
        mtime_ns: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
    };
    if record.get(&entry.name) == Some(&seen) {
        return Ok(());
    }
    let mut hash = Digest::new(&SHA256);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
    }
    let got = hex::encode(hash.finish());
    anyhow::ensure!(got == entry.sha256, "{} has digest {got}, not {}", entry.path, entry.sha256);
    record.insert(entry.name.clone(), seen);
    Ok(())
}

/// Creates a hard link, which copies nothing and cannot dangle, or a symbolic link if a hard link is not possible.
fn place(source: &Utf8Path, target: &Utf8Path) -> anyhow::Result<()> {
    if target.symlink_metadata().is_ok() {
        fs::remove_file(target)?;
    }
    if fs::hard_link(source, target).is_err() {
        std::os::unix::fs::symlink(source, target).with_context(|| target.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(dir: &Utf8Path, content: &str, expected: &str) -> Entry {
        let path = dir.join("etcd");
        fs::write(&path, content).unwrap();
        let sha256 = hex::encode(digest(&SHA256, expected.as_bytes()));
        Entry { name: "etcd".into(), sha256, size: content.len() as u64, path }
    }

    #[test]
    fn a_program_with_another_digest_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let mut record = BTreeMap::new();
        assert!(verify(&entry(dir, "abcd", "abcd"), &mut record).is_ok());
        let refused = verify(&entry(dir, "abce", "abcd"), &mut BTreeMap::new()).unwrap_err();
        assert!(refused.to_string().contains("has digest"), "{refused}");
    }

    #[test]
    fn a_remembered_digest_does_not_cover_a_changed_file() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let mut record = BTreeMap::new();
        verify(&entry(dir, "abcd", "abcd"), &mut record).unwrap();
        let later = entry(dir, "abce", "abcd");
        let file = fs::File::options().append(true).open(&later.path).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        assert!(verify(&later, &mut record).is_err());
    }
}

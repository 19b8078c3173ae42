//! Fetches the official release binaries and verifies each with the SHA-256 that the project publishes next to it.
//!
//! NOT TRIED: written on a machine without access to the release sites. The programs report the version of Kubernetes without RKE2's
//! suffix.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, ensure};
use camino::Utf8Path;

use super::digest_of;

const KUBERNETES: &str = "https://dl.k8s.io/release/v1.36.3/bin/linux/amd64";
const ETCD: &str = "https://github.com/etcd-io/etcd/releases/download/v3.6.14";
const ETCD_ARCHIVE: &str = "etcd-v3.6.14-linux-amd64";

/// Fetches every program into `target`.
pub(super) fn all(target: &Utf8Path) -> anyhow::Result<()> {
    for name in ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"] {
        let (file, sum) = (target.join(name), target.join(format!("{name}.sha256")));
        fetch(&format!("{KUBERNETES}/{name}"), &file)?;
        fetch(&format!("{KUBERNETES}/{name}.sha256"), &sum)?;
        check(&file, fs::read_to_string(&sum)?.trim())?;
        fs::remove_file(&sum)?;
        make_executable(&file)?;
    }
    let (archive, sums) = (target.join("etcd.tar.gz"), target.join("SHA256SUMS"));
    fetch(&format!("{ETCD}/{ETCD_ARCHIVE}.tar.gz"), &archive)?;
    fetch(&format!("{ETCD}/SHA256SUMS"), &sums)?;
    let text = fs::read_to_string(&sums)?;
    let line = text.lines().find(|line| line.ends_with(&format!("{ETCD_ARCHIVE}.tar.gz")));
    check(
        &archive,
        line.and_then(|line| line.split_whitespace().next()).context("SHA256SUMS does not name the archive")?,
    )?;
    let mut entries = tar::Archive::new(flate2::read::GzDecoder::new(fs::File::open(&archive)?));
    for entry in entries.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        for name in ["etcd", "etcdctl"] {
            if path == std::path::Path::new(ETCD_ARCHIVE).join(name) {
                std::io::copy(&mut entry, &mut fs::File::create(target.join(name))?)?;
                make_executable(&target.join(name))?;
            }
        }
    }
    fs::remove_file(archive)?;
    Ok(fs::remove_file(sums)?)
}

/// Fetches one file over TLS. The content is otherwise unverified: the caller checks its digest.
pub(crate) fn fetch(url: &str, target: &Utf8Path) -> anyhow::Result<()> {
    eprintln!("  {url}");
    let status = Command::new("curl")
        .args([
            "--fail",
            "--silent",
            "--show-error",
            "--location",
            "--proto",
            "=https",
            "--output",
            target.as_str(),
            url,
        ])
        .status()
        .context("curl does not run")?;
    ensure!(status.success(), "{url}: curl {status}");
    Ok(())
}

fn check(file: &Utf8Path, expected: &str) -> anyhow::Result<()> {
    let (actual, _) = digest_of(file)?;
    ensure!(actual == expected, "{file} has digest {actual}, not {expected}");
    Ok(())
}

fn make_executable(file: &Utf8Path) -> anyhow::Result<()> {
    Ok(fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o755))?)
}

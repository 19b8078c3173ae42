//! Preloaded images: imports every archive of the images folder into containerd at every start.
//!
//! As with RKE2, a file `.cache.json` in that folder makes imports conditional: an archive is then imported only if its size or
//! modification time differs from those recorded at its last import.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context as _;
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};

use crate::log;
use crate::paths::{self, CONTAINERD_SOCKET, HostPaths};

/// The images folder, relative to the data directory.
pub(super) const FOLDER: &str = "agent/images";
const CACHE: &str = ".cache.json";
/// Limit of ctr's error output in an error.
const STDERR_BYTES_MAX: u64 = 4096;

/// Size and modification time of an archive when it was imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileStamp {
    size: u64,
    mtime_ns: i64,
}

/// Returns the `.tar` and `.tar.zst` archives of the images folder, sorted by name.
pub(super) fn archives(host: &HostPaths) -> anyhow::Result<Vec<Utf8PathBuf>> {
    let folder = host.data(FOLDER);
    let entries = match folder.read_dir_utf8() {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| folder.to_string()),
    };
    let mut archives = Vec::new();
    for entry in entries {
        let path = entry?.into_path();
        if path.as_str().ends_with(".tar.zst") || path.as_str().ends_with(".tar") {
            archives.push(path);
        }
    }
    archives.sort();
    Ok(archives)
}

/// Opens an archive for reading, decompressing it if it ends in `.zst`.
pub(super) fn open_archive(path: &Utf8Path) -> anyhow::Result<Box<dyn Read + Send>> {
    let file = BufReader::new(File::open(path).with_context(|| path.to_string())?);
    if path.extension() == Some("zst") { Ok(Box::new(zstd::Decoder::with_buffer(file)?)) } else { Ok(Box::new(file)) }
}

/// Imports all archives, or with a cache file the changed ones. Blocks.
pub(super) fn import_all(host: &HostPaths, ctr: &Utf8Path, snapshotter: &str) -> anyhow::Result<()> {
    let cache = host.data(FOLDER).join(CACHE);
    // Operators enable the cache by creating an empty file.
    let known = paths::read_optional(&cache)?;
    let mut seen: BTreeMap<String, FileStamp> =
        known.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    for archive in archives(host)? {
        let meta = fs::metadata(&archive)?;
        let now =
            FileStamp { size: meta.len(), mtime_ns: meta.mtime().saturating_mul(1_000_000_000) + meta.mtime_nsec() };
        let name = archive.file_name().unwrap_or_default().to_owned();
        if known.is_some() && seen.get(&name) == Some(&now) {
            log::info!("Skipping import of {archive}: it has not changed");
            continue;
        }
        let began = Instant::now();
        log::info!("Importing images from {archive}");
        import(&archive, ctr, snapshotter).with_context(|| format!("failed to import images from {archive}"))?;
        log::info!("Imported images from {archive} in {} ms", began.elapsed().as_millis());
        seen.insert(name, now);
    }
    if known.is_some() {
        paths::write(&cache, 0o644, serde_json::to_vec_pretty(&seen)?)?;
    }
    Ok(())
}

fn import(archive: &Utf8Path, ctr: &Utf8Path, snapshotter: &str) -> anyhow::Result<()> {
    let mut child = Command::new(ctr)
        .args(["--address", CONTAINERD_SOCKET, "--namespace", "k8s.io", "images", "import", "--local"])
        .args(["--snapshotter", snapshotter, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| ctr.to_string())?;
    let (stdin, stderr) = (child.stdin.take().context("no stdin")?, child.stderr.take().context("no stderr")?);
    let mut content = open_archive(archive)?;
    // A separate thread, because ctr would block if its error output were not read at the same time.
    let feeding = std::thread::spawn(move || io::copy(&mut content, &mut { stdin }));
    let (mut stderr, mut error_text) = (stderr, Vec::new());
    (&mut stderr).take(STDERR_BYTES_MAX).read_to_end(&mut error_text)?;
    io::copy(&mut stderr, &mut io::sink())?;
    let status = child.wait()?;
    let fed = feeding.join().map_err(|_| anyhow::anyhow!("reading {archive} ended in a panic"))?;
    anyhow::ensure!(status.success(), "ctr: {status}: {}", String::from_utf8_lossy(&error_text).trim());
    match fed {
        // ctr stops reading at the archive's end and ignores bytes after it.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).with_context(|| format!("reading {archive}"))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

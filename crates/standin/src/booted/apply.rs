//! Applies the manifests in a server's manifests folder, at start and whenever they change.
//!
//! As with RKE2, removing a file keeps its objects in the cluster, and `NAME.yaml.skip` prevents `NAME.yaml` from being applied.
//! Deliberately absent: AddOn objects and Helm charts.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use aws_lc_rs::digest::{SHA256, digest};
use camino::{Utf8Path, Utf8PathBuf};
use rustix::fs::inotify;
use tokio::process::Command;
use tokio::sync::mpsc;

use super::manifests::skipped;
use crate::log;

/// Delay before failed manifests are applied again, unless the folder changes earlier.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Timeout for applying one manifest.
const APPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit of kubectl's error output in a log line.
const STDERR_BYTES_MAX: usize = 1024;
const EVENTS_BYTES: usize = 4096;

/// Applies the folder's manifests until `rke2` ends. Without inotify, looks for changes every [`RETRY_AFTER`].
pub(super) async fn apply_continuously(folder: Utf8PathBuf, kubectl: Utf8PathBuf, kubeconfig: Utf8PathBuf) {
    let mut applied = BTreeMap::new();
    let mut changes = match Changes::of(&folder) {
        Ok(changes) => Some(changes),
        Err(error) => {
            log::warning!("Failed to watch {folder}: {error}");
            None
        }
    };
    loop {
        let is_complete = apply_changed(&folder, &kubectl, &kubeconfig, &mut applied).await;
        match &mut changes {
            Some(changes) if is_complete => changes.next().await,
            Some(changes) => {
                // Repeat after the delay or after a change, whichever comes first.
                let _ = tokio::time::timeout(RETRY_AFTER, changes.next()).await;
            }
            None => tokio::time::sleep(RETRY_AFTER).await,
        }
    }
}

/// Applies every file whose content differs from the last that was applied. Returns whether all succeeded.
async fn apply_changed(
    folder: &Utf8Path,
    kubectl: &Utf8Path,
    kubeconfig: &Utf8Path,
    applied: &mut BTreeMap<String, Vec<u8>>,
) -> bool {
    let files = match manifests(folder) {
        Ok(files) => files,
        Err(error) => {
            log::error!("Failed to read {folder}: {error}");
            return false;
        }
    };
    let mut is_complete = true;
    for file in files {
        let name = file.file_name().unwrap_or_default().to_owned();
        let Ok(content) = fs::read(&file) else { continue };
        let digest = digest(&SHA256, &content).as_ref().to_vec();
        if applied.get(&name) == Some(&digest) {
            continue;
        }
        match apply(&file, kubectl, kubeconfig).await {
            Ok(()) => {
                log::info!("Applied manifest at {file}");
                applied.insert(name, digest);
            }
            Err(error) => {
                log::error!("Failed to process config: failed to process {file}: {error:#}");
                is_complete = false;
            }
        }
    }
    is_complete
}

fn manifests(folder: &Utf8Path) -> io::Result<Vec<Utf8PathBuf>> {
    let mut files = Vec::new();
    for entry in folder.read_dir_utf8()? {
        let path = entry?.into_path();
        let name = path.file_name().unwrap_or_default();
        if (name.ends_with(".yaml") || name.ends_with(".yml")) && !name.starts_with('.') && !skipped(&path) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

async fn apply(file: &Utf8Path, kubectl: &Utf8Path, kubeconfig: &Utf8Path) -> anyhow::Result<()> {
    let mut command = Command::new(kubectl);
    command
        .args(["apply", "--server-side", "--force-conflicts", "--field-manager=deploy-controller"])
        .args(["--kubeconfig", kubeconfig.as_str(), "-f", file.as_str()])
        .args(["--cache-dir", kubeconfig.with_file_name("kubectl-cache").as_str()])
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(APPLY_TIMEOUT, command.output()).await.context("kubectl apply timed out")??;
    if output.status.success() {
        return Ok(());
    }
    let message =
        String::from_utf8_lossy(&output.stderr[..output.stderr.len().min(STDERR_BYTES_MAX)]).trim().to_owned();
    anyhow::bail!("{message}")
}

/// Notifications of changes in a folder, from inotify.
struct Changes(mpsc::Receiver<()>);

impl Changes {
    fn of(folder: &Utf8Path) -> io::Result<Self> {
        use inotify::{CreateFlags, WatchFlags};
        let watch = inotify::init(CreateFlags::CLOEXEC)?;
        let events = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM | WatchFlags::DELETE;
        inotify::add_watch(&watch, folder.as_std_path(), events)?;
        // Capacity 1: several changes during one pass cause one further pass.
        let (sender, receiver) = mpsc::channel(1);
        // A detached thread, which blocks in the kernel until the process ends.
        std::thread::spawn(move || {
            let mut buffer = [MaybeUninit::uninit(); EVENTS_BYTES];
            let mut reader = inotify::Reader::new(&watch, &mut buffer);
            while reader.next().is_ok() {
                if let Err(mpsc::error::TrySendError::Closed(())) = sender.try_send(()) {
                    return;
                }
            }
        });
        Ok(Self(receiver))
    }

    /// Returns after a change; never returns once the thread has ended.
    async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_and_hidden_manifests_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        for file in ["a.yaml", "b.yaml", "b.yaml.skip", ".c.yaml", "d.txt", "e.yml"] {
            fs::write(dir.join(file), "").unwrap();
        }
        assert_eq!(manifests(dir).unwrap(), [dir.join("a.yaml"), dir.join("e.yml")]);
    }

    #[tokio::test]
    async fn only_changes_of_the_folder_are_notified() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let mut changes = Changes::of(dir).unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(50), changes.next()).await.is_err());
        fs::write(dir.join("a.yaml"), "one").unwrap();
        tokio::time::timeout(Duration::from_secs(10), changes.next()).await.expect("the first change");
        assert!(tokio::time::timeout(Duration::from_millis(50), changes.next()).await.is_err());
        fs::remove_file(dir.join("a.yaml")).unwrap();
        tokio::time::timeout(Duration::from_secs(10), changes.next()).await.expect("the second change");
    }
}

//! The process that stands for a pod on a sandbox node.
//!
//! As with containerd's shims, the process outlives `rke2`, the kill-all script ends it, and the process table is the only record of running
//! pods. The process is `rke2` itself under the path of [`SHIM`], below RKE2's data folder as containerd's shims are: those who look for what
//! runs find it there. It waits for SIGTERM and exits; it runs no container.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::process::{ExitCode, Stdio};

use anyhow::Context as _;
use camino::Utf8PathBuf;
use rustix::process::Pid;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::component::{self, Handle, open_log};
use crate::paths::ROOT_VARIABLE;

/// The internal command that runs the process.
pub(crate) const COMMAND: &str = "pod-sandbox";
/// The program's name in the process table. It begins as containerd's shims do, because the kill-all script finds pods by that.
pub(super) const SHIM: &str = "containerd-shim-stand-in";

/// Where the pods' processes belong.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Folder of the release's programs.
    pub(super) bin: Utf8PathBuf,
    /// The folder that holds every installed release.
    pub(super) data_root: Utf8PathBuf,
    /// `/var/log/pods` of this node.
    pub(super) logs: Utf8PathBuf,
}

impl Place {
    /// Returns the running pods of this node: their process IDs by the pods' UIDs.
    pub(super) fn running(&self) -> anyhow::Result<HashMap<String, Pid>> {
        let found = component::running(&self.data_root, SHIM)?;
        Ok(found.into_iter().filter_map(|(pid, line)| Some((uid_in(&line)?.to_owned(), pid))).collect())
    }

    /// Starts the process of a pod; `log` names its folder below the pods' logs. None if it exited at once.
    pub(super) fn start(&self, uid: &str, log: &str) -> anyhow::Result<Option<Handle>> {
        let log = open_log(&self.logs.join(log).join("0.log"))?;
        let mut command = Command::new(self.shim()?);
        command.args([COMMAND, "-namespace", "k8s.io", "-id", uid]);
        // The mark of its sandbox, by which the sandbox finds it; not the mark of the unit, which it outlives.
        command.env_clear().envs(std::env::var_os(ROOT_VARIABLE).map(|root| (ROOT_VARIABLE, root)));
        // A separate process group, so that a terminal's Ctrl-C reaches only `rke2`.
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let mut child = command.spawn().with_context(|| format!("cannot run {SHIM}"))?;
        let handle = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).and_then(Handle::of);
        // Collects the exit status, so that no zombie remains while `rke2` runs.
        tokio::spawn(async move { child.wait().await });
        Ok(handle)
    }
}

impl Place {
    /// Returns the path of the shim's program. Creates it as a link to this program, or as a copy if this program was replaced meanwhile.
    fn shim(&self) -> anyhow::Result<Utf8PathBuf> {
        let shim = self.bin.join(SHIM);
        if shim.exists() {
            return Ok(shim);
        }
        let linked = std::env::current_exe().and_then(|own| fs::hard_link(own, &shim));
        match linked {
            Ok(()) => {}
            // Another pod started at the same time.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(_) => {
                let copy = format!("{shim}.new");
                fs::copy("/proc/self/exe", &copy)
                    .and_then(|_| fs::rename(&copy, &shim))
                    .context("cannot make the shim")?;
            }
        }
        Ok(shim)
    }
}

/// The pod's UID in the command line of its process.
fn uid_in(command_line: &[String]) -> Option<&str> {
    let at = command_line.iter().position(|argument| argument == "-id")?;
    command_line.get(at + 1).map(String::as_str)
}

/// Runs in the process: returns after SIGTERM.
pub(crate) fn run() -> ExitCode {
    let wait = || -> std::io::Result<()> {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
            signal(SignalKind::terminate())?.recv().await;
            Ok(())
        })
    };
    match wait() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::log::fatal!("{COMMAND}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of a pod's log below the pods' logs, named as the kubelet names it.
pub(super) fn log_folder(namespace: &str, name: &str, uid: &str) -> String {
    format!("{namespace}_{name}_{uid}/stand-in")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_is_the_argument_after_its_option() {
        let line = |arguments: &[&str]| arguments.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>();
        assert_eq!(uid_in(&line(&["/d/bin/containerd-shim-stand-in", COMMAND, "-id", "u-1"])), Some("u-1"));
        assert_eq!(uid_in(&line(&["/d/bin/containerd-shim-stand-in", COMMAND, "-id"])), None);
        assert_eq!(uid_in(&line(&["/d/bin/etcd"])), None);
    }
}

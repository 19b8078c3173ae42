//! Child programs that the kernel kills when `rke2` ends for any reason.
//!
//! The parent-death signal must be set in the child itself, between fork and exec. `rke2` therefore starts itself with [`COMMAND`], sets
//! the signal and executes the program.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::Context as _;
use camino::{Utf8Path, Utf8PathBuf};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::os::unix::process::ExitStatusExt as _;

use crate::component::open_log;
use crate::log;

/// The internal command with which `rke2` executes another program.
pub(crate) const COMMAND: &str = "become";
/// The service manager's variables that are meant for `rke2` only and are removed from a child's environment.
const OWN_VARIABLES: [&str; 6] =
    ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "WATCHDOG_PID", "WATCHDOG_USEC", "INVOCATION_ID"];

/// A program, its arguments and the file for its output.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub(crate) program: Utf8PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) log: Utf8PathBuf,
}

impl Child {
    /// Starts the program with its own folder first in `PATH`.
    pub(crate) fn start(&self) -> anyhow::Result<tokio::process::Child> {
        let log = open_log(&self.log)?;
        let bin = self.program.parent().unwrap_or(Utf8Path::new("/"));
        let inherited = std::env::var("PATH").unwrap_or_else(|_| "/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
        // Not `current_exe`: the path of an executable that was replaced in the meantime does not exist.
        let mut command = tokio::process::Command::new("/proc/self/exe");
        command.arg(COMMAND).arg(std::process::id().to_string()).arg(&self.program).args(&self.arguments);
        command.env("PATH", format!("{bin}:{inherited}"));
        for name in OWN_VARIABLES {
            command.env_remove(name);
        }
        log::info!("Running {} {}", self.program.file_name().unwrap_or_default(), self.arguments.join(" "));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().with_context(|| format!("cannot run {}", self.program))
    }
}

/// Executes `PARENT PROGRAM ARGUMENT…` in the child. Returns only if the program cannot be run or the parent has ended.
pub(crate) fn become_program(arguments: &[String]) -> ExitCode {
    let [parent, program, arguments @ ..] = arguments else {
        log::fatal!("{COMMAND} needs a parent and a program");
        return ExitCode::FAILURE;
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        log::fatal!("Failed to set the parent death signal: {error}");
        return ExitCode::FAILURE;
    }
    // A parent that ended before the signal was set causes no signal.
    let parent = parent.parse().ok().and_then(Pid::from_raw);
    if parent.is_none() || getppid() != parent {
        return ExitCode::FAILURE;
    }
    let error = Command::new(program).args(arguments).exec();
    log::fatal!("Failed to run {program}: {error}");
    ExitCode::FAILURE
}

/// Formats an exit status as Go does, because RKE2's journal contains that form.
pub(crate) fn exit_text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(9)) => "signal: killed".to_owned(),
        (None, signal) => format!("signal: {}", signal.unwrap_or_default()),
    }
}

/// Whether something listens on the socket `path`.
pub(crate) async fn listens(path: &Utf8Path) -> bool {
    fs::metadata(path).is_ok() && tokio::net::UnixStream::connect(path).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_text_is_the_one_of_go() {
        assert_eq!(exit_text(ExitStatus::from_raw(1 << 8)), "exit status 1");
        assert_eq!(exit_text(ExitStatus::from_raw(9)), "signal: killed");
        assert_eq!(exit_text(ExitStatus::from_raw(15)), "signal: 15");
    }
}

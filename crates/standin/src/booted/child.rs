//! Programs that end with `rke2`: the kernel kills them when it is gone, however it went.
//!
//! The death signal has to be asked for in the child itself, between its birth and its program. `rke2` therefore starts itself again
//! under [`COMMAND`], asks, and becomes the program.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::Context as _;
use camino::{Utf8Path, Utf8PathBuf};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::os::unix::process::ExitStatusExt as _;

use crate::component::open_log;
use crate::log;

/// The command under which `rke2` becomes another program. Not for people.
pub(crate) const COMMAND: &str = "become";
/// What the service manager tells `rke2` alone.
const OWN_VARIABLES: [&str; 6] =
    ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "WATCHDOG_PID", "WATCHDOG_USEC", "INVOCATION_ID"];

/// A program, its arguments, and where its output goes.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub(crate) program: Utf8PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) log: Utf8PathBuf,
}

impl Child {
    /// Starts it, its own folder first on its path.
    pub(crate) fn start(&self) -> anyhow::Result<tokio::process::Child> {
        let log = open_log(&self.log)?;
        let bin = self.program.parent().unwrap_or(Utf8Path::new("/"));
        let inherited = std::env::var("PATH").unwrap_or_else(|_| "/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
        // Not by its path: that of a program that was replaced meanwhile leads nowhere.
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

/// In the child: `PARENT PROGRAM ARGUMENT…`. Returns only where the program cannot be run.
pub(crate) fn become_program(arguments: &[String]) -> ExitCode {
    let [parent, program, arguments @ ..] = arguments else {
        log::fatal!("{COMMAND} needs a parent and a program");
        return ExitCode::FAILURE;
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        log::fatal!("no signal at the parent's end: {error}");
        return ExitCode::FAILURE;
    }
    // Who died before the signal was asked for sends none.
    let parent = parent.parse().ok().and_then(Pid::from_raw);
    if parent.is_none() || getppid() != parent {
        return ExitCode::FAILURE;
    }
    let error = Command::new(program).args(arguments).exec();
    log::fatal!("cannot run {program}: {error}");
    ExitCode::FAILURE
}

/// How a program ended, in Go's words, which are the journal's.
pub(crate) fn end_in_words(status: ExitStatus) -> String {
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
    fn ends_are_told_as_go_tells_them() {
        assert_eq!(end_in_words(ExitStatus::from_raw(1 << 8)), "exit status 1");
        assert_eq!(end_in_words(ExitStatus::from_raw(9)), "signal: killed");
        assert_eq!(end_in_words(ExitStatus::from_raw(15)), "signal: 15");
    }
}

//! Runs a command, reads its output line by line, and kills it if it stays silent too long.

use std::{
    io::{BufRead, BufReader},
    process::{Command, ExitStatus, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Runs `command` and passes every line of its output, stdout and stderr merged in order, to `take`.
///
/// A command that prints nothing for `silence_max` is killed with all its descendants, and the error names them: a hanging test fails the
/// run with its name.
pub(super) fn run(
    mut command: Command,
    silence_max: Duration,
    mut take: impl FnMut(&str),
) -> anyhow::Result<ExitStatus> {
    let (reader, writer) = std::io::pipe().context("creating a pipe for the output")?;
    command.stdout(Stdio::from(writer.try_clone()?)).stderr(Stdio::from(writer));
    let mut child = command.spawn().with_context(|| format!("{:?}", command.get_program()))?;
    // The command holds the write end of the pipe: without the drop, the lines would not end with the child.
    drop(command);
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || BufReader::new(reader).lines().try_for_each(|line| sender.send(line)));
    loop {
        match lines.recv_timeout(silence_max) {
            Ok(line) => take(&line.context("the output is not UTF-8")?),
            Err(RecvTimeoutError::Disconnected) => return Ok(child.wait()?),
            Err(RecvTimeoutError::Timeout) => {
                let ended = end_with_descendants(child.id());
                let _ = child.wait();
                bail!("no output for {} s; killed: {}", silence_max.as_secs(), ended.join(", "));
            }
        }
    }
}

/// Kills a process and all its descendants; returns their names.
fn end_with_descendants(root: u32) -> Vec<String> {
    let mut found = vec![(root, "cargo".to_owned())];
    let mut next = 0;
    while let Some(&(parent, _)) = found.get(next) {
        found.extend(children(parent));
        next += 1;
    }
    for pid in found.iter().filter_map(|(pid, _)| Pid::from_raw(i32::try_from(*pid).ok()?)) {
        let _ = kill_process(pid, Signal::KILL);
    }
    found.into_iter().map(|(pid, name)| format!("{name} ({pid})")).collect()
}

fn children(parent: u32) -> Vec<(u32, String)> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        // `pid (name) state parent …`; the name may contain anything.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (head, tail) = stat.rsplit_once(") ")?;
        let is_child = tail.split(' ').nth(1)?.parse() == Ok(parent);
        is_child.then(|| (pid, head.split_once('(').map(|(_, name)| name.to_owned()).unwrap_or_default()))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_streams_are_read_as_one_and_the_exit_status_is_returned() {
        let mut lines = Vec::new();
        let status =
            run(shell("echo one; echo two >&2; exit 3"), Duration::from_secs(60), |line| lines.push(line.to_owned()));
        assert_eq!(
            (status.expect("the command ran").code(), lines),
            (Some(3), vec!["one".to_owned(), "two".to_owned()])
        );
    }

    #[test]
    fn silent_command_is_killed_with_its_children() {
        let began = Instant::now();
        let error = run(shell("sleep 300 & sleep 301; true"), Duration::from_millis(300), |_| {}).unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(60));
        assert_eq!(error.to_string().matches("sleep (").count(), 2, "{error}");
    }
}

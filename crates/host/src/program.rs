//! Runs programs until they exit, including programs that were written a moment ago.

use std::{io, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
};

use crate::{
    error::HostError,
    host::{self, CommandEnd},
};

/// Most retries for a program that is open for writing. Each waits twice as long as the one before; 1 s in all.
const TRIES: u32 = 10;

/// Starts a program, and retries while another process has it open for writing.
///
/// A process that is forked while a program is being written inherits the open file until its own `exec`. Until then the kernel refuses to
/// run the program (ETXTBSY), and does not signal the end of that state. So the start is retried for at most one second (`golang/go#22315`
/// describes the race), and then fails with that error.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    for attempt in 0..TRIES {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(1 << attempt));
            }
            ended => return ended,
        }
    }
    command.spawn()
}

/// Runs a command; `program` is already prepared for this kind of host. Kills it at its timeout.
pub(crate) async fn run(mut program: Command, command: &host::Command) -> Result<CommandEnd, HostError> {
    let fail = |message: String| HostError::Program { program: command.program.clone(), message };
    program
        .args(&command.arguments)
        .envs(command.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = spawn(&mut program).map_err(|error| fail(error.to_string()))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let output = async { tokio::join!(last_bytes(stdout), last_bytes(stderr), child.wait()) };
    let (stdout, stderr, status) = tokio::time::timeout(command.timeout, output)
        .await
        .map_err(|_| fail(format!("timed out after {} s", command.timeout.as_secs())))?;
    let status = status.map_err(|error| fail(error.to_string()))?;
    let text = [stdout, stderr].concat();
    Ok(CommandEnd { status: status.code(), output: String::from_utf8_lossy(&text).into_owned() })
}

/// Returns the last bytes that a program writes; earlier ones are read and dropped, so that the program never blocks.
async fn last_bytes(from: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    const KEPT: usize = CommandEnd::OUTPUT_BYTES_MAX / 2;
    let Some(mut from) = from else { return Vec::new() };
    let (mut kept, mut chunk) = (Vec::new(), [0_u8; 4_096]);
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        kept.extend_from_slice(&chunk[..read]);
        let excess = kept.len().saturating_sub(KEPT);
        kept.drain(..excess);
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[tokio::test]
    async fn spawn_retries_while_the_program_is_open_for_writing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::write(&path, "#!/bin/sh\nexit 7\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let held = fs::OpenOptions::new().append(true).open(&path).unwrap();
        assert_eq!(Command::new(&path).spawn().unwrap_err().kind(), io::ErrorKind::ExecutableFileBusy);
        let release = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            drop(held);
        });
        let mut child = spawn(&mut Command::new(&path)).unwrap();
        assert_eq!(child.wait().await.unwrap().code(), Some(7));
        release.join().unwrap();
    }
}

//! Starting a program that was written a moment ago.

use std::{io, time::Duration};

use tokio::process::{Child, Command};

/// How often a program that is still open for writing is tried again, each time after twice as long: 1 s in all.
const TRIES: u32 = 10;

/// Starts a program, also when another process holds it open for writing for an instant.
///
/// A process that is forked while a program is being written inherits the open file until its own `exec`; the kernel refuses to run the
/// program for so long (ETXTBSY), and says nothing when that ends. So it is tried again, for a second at most: `golang/go#22315` has the
/// whole story. Whoever keeps it open for longer is answered with the error.
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

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[tokio::test]
    async fn a_program_that_is_held_open_for_writing_for_an_instant_starts_all_the_same() {
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

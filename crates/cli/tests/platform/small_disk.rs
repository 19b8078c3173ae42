//! A disk that a test can fill to its last byte: a tmpfs whose size the test sets.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    process::Command,
};

/// The mount option for a disk with plenty of free space.
const LARGE_SIZE: &str = "size=4g";
/// Free space left before the filler is written. A tmpfs cannot shrink below its use, which may grow meanwhile.
const MARGIN_KIB: u64 = 256;
/// The file that takes the free space.
const FILLER: &str = "filler";

/// A small disk; dropping it unmounts it.
pub(crate) struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// Mounts one at `folder`; prints a note and returns `None` if this user may not mount.
    pub(crate) fn at(folder: &Path) -> Option<Self> {
        fs::create_dir_all(folder).expect("made");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("{LARGE_SIZE},mode=1777"), "tmpfs"])
            .arg(folder)
            .output();
        if mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self { folder: folder.to_owned() });
        }
        eprintln!("NOT RUN: this user cannot mount a file system");
        None
    }

    /// Shrinks or grows the disk so that this much is free, in KiB.
    pub(crate) fn leave_kib(&self, kib: u64) {
        loop {
            let size = format!("remount,size={}k", self.used_kib() + kib);
            if Command::new("mount").args(["-o", &size]).arg(&self.folder).status().expect("mount runs").success() {
                return;
            }
        }
    }

    /// Fills it to its last byte.
    pub(crate) fn fill(&self) {
        self.leave_kib(MARGIN_KIB);
        let mut filler = File::options().create(true).append(true).open(self.folder.join(FILLER)).expect("a file");
        for chunk in [4_096, 1] {
            loop {
                match filler.write_all(&[0; 4_096][..chunk]) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => panic!("filling {}: {error}", self.folder.display()),
                }
            }
        }
    }

    /// Restores its size and deletes the filler.
    pub(crate) fn clear(&self) {
        let roomy = Command::new("mount").args(["-o", &format!("remount,{LARGE_SIZE}")]).arg(&self.folder).status();
        assert!(roomy.expect("mount runs").success());
        let _ = fs::remove_file(self.folder.join(FILLER));
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn used_kib(&self) -> u64 {
        let output = Command::new("df").args(["--output=used", "-k"]).arg(&self.folder).output().expect("df runs");
        let text = String::from_utf8(output.stdout).expect("a text");
        text.lines().last().and_then(|used| used.trim().parse().ok()).expect("a number")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, because a process may still have a file open there.
        let _ = Command::new("umount").arg("--lazy").arg(&self.folder).status();
    }
}

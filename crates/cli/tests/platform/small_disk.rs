//! A disk that can be full to its last byte: a file system in memory whose size is a test's to set.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    process::Command,
};

/// Its size where there is room.
const ROOMY: &str = "size=4g";
/// What is left at least between what is in use and its end, before it is filled: a file system cannot shrink below what is written meanwhile.
const MARGIN_KIB: u64 = 256;
/// What takes the room.
const FILLER: &str = "filler";

/// A disk; gone when it is dropped.
pub(crate) struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// One under that folder; `None`, said, where this user may not mount any.
    pub(crate) fn at(folder: &Path) -> Option<Self> {
        fs::create_dir_all(folder).expect("made");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("{ROOMY},mode=1777"), "tmpfs"])
            .arg(folder)
            .output();
        if mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self { folder: folder.to_owned() });
        }
        eprintln!("this user mounts no file system: that disks are full is tested by faults in the ports alone");
        None
    }

    /// Leaves so much room, and not more.
    pub(crate) fn leave_kib(&self, kib: u64) {
        loop {
            let size = format!("remount,size={}k", self.used_kib() + kib);
            if Command::new("mount").args(["-o", &size]).arg(&self.folder).status().expect("mount runs").success() {
                return;
            }
        }
    }

    /// Fills it up to its last byte.
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

    /// Makes room again.
    pub(crate) fn make_room(&self) {
        let roomy = Command::new("mount").args(["-o", &format!("remount,{ROOMY}")]).arg(&self.folder).status();
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
        // At once, whoever still has a file open there.
        let _ = Command::new("umount").arg("--lazy").arg(&self.folder).status();
    }
}

//! Extracts files from Debian packages without installing them: apt fetches and verifies, dpkg-deb unpacks.
//!
//! For two things that no Go module provides: a shell with basic utilities as one static file, and the static library with which runc
//! filters system calls. Needs no root.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use camino::{Utf8Path, Utf8PathBuf};

/// Unpacked packages; deleted on drop.
pub(super) struct Packages {
    folder: tempfile::TempDir,
}

impl Packages {
    /// Fetches `names` in the versions of this machine's Debian.
    pub(super) fn unpack(names: &[&str]) -> anyhow::Result<Self> {
        let packages = Self { folder: tempfile::tempdir()? };
        let root = packages.root()?;
        fs::create_dir_all(root.join("tree"))?;
        if !packages.download(names, &[])? {
            // The package lists are missing or outdated; private lists need no root.
            let state = packages.own_lists()?;
            let updated = apt().args(&state).arg("update").stdout(Stdio::null()).status().context("apt-get")?;
            ensure!(updated.success(), "apt-get update: {updated}");
            if !packages.download(names, &state)? {
                bail!("apt-get cannot download {}", names.join(" "));
            }
        }
        for entry in root.read_dir_utf8()? {
            let path = entry?.into_path();
            if path.extension() == Some("deb") {
                let unpacked = Command::new("dpkg-deb").arg("--extract").arg(&path).arg(root.join("tree")).status();
                let unpacked = unpacked.context("dpkg-deb does not run")?;
                ensure!(unpacked.success(), "dpkg-deb --extract {path}: {unpacked}");
            }
        }
        Ok(packages)
    }

    fn root(&self) -> anyhow::Result<&Utf8Path> {
        Utf8Path::from_path(self.folder.path()).context("the path is not UTF-8")
    }

    fn download(&self, names: &[&str], options: &[String]) -> anyhow::Result<bool> {
        let status = apt()
            .current_dir(self.root()?)
            .args(options)
            .args(["--quiet", "download"])
            .args(names)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .context(
                "apt-get does not run: busybox and libseccomp of the stand-in's node programs are taken from Debian packages; on \
                 another system put built node programs into the folder `node` of GPUAAS_COMPONENTS",
            )?;
        Ok(status.success())
    }

    fn own_lists(&self) -> anyhow::Result<Vec<String>> {
        let root = self.root()?;
        fs::create_dir_all(root.join("state/lists/partial"))?;
        fs::create_dir_all(root.join("cache/archives/partial"))?;
        let option = |name: &str, path: Utf8PathBuf| ["-o".to_owned(), format!("{name}={path}")];
        let state = option("Dir::State", root.join("state"));
        let status = option("Dir::State::status", "/var/lib/dpkg/status".into());
        Ok([state, status, option("Dir::Cache", root.join("cache"))].concat())
    }

    /// Path of `program`: newer systems keep all programs below `/usr`.
    pub(super) fn program(&self, program: &str) -> anyhow::Result<Utf8PathBuf> {
        let tree = self.root()?.join("tree");
        let places = ["bin", "usr/bin"].map(|folder| tree.join(folder).join(program));
        places
            .into_iter()
            .find(|place| place.is_file())
            .with_context(|| format!("the packages do not contain {program}"))
    }

    /// Writes a program that answers as pkg-config would if this library were installed.
    pub(super) fn pkg_config(&self, module: &str, library: &str) -> anyhow::Result<Utf8PathBuf> {
        let tree = self.root()?.join("tree/usr");
        let (include, file) = (tree.join("include"), format!("lib{library}.a"));
        let folders = tree.join("lib").read_dir_utf8().with_context(|| tree.to_string())?;
        let mut folders = folders.filter_map(Result::ok).map(|entry| entry.into_path());
        let folder = folders
            .find(|folder| folder.join(&file).is_file())
            .context("the packages do not contain the static library")?;
        let script = self.root()?.join("pkg-config");
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in\n*--cflags*{module}) echo -I{include} ;;\n*--libs*{module}) echo -L{folder} -l{library} ;;\n\
             *) exit 1 ;;\nesac\n"
        );
        fs::write(&script, text)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        Ok(script)
    }
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command
}

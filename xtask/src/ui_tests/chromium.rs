//! Debian's Chromium, which is installed if the user is root.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

/// Another browser to use, for machines without the package.
const VARIABLE: &str = "UI_CHROMIUM";
const PROGRAM: &str = "/usr/bin/chromium";
/// Debian package with the browser, and one with fonts: without any, pages show boxes.
const PACKAGES: [&str; 2] = ["chromium", "fonts-dejavu-core"];

/// Returns the path of the browser, or the reason why there is none.
pub(super) fn ensure() -> Result<PathBuf, String> {
    if let Some(found) = find() {
        return Ok(found);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(format!("{PROGRAM} was not found; install the Debian package chromium"));
    }
    let install = [&["-qq", "install", "--yes", "--no-install-recommends"][..], &PACKAGES].concat();
    for arguments in [&["-qq", "update"][..], &install] {
        let mut apt = Command::new("apt-get");
        // The output of apt-get goes to stderr, because stdout is for data.
        apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::from(std::io::stderr()));
        // Lists of packages may be partly out of reach; the installation shows whether that matters.
        let _ = apt.status();
    }
    find().ok_or_else(|| format!("{PROGRAM} was not found, and apt-get could not install the package chromium"))
}

fn find() -> Option<PathBuf> {
    let chosen = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    Some(chosen.unwrap_or_else(|| PROGRAM.into())).filter(|path| path.is_file())
}

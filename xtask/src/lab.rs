//! Builds what the lab's scenarios need (`cargo xtask lab`). Each part has its own command, which prints the path of the result.

use std::{
    fs,
    io::BufReader,
    process::{Command, Stdio},
    time::SystemTime,
};

use anyhow::{Context, ensure};
use camino::{Utf8Path, Utf8PathBuf};
use cargo_metadata::{Message, TargetKind};
use gpuaas_lab::{Builder, CONTRACT_HELPER, CONTRACT_TEST, Part, Sources};

use crate::{package::programs, release, shell};

/// Builds parts from this checkout.
pub(crate) struct Checkout;

impl Builder for Checkout {
    fn build(&self, part: Part, sources: &Sources) -> anyhow::Result<Utf8PathBuf> {
        match part {
            Part::Programs => programs::folder(sources.profile()),
            Part::Packages => packages("packages", &["--build", "1"], sources.profile()),
            Part::PackagesNewer => packages("packages-newer", &["--build", "2", "--unchecked"], sources.profile()),
            Part::Release => match sources {
                Sources { release: Some(version), .. } => release::official::ensure(version),
                Sources { artifacts: Some(folder), .. } => {
                    folder.canonicalize_utf8().with_context(|| folder.to_string())
                }
                Sources { release: None, artifacts: None, .. } => printed_by(&["release"]),
            },
            Part::Kubectl => Ok(printed_by(&["components"])?.join("kubectl")),
            Part::Contract => contract(),
        }
    }

    fn folder(&self) -> anyhow::Result<Utf8PathBuf> {
        let folder = text(shell::target())?.join("lab");
        fs::create_dir_all(&folder).with_context(|| folder.to_string())?;
        Ok(folder)
    }
}

/// Builds packages of the programs with this profile, unless they are newer than all their inputs.
fn packages(name: &str, how: &[&str], profile: &str) -> anyhow::Result<Utf8PathBuf> {
    let programs = programs::folder(profile)?;
    let out = Checkout.folder()?.join(if profile == "dev" { name.to_owned() } else { format!("{name}-{profile}") });
    // The package metadata is in the crates' manifests.
    let sources =
        ["packaging", "crates/api/src", "crates/agent/Cargo.toml", "crates/cli/Cargo.toml", "xtask/src/package"];
    let mut inputs = vec![programs.join("gpuaas"), programs.join("gpuaas-agent")];
    inputs.extend(sources.map(root).into_iter().collect::<anyhow::Result<Vec<_>>>()?);
    let made = newest(&out.join("SHA256SUMS")).ok();
    let changed = inputs.iter().map(|input| newest(input)).collect::<anyhow::Result<Vec<_>>>()?;
    if made.is_some_and(|made| changed.iter().all(|changed| *changed < made)) {
        return Ok(out);
    }
    printed_by(&[&["package", "--profile", profile, "--out", out.as_str()], how].concat())
}

fn root(path: &str) -> anyhow::Result<Utf8PathBuf> {
    Ok(text(shell::root().to_owned())?.join(path))
}

/// Latest modification time of a file or of anything below a folder.
fn newest(path: &Utf8Path) -> anyhow::Result<SystemTime> {
    let about = fs::symlink_metadata(path).with_context(|| path.to_string())?;
    let mut newest_of_all = about.modified()?;
    if about.is_dir() {
        for entry in path.read_dir_utf8()? {
            newest_of_all = newest_of_all.max(newest(entry?.path())?);
        }
    }
    Ok(newest_of_all)
}

/// Runs another xtask command and returns the path that it prints.
fn printed_by(chore: &[&str]) -> anyhow::Result<Utf8PathBuf> {
    eprintln!("==> cargo xtask {}", chore.join(" "));
    let output =
        Command::new(shell::own_program()).args(chore).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "cargo xtask {}: {}", chore.join(" "), output.status);
    let path = String::from_utf8(output.stdout).context("the output is not UTF-8")?;
    Ok(path.trim().into())
}

fn text(path: std::path::PathBuf) -> anyhow::Result<Utf8PathBuf> {
    Utf8PathBuf::from_path_buf(path).ok().context("the path is not UTF-8")
}

/// Builds the host contract and its helper program into a separate folder, with the same features as all other tests.
fn contract() -> anyhow::Result<Utf8PathBuf> {
    eprintln!("==> building the host contract");
    let words = ["test", "--workspace", "--all-features", "--locked", "--no-run", "--quiet", "--test", CONTRACT_TEST];
    let mut cargo = shell::cargo(&[&words[..], &["--message-format", "json-render-diagnostics"]].concat());
    let mut child = cargo.stdout(Stdio::piped()).spawn().context("starting cargo")?;
    let output = BufReader::new(child.stdout.take().context("stdout is not piped")?);
    let mut built = Vec::new();
    for message in Message::parse_stream(output) {
        if let Message::CompilerArtifact(artifact) = message?
            && let Some(executable) = artifact.executable
            && artifact.target.kind.iter().any(|kind| matches!(kind, TargetKind::Test | TargetKind::Bin))
        {
            built.push((artifact.target.name, executable));
        }
    }
    ensure!(child.wait()?.success(), "the host contract does not build");
    let folder = Checkout.folder()?.join("contract");
    fs::create_dir_all(&folder).with_context(|| folder.to_string())?;
    for name in [CONTRACT_TEST, CONTRACT_HELPER] {
        let found = built.iter().find(|(target, _)| target == name);
        let (_, executable) = found.with_context(|| format!("cargo built no {name}"))?;
        fs::copy(executable, folder.join(name)).with_context(|| executable.to_string())?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_as_new_as_its_newest_file() {
        let kept = tempfile::tempdir().expect("a temporary folder");
        let folder = Utf8Path::from_path(kept.path()).expect("the path is UTF-8");
        fs::create_dir(folder.join("inner")).expect("made");
        let file = fs::File::create(folder.join("inner/file")).expect("made");
        let later = SystemTime::now() + std::time::Duration::from_secs(1_000);
        file.set_modified(later).expect("set");
        assert_eq!(newest(folder).expect("the folder exists"), later);
        assert!(newest(&folder.join("nothing")).is_err());
    }
}

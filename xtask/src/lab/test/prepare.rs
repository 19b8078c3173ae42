//! Parts that scenarios need and that take time to build: programs, packages, a release. They exist before the first node boots.
//!
//! Guarantees: after this step, the stand-in's release cannot be distinguished from a real one: both are a folder.
//!
//! Deliberately absent: how the parts are built. Each has its own command, which prints the path of the result.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::{Command, Stdio},
    time::SystemTime,
};

use anyhow::{Context, ensure};
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};

use super::contract;
use crate::{package::programs, release, shell};

/// Sources of the release; by default the stand-in is built.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Sources {
    /// Test with this genuine release of RKE2, downloaded into the cache and verified by its checksums.
    #[arg(long, value_name = "VERSION")]
    pub(crate) release: Option<String>,
    /// Test with the release in this folder, which is named like its version. `--release` takes precedence.
    #[arg(long, value_name = "DIR", env = "GPUAAS_RKE2_ARTIFACTS")]
    pub(crate) artifacts: Option<Utf8PathBuf>,
    /// Cargo profile of programs and packages; `dev` by default.
    #[arg(skip)]
    pub(crate) profile: Option<String>,
}

impl Sources {
    fn profile(&self) -> &str {
        self.profile.as_deref().unwrap_or("dev")
    }
}

/// A part that a scenario needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Part {
    /// A folder with `gpuaas` and `gpuaas-agent`.
    Programs,
    /// A folder of packages for enrollments.
    Packages,
    /// The same packages from a later build.
    PackagesNewer,
    /// A folder with the layout of an RKE2 release.
    Release,
    /// The kubectl program.
    Kubectl,
    /// A folder with the host contract's test and its helper program.
    Contract,
}

/// Paths of the parts, and the evidence folder of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Prepared {
    paths: BTreeMap<Part, Utf8PathBuf>,
    evidence: Utf8PathBuf,
    wanted: Vec<String>,
}

impl Prepared {
    /// Builds all of these parts.
    pub(super) fn make(parts: &BTreeSet<Part>, sources: &Sources) -> anyhow::Result<Self> {
        let mut paths = BTreeMap::new();
        for part in parts {
            paths.insert(*part, part.make(sources).with_context(|| format!("{part:?}"))?);
        }
        Ok(Self { paths, evidence: Utf8PathBuf::new(), wanted: Vec::new() })
    }

    /// Sets the selection for the scenario, such as names of cells.
    pub(super) fn with_selection(self, wanted: Vec<String>) -> Self {
        Self { wanted, ..self }
    }

    /// Selection for the scenario, such as names of cells.
    pub(crate) fn wanted(&self) -> &[String] {
        &self.wanted
    }

    /// Returns a copy with this evidence folder.
    pub(super) fn for_scenario(&self, evidence: &Utf8Path) -> Self {
        Self { evidence: evidence.to_owned(), ..self.clone() }
    }

    /// The scenario's evidence folder.
    pub(crate) fn evidence(&self) -> &Utf8Path {
        &self.evidence
    }

    /// Path of a part; fails if the scenario did not declare it.
    pub(crate) fn path(&self, part: Part) -> anyhow::Result<&Utf8Path> {
        self.paths
            .get(&part)
            .map(Utf8PathBuf::as_path)
            .with_context(|| format!("the scenario does not declare the part {part:?}"))
    }
}

impl Part {
    fn make(self, sources: &Sources) -> anyhow::Result<Utf8PathBuf> {
        match self {
            Self::Programs => programs::folder(sources.profile()),
            Self::Packages => packages("packages", &["--build", "1"], sources.profile()),
            Self::PackagesNewer => packages("packages-newer", &["--build", "2", "--unchecked"], sources.profile()),
            Self::Release => match sources {
                Sources { release: Some(version), .. } => release::official::ensure(version),
                Sources { artifacts: Some(folder), .. } => {
                    folder.canonicalize_utf8().with_context(|| folder.to_string())
                }
                Sources { release: None, artifacts: None, .. } => printed_by(&["release"]),
            },
            Self::Kubectl => Ok(printed_by(&["components"])?.join("kubectl")),
            Self::Contract => contract::build(),
        }
    }
}

/// Folder of the lab's tests within cargo's target folder.
pub(super) fn folder() -> anyhow::Result<Utf8PathBuf> {
    let folder = text(shell::target())?.join("lab");
    fs::create_dir_all(&folder).with_context(|| folder.to_string())?;
    Ok(folder)
}

/// Builds packages of the programs with this profile, unless they are newer than all their inputs.
fn packages(name: &str, how: &[&str], profile: &str) -> anyhow::Result<Utf8PathBuf> {
    let programs = programs::folder(profile)?;
    let out = folder()?.join(if profile == "dev" { name.to_owned() } else { format!("{name}-{profile}") });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undeclared_part_is_refused() {
        let paths = BTreeMap::from([(Part::Kubectl, "/bin/kubectl".into())]);
        let given = Prepared { paths, ..Prepared::default() }.for_scenario("/evidence".into());
        assert_eq!(given.path(Part::Kubectl).expect("a declared part"), "/bin/kubectl");
        assert!(given.path(Part::Release).expect_err("an undeclared part").to_string().contains("Release"));
        let text = serde_json::to_string(&given).expect("the parts are serialised");
        assert_eq!(serde_json::from_str::<Prepared>(&text).expect("the parts are parsed"), given);
    }

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

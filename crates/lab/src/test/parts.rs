//! Parts that scenarios need and that take time to build: programs, packages, a release. They exist before the first node boots.
//!
//! Guarantees: after this step, the stand-in's release cannot be distinguished from a real one: both are a folder.
//!
//! Deliberately absent: how the parts are built. The caller of the lab implements [`Builder`].

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};

/// Builds the parts of scenarios.
pub trait Builder {
    /// Path of a part; builds it if it is missing or outdated.
    fn build(&self, part: Part, sources: &Sources) -> anyhow::Result<Utf8PathBuf>;

    /// Folder for what is kept after the lab: the evidence of scenarios.
    fn folder(&self) -> anyhow::Result<Utf8PathBuf>;
}

/// Sources of the release; by default the stand-in is built.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Sources {
    /// Test with this genuine release of RKE2, downloaded into the cache and verified by its checksums.
    #[arg(long, value_name = "VERSION")]
    pub release: Option<String>,
    /// Test with the release in this folder, which is named like its version. `--release` takes precedence.
    #[arg(long, value_name = "DIR", env = "GPUAAS_RKE2_ARTIFACTS")]
    pub artifacts: Option<Utf8PathBuf>,
    /// Cargo profile of programs and packages; `dev` by default.
    #[arg(skip)]
    pub profile: Option<String>,
}

impl Sources {
    /// Cargo profile of programs and packages.
    pub fn profile(&self) -> &str {
        self.profile.as_deref().unwrap_or("dev")
    }
}

/// A part that a scenario needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
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
    /// The builder's folder.
    folder: Utf8PathBuf,
    evidence: Utf8PathBuf,
    wanted: Vec<String>,
}

impl Prepared {
    /// Builds all of these parts.
    pub(super) fn make(parts: &BTreeSet<Part>, sources: &Sources, builder: &dyn Builder) -> anyhow::Result<Self> {
        let mut paths = BTreeMap::new();
        for part in parts {
            paths.insert(*part, builder.build(*part, sources).with_context(|| format!("{part:?}"))?);
        }
        Ok(Self { paths, folder: builder.folder()?, evidence: Utf8PathBuf::new(), wanted: Vec::new() })
    }

    /// Sets the selection for the scenario, such as names of cells.
    pub(super) fn with_selection(self, wanted: Vec<String>) -> Self {
        Self { wanted, ..self }
    }

    /// Selection for the scenario, such as names of cells.
    pub(crate) fn wanted(&self) -> &[String] {
        &self.wanted
    }

    /// Returns a copy for a scenario, with its evidence folder.
    pub(super) fn for_scenario(&self, name: &str) -> Self {
        Self { evidence: self.folder.join("evidence").join(name), ..self.clone() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undeclared_part_is_refused() {
        let paths = BTreeMap::from([(Part::Kubectl, "/bin/kubectl".into())]);
        let given = Prepared { paths, ..Prepared::default() }.for_scenario("rke2");
        assert_eq!(given.path(Part::Kubectl).expect("a declared part"), "/bin/kubectl");
        assert!(given.path(Part::Release).expect_err("an undeclared part").to_string().contains("Release"));
        let text = serde_json::to_string(&given).expect("the parts are serialised");
        assert_eq!(serde_json::from_str::<Prepared>(&text).expect("the parts are parsed"), given);
    }
}

//! Selection and order of integration tests.

use anyhow::ensure;

use crate::shell;

/// Crates whose integration tests deploy, which requires a release.
const DEPLOYING: [&str; 4] = ["gpuaas-app-rke2-effects", "gpuaas-cli", "gpuaas-kube", "gpuaas-standin"];
/// The integration test of whole programs: by far the longest of those that deploy.
const PLATFORM: &str = "platform";
/// Integration tests that use CPU time all along but in simulated time, so parallel load does not affect them.
const COMPUTING: [&str; 1] = ["simulation"];

/// Arguments of `cargo test` that select integration tests.
#[derive(Default)]
pub(super) struct IntegrationTests {
    /// The test of whole programs, which needs a release.
    pub(super) platform: Vec<String>,
    /// Other tests that need a release.
    pub(super) deploying: Vec<String>,
    /// Tests that keep a core busy.
    pub(super) computing: Vec<String>,
    /// All other tests.
    pub(super) others: Vec<String>,
}

impl IntegrationTests {
    /// Lists the integration tests of the workspace, each once.
    pub(super) fn of_the_workspace() -> anyhow::Result<Self> {
        let metadata = cargo_metadata::MetadataCommand::new().current_dir(shell::root()).no_deps().exec()?;
        let mut chosen = Self::default();
        let mut names = Vec::new();
        for package in metadata.workspace_packages() {
            for target in package.targets.iter().filter(|target| target.is_test()) {
                ensure!(
                    !names.contains(&&target.name),
                    "cargo selects tests by name, but two crates have a test {}",
                    target.name
                );
                names.push(&target.name);
                let of = match () {
                    () if target.name == PLATFORM => &mut chosen.platform,
                    () if DEPLOYING.contains(&package.name.as_str()) => &mut chosen.deploying,
                    () if COMPUTING.contains(&target.name.as_str()) => &mut chosen.computing,
                    () => &mut chosen.others,
                };
                of.extend(["--test".to_owned(), target.name.clone()]);
            }
        }
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_integration_test_is_chosen_once_and_every_exception_exists() {
        let chosen = IntegrationTests::of_the_workspace().unwrap();
        assert!(!chosen.deploying.is_empty() && !chosen.others.is_empty());
        assert_eq!(chosen.computing, ["--test", "simulation"]);
        assert_eq!(chosen.platform, ["--test", "platform"]);
    }
}

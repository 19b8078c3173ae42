//! Proves that no program can be built with deliberate bugs: only tests depend on `gpuaas-bugs` with its feature.

use cargo_metadata::{DependencyKind, MetadataCommand};

use crate::shell;

/// The crate with the switches of the deliberate bugs.
const CRATE: &str = "gpuaas-bugs";
/// Its feature, without which no bug exists.
const FEATURE: &str = "deliberate-bugs";

/// What a package declares about [`CRATE`].
struct Declared {
    package: String,
    /// Features of each dependency on the crate that programs are built with.
    dependencies: Vec<Vec<String>>,
    /// Features with the features that they enable.
    features: Vec<(String, Vec<String>)>,
}

/// Lists every dependency and every feature with which a program could have bugs.
pub(super) fn check() -> anyhow::Result<Vec<String>> {
    let metadata = MetadataCommand::new().current_dir(shell::root()).no_deps().exec()?;
    let declared = metadata.packages.into_iter().map(|package| {
        let of_programs = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.name == CRATE && dependency.kind != DependencyKind::Development);
        Declared {
            dependencies: of_programs.map(|dependency| dependency.features.clone()).collect(),
            package: package.name.to_string(),
            features: package.features.into_iter().collect(),
        }
    });
    Ok(declared.flat_map(|declared| findings(&declared)).collect())
}

fn findings(declared: &Declared) -> Vec<String> {
    let Declared { package, dependencies, features } = declared;
    let mut findings = Vec::new();
    if dependencies.iter().flatten().any(|feature| feature == FEATURE) {
        findings.push(format!("bugs: {package} depends on {CRATE} with {FEATURE}; only [dev-dependencies] may"));
    }
    for (name, enabled) in features {
        let of_crate = |feature: &String| feature.starts_with(CRATE) && feature.ends_with(FEATURE);
        let is_default = package == CRATE && name == "default" && !enabled.is_empty();
        if is_default || enabled.iter().any(of_crate) {
            findings.push(format!("bugs: the feature {name} of {package} enables {FEATURE} for programs"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(package: &str, dependencies: &[&str], features: &[(&str, &str)]) -> Declared {
        let features = features.iter().map(|(name, enabled)| ((*name).to_owned(), vec![(*enabled).to_owned()]));
        Declared {
            package: package.to_owned(),
            dependencies: vec![dependencies.iter().map(|feature| (*feature).to_owned()).collect()],
            features: features.collect(),
        }
    }

    #[test]
    fn programs_of_this_workspace_have_no_deliberate_bugs() {
        assert_eq!(check().expect("cargo metadata runs"), Vec::<String>::new());
    }

    #[test]
    fn dependency_or_feature_that_enables_bugs_is_found() {
        for (declared, is_found) in [
            (declared("gpuaas-engine", &[], &[]), false),
            (declared("gpuaas-engine", &[FEATURE], &[]), true),
            (declared("gpuaas-engine", &[], &[("default", "gpuaas-bugs/deliberate-bugs")]), true),
            (declared("gpuaas-engine", &[], &[("crash-points", "gpuaas-crash-points/armed")]), false),
            (declared(CRATE, &[], &[("default", FEATURE)]), true),
        ] {
            assert_eq!(!findings(&declared).is_empty(), is_found, "{}", declared.package);
        }
    }
}

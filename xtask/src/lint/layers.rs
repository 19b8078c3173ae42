//! Allowed dependencies between crates. They point one way: down.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand};

use crate::shell;

/// Every crate with those of our crates that it may depend on, bottom layer first. All other dependencies are errors.
const LAYERS: &[(&str, &[&str])] = &[
    // 0: pure
    ("gpuaas-bugs", &[]),
    ("gpuaas-model", &[]),
    ("gpuaas-wire", &["gpuaas-model"]),
    ("gpuaas-api-types", &["gpuaas-model"]),
    ("gpuaas-crash-points", &["gpuaas-model"]),
    ("gpuaas-planner", &["gpuaas-bugs", "gpuaas-model", "gpuaas-wire"]),
    ("gpuaas-trust", &["gpuaas-model"]),
    ("gpuaas-app-rke2-tasks", &["gpuaas-model", "gpuaas-wire"]),
    ("gpuaas-app-rke2", &["gpuaas-bugs", "gpuaas-model", "gpuaas-wire", "gpuaas-planner", "gpuaas-app-rke2-tasks"]),
    // 1: ports to the outside
    ("gpuaas-store", &["gpuaas-bugs", "gpuaas-model", "gpuaas-wire", "gpuaas-planner"]),
    ("gpuaas-host", &["gpuaas-model", "gpuaas-wire"]),
    ("gpuaas-handler", &["gpuaas-model", "gpuaas-wire", "gpuaas-host"]),
    ("gpuaas-kube", &[]),
    ("gpuaas-artifacts", &["gpuaas-model"]),
    ("gpuaas-channel", &["gpuaas-model", "gpuaas-wire", "gpuaas-trust"]),
    // 2: logic
    (
        "gpuaas-engine",
        &[
            "gpuaas-bugs",
            "gpuaas-model",
            "gpuaas-crash-points",
            "gpuaas-wire",
            "gpuaas-planner",
            "gpuaas-trust",
            "gpuaas-store",
        ],
    ),
    (
        "gpuaas-app-rke2-effects",
        &["gpuaas-model", "gpuaas-wire", "gpuaas-planner", "gpuaas-app-rke2", "gpuaas-kube", "gpuaas-engine"],
    ),
    (
        "gpuaas-app-rke2-handlers",
        &["gpuaas-model", "gpuaas-wire", "gpuaas-trust", "gpuaas-app-rke2-tasks", "gpuaas-host", "gpuaas-handler"],
    ),
    (
        "gpuaas-api",
        &[
            "gpuaas-model",
            "gpuaas-wire",
            "gpuaas-api-types",
            "gpuaas-planner",
            "gpuaas-trust",
            "gpuaas-store",
            "gpuaas-artifacts",
            "gpuaas-engine",
        ],
    ),
    ("gpuaas-client", &["gpuaas-model", "gpuaas-api-types"]),
    ("gpuaas-sandbox", &["gpuaas-model", "gpuaas-crash-points", "gpuaas-host"]),
    // 3: programs
    (
        "gpuaas-server",
        &[
            "gpuaas-model",
            "gpuaas-crash-points",
            "gpuaas-wire",
            "gpuaas-trust",
            "gpuaas-app-rke2",
            "gpuaas-app-rke2-effects",
            "gpuaas-store",
            "gpuaas-artifacts",
            "gpuaas-channel",
            "gpuaas-engine",
            "gpuaas-api",
        ],
    ),
    (
        "gpuaas-agent",
        &[
            "gpuaas-model",
            "gpuaas-crash-points",
            "gpuaas-wire",
            "gpuaas-trust",
            "gpuaas-host",
            "gpuaas-handler",
            "gpuaas-app-rke2-handlers",
        ],
    ),
    (
        "gpuaas-cli",
        &["gpuaas-model", "gpuaas-api-types", "gpuaas-client", "gpuaas-server", "gpuaas-sandbox", "gpuaas-trust"],
    ),
    // outside the product: no crate above may depend on these
    ("gpuaas-standin", &[]),
    ("gpuaas-postgres-server", &[]),
    ("gpuaas-test-support", &["gpuaas-model"]),
    ("gpuaas-lab", &["gpuaas-api-types"]),
    ("gpuaas-host-contract", &["gpuaas-host", "gpuaas-sandbox"]),
    ("gpuaas-store-contract", &[]),
    ("gpuaas-engine-scripted", &[]),
    (
        "xtask",
        &["gpuaas-api-types", "gpuaas-client", "gpuaas-lab", "gpuaas-model", "gpuaas-postgres-server", "gpuaas-store"],
    ),
];

/// Lists every dependency that the table does not allow and every crate that it does not contain.
pub(crate) fn check() -> anyhow::Result<Vec<String>> {
    let metadata = MetadataCommand::new().current_dir(shell::root()).no_deps().exec()?;
    let edges = metadata.packages.iter().map(|package| {
        let ours = package.dependencies.iter().filter(|dependency| {
            dependency.kind != DependencyKind::Development
                && (dependency.path.is_some() || dependency.name.starts_with("gpuaas-"))
        });
        (package.name.to_string(), ours.map(|dependency| dependency.name.clone()).collect())
    });
    Ok(violations(&edges.collect()))
}

fn violations(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = LAYERS.iter().copied().collect();
    let mut findings = Vec::new();
    for (from, to) in edges {
        let Some(allowed) = allowed.get(from.as_str()) else {
            findings.push(format!("layers: {from} has no layer; add it to xtask/src/lint/layers.rs"));
            continue;
        };
        for target in to.iter().filter(|target| !allowed.contains(&target.as_str())) {
            findings.push(format!("layers: {from} must not import {target}"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(from: &str, to: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
        BTreeMap::from([(from.to_owned(), to.iter().map(|to| (*to).to_owned()).collect())])
    }

    #[test]
    fn this_workspace_keeps_its_layers() {
        assert_eq!(check().expect("cargo metadata runs"), Vec::<String>::new());
    }

    #[test]
    fn an_upward_edge_and_an_unknown_crate_are_found() {
        assert_eq!(
            violations(&edges("gpuaas-planner", &["gpuaas-model", "gpuaas-store"])),
            ["layers: gpuaas-planner must not import gpuaas-store"]
        );
        assert_eq!(violations(&edges("gpuaas-new", &[])).len(), 1);
    }

    #[test]
    fn the_table_itself_points_downward() {
        for (position, (name, imports)) in LAYERS.iter().enumerate() {
            for import in *imports {
                let below = LAYERS[..position].iter().any(|(lower, _)| lower == import);
                assert!(below, "{name} imports {import}, which is not below it");
            }
        }
    }
}

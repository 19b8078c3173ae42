//! Drift: an observation names every difference, changes nothing, and contains no secret.

use futures::{FutureExt, future::LocalBoxFuture};
use gpuaas_app_rke2_tasks::{DeviationKind, Rke2Observation, Rke2Observe};
use gpuaas_trust::sha256_hex;
use serde_json::json;

use crate::{Case, sandbox::Node};

const UNIT: &str = "rke2-server.service";
const FOLDER: &str = "/etc/rancher/rke2";
const CONFIG: &str = "token-file: /etc/rancher/rke2/token\n";
const SECRET: &str = "K10secret";

pub(crate) fn cases() -> Vec<(&'static str, Case)> {
    vec![
        ("unchanged_node_has_no_deviation", unchanged_node_has_no_deviation as Case),
        ("every_difference_is_named_and_no_secret", every_difference_is_named_and_no_secret),
        ("missing_files_and_unit_are_named", missing_files_and_unit_are_named),
        ("links_in_place_of_files_are_differences", links_in_place_of_files_are_differences),
    ]
}

async fn configured(node: &Node) {
    node.with_rke2().await;
    node.host.units().enable(UNIT).await.unwrap();
    node.file(&format!("{FOLDER}/config.yaml"), 0o600, CONFIG);
    node.file(&format!("{FOLDER}/token"), 0o600, SECRET);
    node.file(&format!("{FOLDER}/agent-token"), 0o600, "agents");
    node.file(&format!("{FOLDER}/rke2.yaml"), 0o600, "kubeconfig");
}

async fn observe(node: &Node) -> Rke2Observation {
    let expected = json!({
        "config_sha256": sha256_hex(CONFIG.as_bytes()),
        "token_sha256": sha256_hex(SECRET.as_bytes()),
        "agent_token_sha256": sha256_hex(b"agents"),
    });
    node.task::<Rke2Observe>(json!({ "role": "server", "expected": expected })).await.unwrap()
}

fn kinds(observation: &Rke2Observation) -> Vec<DeviationKind> {
    observation.deviations.iter().map(|deviation| deviation.kind).collect()
}

fn unchanged_node_has_no_deviation(node: &Node) -> LocalBoxFuture<'_, ()> {
    async move {
        configured(node).await;
        let observation = observe(node).await;
        assert_eq!(observation.deviations, []);
        assert_eq!(observation.config_sha256, Some(sha256_hex(CONFIG.as_bytes())));
        assert_eq!(observation.version_line.as_deref(), Some("rke2 version v1 (x)"));
    }
    .boxed_local()
}

fn every_difference_is_named_and_no_secret(node: &Node) -> LocalBoxFuture<'_, ()> {
    async move {
        configured(node).await;
        node.file(&format!("{FOLDER}/config.yaml"), 0o600, "token: othersecret\n");
        node.file(&format!("{FOLDER}/token"), 0o644, SECRET);
        node.file(&format!("{FOLDER}/agent-token"), 0o600, "othersecret");
        node.file(&format!("{FOLDER}/config.yaml.d/90-\u{1b}[2J.yaml"), 0o600, "token: othersecret");
        node.file(&format!("{FOLDER}/config.yaml.d/notes.txt"), 0o600, "");
        for number in 0..2_000 {
            node.file(&format!("{FOLDER}/config.yaml.d/{number}.yml"), 0o600, "");
        }
        node.host.units().disable(UNIT).await.unwrap();
        let observation = observe(node).await;
        use DeviationKind as D;
        let named = kinds(&observation);
        assert_eq!(named[..4], [D::ConfigChanged, D::TokenChanged, D::TokenChanged, D::UnitDisabled]);
        assert_eq!(named[4..], [D::ForeignConfig; 9], "eight files, and the number of the others");
        let texts: Vec<&str> = observation.deviations.iter().map(|deviation| deviation.text.as_str()).collect();
        assert_eq!(texts[1], "/etc/rancher/rke2/token has mode 0644 instead of 0600");
        assert!(texts[12].ends_with("has 1993 further files"), "{}", texts[12]);
        let whole = format!("{observation:?}");
        for hidden in ["secret", "K10", &sha256_hex(b"othersecret"), "\\u{1b}", "notes"] {
            assert!(!whole.contains(hidden), "{hidden} in {whole}");
        }
        node.host.units().enable(UNIT).await.unwrap();
        std::os::unix::fs::symlink("/dev/null", node.path("/etc/systemd/system").join(UNIT)).unwrap();
        assert!(kinds(&observe(node).await).contains(&D::UnitMasked));
        assert!(node.path("/etc/systemd/system").join(UNIT).symlink_metadata().is_ok(), "nothing is repaired");
    }
    .boxed_local()
}

fn missing_files_and_unit_are_named(node: &Node) -> LocalBoxFuture<'_, ()> {
    async move {
        let observation = observe(node).await;
        use DeviationKind as D;
        let all = [D::ConfigMissing, D::TokenMissing, D::TokenMissing, D::UnitFileMissing, D::ProgramMissing];
        assert_eq!(kinds(&observation), [&all[..], &[D::KubeconfigMissing]].concat());
        assert_eq!((observation.version_line, observation.config_sha256, observation.unit), (None, None, None));
        node.file("/usr/local/bin/rke2", 0o644, "not executable");
        assert!(kinds(&observe(node).await).contains(&D::ProgramMissing), "a program that does not run is missing");
        let without = node.task::<Rke2Observe>(json!({ "role": "server" })).await.unwrap();
        assert_eq!(without.deviations, [], "a task that expects nothing finds no difference");
    }
    .boxed_local()
}

fn links_in_place_of_files_are_differences(node: &Node) -> LocalBoxFuture<'_, ()> {
    async move {
        configured(node).await;
        for name in ["config.yaml", "token", "rke2.yaml"] {
            let path = node.path(FOLDER).join(name);
            std::fs::rename(&path, path.with_extension("moved")).unwrap();
            std::os::unix::fs::symlink(path.with_extension("moved").file_name().unwrap(), &path).unwrap();
        }
        node.file(&format!("{FOLDER}/agent-token"), 0o600, &"x".repeat(100_000));
        let observation = observe(node).await;
        use DeviationKind as D;
        let expected = [D::ConfigChanged, D::TokenChanged, D::TokenChanged, D::KubeconfigMissing];
        assert_eq!(kinds(&observation), expected, "{:?}", observation.deviations);
    }
    .boxed_local()
}

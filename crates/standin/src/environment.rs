//! Reads options from the environment variables of RKE2's reference.
//!
//! The command line and the configuration files override variables, because RKE2 turns the files into arguments before it reads variables.
//! The only exception is the path of the configuration file: `RKE2_CONFIG_FILE` overrides `--config`.

use crate::config::Options;
use crate::flags::{self, Shape};

/// The variable that holds the configuration file's path.
pub(crate) const CONFIG_FILE: &str = "RKE2_CONFIG_FILE";
/// Prefix of the variables that RKE2 shows in the KubeNode's annotation.
const PREFIX: &str = "RKE2_";

/// Options and their variables. Options that are not listed have no variable.
const VARIABLES: [(&str, &str); 57] = [
    ("agent-token", "RKE2_AGENT_TOKEN"),
    ("agent-token-file", "RKE2_AGENT_TOKEN_FILE"),
    ("audit-policy-file", "RKE2_AUDIT_POLICY_FILE"),
    ("cloud-controller-manager-extra-env", "RKE2_CLOUD_CONTROLLER_MANAGER_EXTRA_ENV"),
    ("cloud-controller-manager-extra-mount", "RKE2_CLOUD_CONTROLLER_MANAGER_EXTRA_MOUNT"),
    ("cloud-controller-manager-image", "RKE2_CLOUD_CONTROLLER_MANAGER_IMAGE"),
    ("cloud-provider-config", "RKE2_CLOUD_PROVIDER_CONFIG"),
    ("cloud-provider-name", "RKE2_CLOUD_PROVIDER_NAME"),
    ("cluster-reset", "RKE2_CLUSTER_RESET"),
    ("cni", "RKE2_CNI"),
    ("control-plane-probe-configuration", "RKE2_CONTROL_PLANE_PROBE_CONFIGURATION"),
    ("control-plane-resource-limits", "RKE2_CONTROL_PLANE_RESOURCE_LIMITS"),
    ("control-plane-resource-requests", "RKE2_CONTROL_PLANE_RESOURCE_REQUESTS"),
    ("data-dir", "RKE2_DATA_DIR"),
    ("datastore-cafile", "RKE2_DATASTORE_CAFILE"),
    ("datastore-certfile", "RKE2_DATASTORE_CERTFILE"),
    ("datastore-endpoint", "RKE2_DATASTORE_ENDPOINT"),
    ("datastore-keyfile", "RKE2_DATASTORE_KEYFILE"),
    ("debug", "RKE2_DEBUG"),
    ("enable-servicelb", "RKE2_ENABLE_SERVICELB"),
    ("etcd-extra-env", "RKE2_ETCD_EXTRA_ENV"),
    ("etcd-extra-mount", "RKE2_ETCD_EXTRA_MOUNT"),
    ("etcd-image", "RKE2_ETCD_IMAGE"),
    ("etcd-s3-access-key", "AWS_ACCESS_KEY_ID"),
    ("etcd-s3-secret-key", "AWS_SECRET_ACCESS_KEY"),
    ("etcd-s3-session-token", "AWS_SESSION_TOKEN"),
    ("ingress-controller", "RKE2_INGRESS_CONTROLLER"),
    ("kube-apiserver-extra-env", "RKE2_KUBE_APISERVER_EXTRA_ENV"),
    ("kube-apiserver-extra-mount", "RKE2_KUBE_APISERVER_EXTRA_MOUNT"),
    ("kube-apiserver-image", "RKE2_KUBE_APISERVER_IMAGE"),
    ("kube-controller-manager-extra-env", "RKE2_KUBE_CONTROLLER_MANAGER_EXTRA_ENV"),
    ("kube-controller-manager-extra-mount", "RKE2_KUBE_CONTROLLER_MANAGER_EXTRA_MOUNT"),
    ("kube-controller-manager-image", "RKE2_KUBE_CONTROLLER_MANAGER_IMAGE"),
    ("kube-proxy-extra-env", "RKE2_KUBE_PROXY_EXTRA_ENV"),
    ("kube-proxy-extra-mount", "RKE2_KUBE_PROXY_EXTRA_MOUNT"),
    ("kube-proxy-image", "RKE2_KUBE_PROXY_IMAGE"),
    ("kube-scheduler-extra-env", "RKE2_KUBE_SCHEDULER_EXTRA_ENV"),
    ("kube-scheduler-extra-mount", "RKE2_KUBE_SCHEDULER_EXTRA_MOUNT"),
    ("kube-scheduler-image", "RKE2_KUBE_SCHEDULER_IMAGE"),
    ("kubelet-path", "RKE2_KUBELET_PATH"),
    ("lb-server-port", "RKE2_LB_SERVER_PORT"),
    ("node-name", "RKE2_NODE_NAME"),
    ("node-name-from-cloud-provider-metadata", "RKE2_NODE_NAME_FROM_CLOUD_PROVIDER_METADATA"),
    ("pause-image", "RKE2_PAUSE_IMAGE"),
    ("pod-security-admission-config-file", "RKE2_POD_SECURITY_ADMISSION_CONFIG_FILE"),
    ("prime", "RKE2_PRIME"),
    ("profile", "RKE2_CIS_PROFILE"),
    ("resolv-conf", "RKE2_RESOLV_CONF"),
    ("runtime-image", "RKE2_RUNTIME_IMAGE"),
    ("selinux", "RKE2_SELINUX"),
    ("server", "RKE2_URL"),
    ("system-default-registry", "RKE2_SYSTEM_DEFAULT_REGISTRY"),
    ("token", "RKE2_TOKEN"),
    ("token-file", "RKE2_TOKEN_FILE"),
    ("write-kubeconfig", "RKE2_KUBECONFIG_OUTPUT"),
    ("write-kubeconfig-group", "RKE2_KUBECONFIG_GROUP"),
    ("write-kubeconfig-mode", "RKE2_KUBECONFIG_MODE"),
];

/// Returns the options that variables set; ignores empty variables. Fails on a switch whose value is not a boolean.
pub(crate) fn options(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Options> {
    let mut options = Options::default();
    for (option, name) in VARIABLES {
        let Some(value) = variable(name).filter(|value| !value.is_empty()) else { continue };
        if flags::shape(option) == Some(Shape::Switch) && flags::switch_value(&value).is_none() {
            anyhow::bail!(
                "could not parse {value:?} as bool value from environment variable {name:?} for flag {option}: parse error"
            );
        }
        options.set(option, value);
    }
    Ok(options)
}

/// Returns the variables that RKE2 shows in the KubeNode's annotation, with secrets masked.
pub(crate) fn shown(variables: impl Iterator<Item = (String, String)>) -> serde_json::Map<String, serde_json::Value> {
    let own = variables.filter(|(name, _)| name.starts_with(PREFIX));
    own.map(|(name, value)| {
        let is_secret = name.ends_with("_TOKEN") || name.ends_with("_DATASTORE_ENDPOINT");
        (name, if is_secret { "********".into() } else { value.into() })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> anyhow::Result<Options> {
        let value =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        options(value)
    }

    #[test]
    fn every_variable_sets_a_known_option() {
        for (option, name) in VARIABLES {
            assert!(flags::shape(option).is_some(), "{name} sets {option}");
        }
    }

    #[test]
    fn variables_set_options_and_an_empty_one_sets_none() {
        let options = of(&[("RKE2_URL", "https://h:9345"), ("RKE2_DEBUG", "T"), ("RKE2_NODE_NAME", "")]).unwrap();
        assert_eq!(options.value("server"), Some("https://h:9345"));
        assert!(options.switch("debug"));
        assert_eq!(options.value("node-name"), None);
    }

    #[test]
    fn variable_that_is_no_switch_is_refused_by_name() {
        let refused = of(&[("RKE2_CLUSTER_RESET", "perhaps")]).unwrap_err().to_string();
        assert!(refused.contains("\"perhaps\"") && refused.contains("\"RKE2_CLUSTER_RESET\""), "{refused}");
    }

    #[test]
    fn variables_shown_on_the_kube_node_hide_tokens() {
        let variables = [("RKE2_TOKEN", "hunter2"), ("RKE2_AGENT_TOKEN", "x"), ("RKE2_URL", "u"), ("HOME", "/root")];
        let shown = shown(variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
        let expected = serde_json::json!({ "RKE2_TOKEN": "********", "RKE2_AGENT_TOKEN": "********", "RKE2_URL": "u" });
        assert_eq!(serde_json::Value::Object(shown), expected);
    }
}

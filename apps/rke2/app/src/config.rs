//! The settings that a tenant can make, and RKE2's configuration files.

use std::{
    collections::{BTreeMap, HashSet},
    net::IpAddr,
};

use gpuaas_app_rke2_tasks::Rke2Configure;
use gpuaas_model::{Code, Reason};
use gpuaas_planner::{MemberView, WorkloadView, schema::Violation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    names,
    schema::{self, SEE_SCHEMA},
};

/// Most entries in a list or map of settings.
const ENTRIES_MAX: usize = 64;
/// Longest text in the settings, in bytes.
const TEXT_BYTES_MAX: usize = 253;
/// Longest CIDR: an IPv6 address of eight groups with `/` and three digits.
const CIDR_BYTES_MAX: usize = 43;

/// Settings of a cluster. They are stored and shown: never send a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("examples" = [{ "tls_san": ["k8s.example"], "node_labels": { "rack": "b12" } }]))]
pub(crate) struct Config {
    /// DNS names and addresses that the certificate of the cluster's API names in addition to the server's.
    #[schemars(length(max = ENTRIES_MAX), inner(length(min = 1, max = TEXT_BYTES_MAX)))]
    tls_san: Vec<String>,
    /// Labels of the cluster's nodes. Kubernetes' own namespaces are excluded.
    #[schemars(extend("maxProperties" = ENTRIES_MAX))]
    node_labels: BTreeMap<String, String>,
    /// Addresses of pods, for example `10.42.0.0/16`.
    #[schemars(length(max = CIDR_BYTES_MAX))]
    cluster_cidr: Option<String>,
    /// Addresses of services, for example `10.43.0.0/16`.
    #[schemars(length(max = CIDR_BYTES_MAX))]
    service_cidr: Option<String>,
    /// The one DNS name or address under which nodes find the server. Defaults to the server's own address.
    #[schemars(length(min = 1, max = TEXT_BYTES_MAX))]
    registration_address: Option<String>,
}

impl Config {
    /// Parses settings; null is none.
    pub(crate) fn read(config: &Value) -> serde_json::Result<Self> {
        Option::<Self>::deserialize(config).map(Option::unwrap_or_default)
    }

    /// Returns the labels of the cluster's nodes.
    pub(crate) fn into_node_labels(self) -> BTreeMap<String, String> {
        self.node_labels
    }

    /// Returns a reason for every setting whose value is not accepted.
    fn check(&self) -> Vec<Reason> {
        let sans = self.tls_san.iter().enumerate().filter(|(_, san)| !is_san(san)).map(|(at, san)| {
            let detail = format!("{san:?} is neither a DNS name nor an address");
            refused(&format!("tls_san[{at}]"), &detail, "send names or addresses")
        });
        let is_label = |key: &str, value: &str| is_label_key(key) && is_label_value(value);
        let labels = self.node_labels.iter().filter(|(key, value)| !is_label(key, value)).map(|(key, _)| {
            refused("node_labels", &format!("{key} is not an allowed node label"), "see Kubernetes' label syntax")
        });
        let cidrs = [("cluster_cidr", &self.cluster_cidr), ("service_cidr", &self.service_cidr)];
        let cidrs = cidrs
            .into_iter()
            .filter(|(_, cidr)| cidr.as_ref().is_some_and(|cidr| !is_cidr(cidr)))
            .map(|(name, _)| refused(name, "this is not a valid CIDR", "send for example 10.42.0.0/16"));
        let address = self.registration_address.iter().filter(|address| !is_host(address)).map(|_| {
            let next = "send the one name or address under which nodes find the server";
            refused("registration_address", "this is neither a DNS name nor an address", next)
        });
        sans.chain(labels).chain(cidrs).chain(address).collect()
    }
}

/// Returns a reason for every setting that is not accepted.
pub(crate) fn check(config: &Value) -> Vec<Reason> {
    let found = if config.is_null() { Vec::new() } else { schema::check::<Config>(config) };
    let ill_formed_names: HashSet<&str> =
        found.iter().filter_map(|violation| violation.field.split(['.', '[']).next()).collect();
    let is_well_formed = |name: &str| !ill_formed_names.contains(name);
    // The values of well-formed settings are checked, too, so that all reasons come at once.
    let settings = config.as_object().into_iter().flatten().filter(|(name, _)| is_well_formed(name));
    let settings = settings.map(|(name, value)| (name.clone(), value.clone())).collect();
    let values = match Config::read(&Value::Object(settings)) {
        Ok(settings) => settings.check(),
        Err(error) => vec![refused("config", &error.to_string(), SEE_SCHEMA)],
    };
    found.into_iter().map(ill_formed).chain(values).collect()
}

fn ill_formed(violation: Violation) -> Reason {
    let (detail, next) = match (violation.field.as_str(), violation.keyword.as_str()) {
        ("cni", _) => ("the CNI is always canal", "leave it out"),
        ("write-kubeconfig-mode" | "write_kubeconfig_mode", _) => {
            ("kubeconfig files on nodes stay 0600: they hold an admin key", "leave it out")
        }
        (_, "additionalProperties") => ("this setting is not supported", SEE_SCHEMA),
        _ => return violation.reason("config", Code::ConfigInvalid, SEE_SCHEMA),
    };
    let detail = detail.to_owned();
    Violation { detail, ..violation }.reason("config", Code::ConfigInvalid, next)
}

fn refused(field: &str, detail: &str, next: &str) -> Reason {
    let (field, detail, next) = (field.to_owned(), detail.to_owned(), Some(next.to_owned()));
    Reason { field, code: Code::ConfigInvalid, detail, next }
}

fn is_san(text: &str) -> bool {
    is_host(text) || text.strip_prefix("*.").is_some_and(is_dns_name)
}

/// Returns true for a DNS name or an address of one machine; wildcards are excluded.
fn is_host(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok() || is_dns_name(text)
}

fn is_dns_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= TEXT_BYTES_MAX
        && text.split('.').all(|label| label.parse::<gpuaas_model::Name>().is_ok())
}

fn is_label_value(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && edge(bytes.first())
        && edge(bytes.last())
}

/// Returns true for a label that a kubelet may set on its own node: keys in Kubernetes' own namespaces are excluded.
fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.rsplit_once('/').unwrap_or(("", text));
    let reserved = prefix == "kubernetes.io" || prefix.ends_with(".kubernetes.io") || prefix.ends_with("k8s.io");
    !reserved && !name.is_empty() && is_label_value(name) && (prefix.is_empty() || is_san(prefix))
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    match (address.parse(), bits.parse::<u8>()) {
        (Ok(IpAddr::V4(_)), Ok(bits)) => (8..=28).contains(&bits),
        (Ok(IpAddr::V6(_)), Ok(bits)) => (32..=120).contains(&bits),
        _ => false,
    }
}

/// RKE2's `config.yaml`.
#[derive(Default, Serialize)]
#[serde(rename_all = "kebab-case")]
struct File<'a> {
    token_file: &'a str,
    node_name: &'a str,
    node_ip: &'a str,
    bind_address: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    node_label: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    of_server: Option<ServerFile<'a>>,
}

/// What only a server's `config.yaml` contains.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ServerFile<'a> {
    agent_token_file: &'a str,
    advertise_address: &'a str,
    cni: &'a str,
    write_kubeconfig_mode: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_cidr: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_cidr: Option<&'a str>,
    tls_san: Vec<&'a String>,
}

impl<'a> File<'a> {
    /// Returns what servers and agents share. It always includes the node's own address: RKE2 would choose one by the default route, and not
    /// always the same one.
    fn common(config: &Config, member: &'a MemberView) -> Self {
        Self {
            token_file: Rke2Configure::TOKEN_PATH,
            node_name: member.machine.name.as_str(),
            node_ip: &member.machine.address,
            bind_address: &member.machine.address,
            node_label: config.node_labels.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            ..Self::default()
        }
    }

    /// Returns the file's text. Every text is quoted, so that YAML of any version reads it as nothing but text.
    fn to_yaml(&self) -> String {
        let options = serde_saphyr::ser_options! { quote_all: true, compact_list_indent: false };
        serde_saphyr::to_string_with_options(self, options).expect("texts and lists of texts are always YAML")
    }
}

/// Returns the server's `config.yaml`.
pub(crate) fn server(config: &Config, member: &MemberView) -> String {
    let mut names = vec![&member.machine.address];
    for name in config.registration_address.iter().chain(&config.tls_san) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let of_server = ServerFile {
        agent_token_file: Rke2Configure::AGENT_TOKEN_PATH,
        advertise_address: &member.machine.address,
        cni: "canal",
        write_kubeconfig_mode: "0600",
        cluster_cidr: config.cluster_cidr.as_deref(),
        service_cidr: config.service_cidr.as_deref(),
        tls_san: names,
    };
    File { of_server: Some(of_server), ..File::common(config, member) }.to_yaml()
}

/// Returns an agent's `config.yaml`; `None` without a server. The agent joins at the cluster's registration address if there is one,
/// otherwise at the server's own.
pub(crate) fn agent(config: &Config, workload: &WorkloadView, member: &MemberView) -> Option<String> {
    let server = workload.component(names::SERVER).find(|member| member.is_present())?;
    let host = config.registration_address.as_ref().unwrap_or(&server.machine.address);
    let server = Some(format!("https://{}:9345", in_url(host)));
    Some(File { server, ..File::common(config, member) }.to_yaml())
}

/// Puts an IPv6 address in brackets, as a URL requires.
fn in_url(host: &str) -> String {
    if host.parse::<std::net::Ipv6Addr>().is_ok() { format!("[{host}]") } else { host.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn no_setting_is_a_secret() {
        let schema = schema::of::<Config>();
        let settings = schema["properties"].as_object().expect("an object");
        // Everybody who may read a workload sees its settings: decide about a further one before it is listed here.
        let shown = ["cluster_cidr", "node_labels", "registration_address", "service_cidr", "tls_san"];
        assert_eq!(settings.keys().map(String::as_str).collect::<BTreeSet<_>>(), BTreeSet::from(shown));
    }

    #[test]
    fn unsupported_settings_are_refused_and_valid_ones_pass() {
        let good = json!({
            "tls_san": ["k8s.example", "10.0.0.1", "*.k8s.example"], "node_labels": {"rack": "b12", "example.com/tier": "gold"},
            "cluster_cidr": "10.52.0.0/16", "service_cidr": "10.53.0.0/16", "registration_address": "rke2.example",
        });
        assert_eq!(check(&good), []);
        assert_eq!(check(&json!({"registration_address": "fd00::7"})), []);
        assert_eq!(check(&Value::Null), []);
        for (bad, field) in [
            (json!({"storage_class": "x"}), "storage_class"),
            (json!({"write-kubeconfig-mode": "0644"}), "write-kubeconfig-mode"),
            (json!({"cni": "cilium"}), "cni"),
            (json!({"tls_san": ["k8s.example", "a b"]}), "tls_san[1]"),
            (json!({"tls_san": "x"}), "tls_san"),
            (json!({"node_labels": {"node-role.kubernetes.io/master": "true"}}), "node_labels"),
            (json!({"node_labels": {"a": "b\nc"}}), "node_labels"),
            (json!({"registration_address": "*.example"}), "registration_address"),
            (json!({"registration_address": "https://rke2.example"}), "registration_address"),
            (json!({"registration_address": "rke2.example:9345"}), "registration_address"),
            (json!({"registration_address": ["rke2.example"]}), "registration_address"),
            (json!({"cluster_cidr": "10.0.0.0"}), "cluster_cidr"),
            (json!({"service_cidr": "10.0.0.0/99"}), "service_cidr"),
            (json!([]), "config"),
        ] {
            let reasons = check(&bad);
            assert_eq!(reasons.first().map(|reason| reason.field.as_str()), Some(field), "{bad}");
        }
    }
}

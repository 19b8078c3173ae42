//! The settings that a tenant can make, and RKE2's configuration files.

use std::{fmt::Write, net::IpAddr};

use gpuaas_model::{Code, Reason};
use gpuaas_planner::{MemberView, WorkloadView};
use gpuaas_wire::task::Rke2Configure;
use serde_json::Value;

use crate::names;

/// Most entries in a list or map of settings.
const ENTRIES_MAX: usize = 64;
/// Longest text in the settings, in bytes.
const TEXT_BYTES_MAX: usize = 253;

/// Returns a reason for every setting that is not accepted.
pub(crate) fn check(config: &Value) -> Vec<Reason> {
    let fields = match config {
        Value::Null => return Vec::new(),
        Value::Object(fields) => fields,
        _ => return vec![refused("config", "settings must be an object", "see the app's config schema")],
    };
    fields.iter().flat_map(|(name, value)| check_one(name, value)).collect()
}

fn refused(field: &str, detail: &str, next: &str) -> Reason {
    let (field, detail, next) = (field.to_owned(), detail.to_owned(), Some(next.to_owned()));
    Reason { field, code: Code::ConfigInvalid, detail, next }
}

fn check_one(name: &str, value: &Value) -> Vec<Reason> {
    match (name, value) {
        ("tls_san", Value::Array(names)) if names.len() <= ENTRIES_MAX => names
            .iter()
            .filter(|san| !san.as_str().is_some_and(is_san))
            .map(|san| {
                refused("tls_san", &format!("{san} is neither a DNS name nor an address"), "send names or addresses")
            })
            .collect(),
        ("node_labels", Value::Object(labels)) if labels.len() <= ENTRIES_MAX => labels
            .iter()
            .filter(|(key, value)| !(is_label_key(key) && value.as_str().is_some_and(is_label_value)))
            .map(|(key, _)| {
                refused("node_labels", &format!("{key} is not an allowed node label"), "see Kubernetes' label syntax")
            })
            .collect(),
        ("registration_address", Value::String(name)) if is_host(name) => Vec::new(),
        ("registration_address", _) => vec![refused(
            name,
            "this is neither a DNS name nor an address",
            "send the one name or address under which nodes find the server",
        )],
        ("cluster_cidr" | "service_cidr", Value::String(cidr)) if is_cidr(cidr) => Vec::new(),
        ("cluster_cidr" | "service_cidr", _) => {
            vec![refused(name, "this is not a valid CIDR", "send for example 10.42.0.0/16")]
        }
        ("tls_san", _) => vec![refused(name, "this must be a list of names", "send a list of at most 64 names")],
        ("node_labels", _) => vec![refused(name, "this must be a map of labels", "send a map of at most 64 labels")],
        ("cni", _) => vec![refused(name, "the CNI is always canal", "leave it out")],
        ("write-kubeconfig-mode" | "write_kubeconfig_mode", _) => {
            vec![refused(name, "kubeconfig files on nodes stay 0600: they hold an admin key", "leave it out")]
        }
        _ => vec![refused(name, "this setting is not supported", "see the app's config schema")],
    }
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

/// Returns the server's `config.yaml`. Keys have a fixed order, and every text is quoted, so that YAML reads it as nothing but text.
pub(crate) fn server(workload: &WorkloadView, member: &MemberView) -> String {
    let mut yaml = common(workload, member);
    line(&mut yaml, "agent-token-file", Rke2Configure::AGENT_TOKEN_PATH);
    line(&mut yaml, "advertise-address", &member.node.address);
    line(&mut yaml, "cni", "canal");
    line(&mut yaml, "write-kubeconfig-mode", "0600");
    for (key, setting) in [("cluster-cidr", "cluster_cidr"), ("service-cidr", "service_cidr")] {
        if let Some(cidr) = workload.config.get(setting).and_then(Value::as_str) {
            line(&mut yaml, key, cidr);
        }
    }
    let sans = workload.config.get("tls_san").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let mut names = vec![member.node.address.as_str()];
    for name in registration_address(workload).into_iter().chain(sans) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    list(&mut yaml, "tls-san", names.into_iter());
    yaml
}

/// Returns an agent's `config.yaml`; `None` without a server. The agent joins at the cluster's registration address if there is one,
/// otherwise at the server's own.
pub(crate) fn agent(workload: &WorkloadView, member: &MemberView) -> Option<String> {
    let server = workload.component(names::SERVER).find(|member| member.is_present())?;
    let host = registration_address(workload).unwrap_or(&server.node.address);
    let mut yaml = common(workload, member);
    line(&mut yaml, "server", &format!("https://{}:9345", in_url(host)));
    Some(yaml)
}

/// Returns the name or address under which nodes find the server, independent of its machine.
fn registration_address(workload: &WorkloadView) -> Option<&str> {
    workload.config.get("registration_address").and_then(Value::as_str)
}

/// Puts an IPv6 address in brackets, as a URL requires.
fn in_url(host: &str) -> String {
    if host.parse::<std::net::Ipv6Addr>().is_ok() { format!("[{host}]") } else { host.to_owned() }
}

/// Returns the lines that servers and agents share. They always include the node's own address: RKE2 would choose one by the default route,
/// and not always the same one.
fn common(workload: &WorkloadView, member: &MemberView) -> String {
    let mut yaml = String::new();
    line(&mut yaml, "token-file", Rke2Configure::TOKEN_PATH);
    line(&mut yaml, "node-name", member.node.name.as_str());
    line(&mut yaml, "node-ip", &member.node.address);
    line(&mut yaml, "bind-address", &member.node.address);
    let labels = workload.config.get("node_labels").and_then(Value::as_object).into_iter().flatten();
    let labels: Vec<String> = labels.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?))).collect();
    if !labels.is_empty() {
        list(&mut yaml, "node-label", labels.iter().map(String::as_str));
    }
    yaml
}

fn line(yaml: &mut String, key: &str, value: &str) {
    // Writing to a String never fails.
    let _ = writeln!(yaml, "{key}: {}", quoted(value));
}

fn list<'a>(yaml: &mut String, key: &str, values: impl Iterator<Item = &'a str>) {
    let _ = writeln!(yaml, "{key}:");
    for value in values {
        let _ = writeln!(yaml, "  - {}", quoted(value));
    }
}

/// Quotes a text: every JSON string is a YAML string.
fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            (json!({"tls_san": ["a b"]}), "tls_san"),
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

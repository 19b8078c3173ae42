//! The files that a server writes before its first component starts: CAs, certificates, credentials, tokens.
//!
//! Files that cannot be regenerated (CA keys, tokens, the keys that sign ServiceAccount tokens and encrypt Secrets) are synced
//! to disk before they are used. Leaf certificates are kept until [`crate::pki`] reissues them; the rest is rewritten at every start.

use std::net::SocketAddr;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::KeyPair;
use serde_json::json;

use crate::log;
use crate::paths::{self, HostPaths};
use crate::pki::{Ca, Leaf, Subject, Usage};
use crate::settings::{APISERVER_PORT, Settings};
use crate::token::{self, Token};

/// The fatal text of a server whose data were written with another token.
pub(crate) const BOOTSTRAP_TOKEN_MISMATCH: &str =
    "starting kubernetes: preparing server: bootstrap data already found and encrypted with different token";

/// The server's CAs, and the certificates and passwords that its own process uses.
pub(crate) struct ServerFiles {
    pub(crate) server_ca: Ca,
    pub(crate) client_ca: Ca,
    /// Client certificate of `system:admin` in the group `system:masters`.
    pub(crate) admin: Leaf,
    /// Client certificate of kube-proxy on the server's own node.
    pub(crate) proxy: Leaf,
    /// Serving certificate of the supervisor on port 9345.
    pub(crate) supervisor: Leaf,
    pub(crate) server_password: String,
    pub(crate) node_password: String,
}

/// Creates missing files, loads existing ones, and rewrites those that depend on the settings.
pub(crate) fn prepare(settings: &Settings) -> anyhow::Result<ServerFiles> {
    let host = &settings.paths;
    for (dir, mode) in [
        ("server", 0o755),
        ("server/manifests", 0o700),
        ("server/logs", 0o700),
        ("agent", 0o755),
        ("agent/logs", 0o750),
    ] {
        paths::make_dir(&host.data(dir), mode)?;
    }
    for dir in ["server/tls", "server/tls/etcd", "server/cred", "server/db/etcd"] {
        paths::make_dir(&host.data(dir), 0o700)?;
    }
    let server_ca = Ca::load_or_create(&host.tls("server-ca"), "rke2-server-ca")?;
    let client_ca = Ca::load_or_create(&host.tls("client-ca"), "rke2-client-ca")?;
    let front_ca = Ca::load_or_create(&host.tls("request-header-ca"), "rke2-request-header-ca")?;
    let etcd_ca = Ca::load_or_create(&host.tls("etcd/server-ca"), "etcd-server-ca")?;
    let peer_ca = Ca::load_or_create(&host.tls("etcd/peer-ca"), "etcd-peer-ca")?;
    let (server_password, node_password) = tokens(settings, &server_ca)?;

    let names = serving_names(settings)?;
    let admin =
        client_ca.load_or_issue(&host.tls("client-admin"), &Subject::client("system:admin", Some("system:masters")))?;
    let client = |file: &str, name: &str, group: Option<&str>| {
        client_ca.load_or_issue(&host.tls(file), &Subject::client(name, group))
    };
    let controller = client("client-controller", "system:kube-controller-manager", None)?;
    let scheduler = client("client-scheduler", "system:kube-scheduler", None)?;
    client("client-kube-apiserver", "system:apiserver", Some("system:masters"))?;
    let proxy = client("client-kube-proxy", "system:kube-proxy", None)?;
    client("client-rke2-controller", "system:rke2-controller", None)?;
    client("client-supervisor", "system:rke2-supervisor", Some("system:masters"))?;
    front_ca.load_or_issue(&host.tls("client-auth-proxy"), &Subject::client("system:auth-proxy", None))?;
    server_ca.load_or_issue(&host.tls("serving-kube-apiserver"), &Subject::server("kube-apiserver", names.clone()))?;
    let local = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), settings.address.to_string()];
    for name in ["kube-controller-manager", "kube-scheduler"] {
        server_ca.load_or_issue(&host.tls(&format!("{name}/{name}")), &Subject::server(name, local.clone()))?;
    }
    let both = |name: &str| Subject { usage: Usage::Both, ..Subject::server(name, local.clone()) };
    etcd_ca.load_or_issue(&host.tls("etcd/server-client"), &both("etcd-server"))?;
    etcd_ca.load_or_issue(&host.tls("etcd/client"), &Subject::client("etcd-client", None))?;
    peer_ca.load_or_issue(&host.tls("etcd/peer-server-client"), &both("etcd-peer"))?;
    let supervisor = server_ca.issue(&Subject::server("rke2", names))?;

    service_account_key(host)?;
    encryption_config(host)?;
    let apiserver = format!("https://{}", SocketAddr::new(settings.local(), APISERVER_PORT));
    for (file, identity) in [("controller", &controller), ("scheduler", &scheduler), ("admin", &admin)] {
        let text = kubeconfig(&apiserver, &server_ca.pem, identity, file);
        paths::write(&host.cred(&format!("{file}.kubeconfig")), 0o600, text)?;
    }
    Ok(ServerFiles { server_ca, client_ca, admin, proxy, supervisor, server_password, node_password })
}

fn serving_names(settings: &Settings) -> anyhow::Result<Vec<String>> {
    let domain = &settings.cluster_domain;
    let mut names: Vec<String> =
        ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", "127.0.0.1", "::1"]
            .map(str::to_owned)
            .into();
    names.push(format!("kubernetes.default.svc.{domain}"));
    names.push(settings.apiserver_service_address()?.to_string());
    names.extend([settings.address.to_string(), settings.hostname.clone(), settings.node_name.clone()]);
    names.extend(settings.options.list("tls-san"));
    names.extend(settings.options.list("advertise-address"));
    names.sort();
    names.dedup();
    Ok(names)
}

/// Returns the servers' and the agents' password and writes both as full tokens. Without an `agent-token` they are the same, and the
/// agent's token file is a link. Fails if the configured token differs from the stored one.
fn tokens(settings: &Settings, server_ca: &Ca) -> anyhow::Result<(String, String)> {
    let (host, file) = (&settings.paths, settings.paths.data("server/token"));
    let password_of = |text: &str| Token::parse(text, "server").map(|token| token.password);
    let kept = paths::read_optional(&file)?.map(|text| password_of(&text)).transpose().context("server/token")?;
    let given = settings.token.as_deref().map(password_of).transpose().context("token")?;
    let server = match (kept, given) {
        (Some(kept), Some(given)) if !token::same_secret(&kept, &given) => {
            anyhow::bail!(BOOTSTRAP_TOKEN_MISMATCH)
        }
        (Some(kept), _) => kept,
        (None, Some(given)) => given,
        (None, None) => token::generate()?,
    };
    paths::write_durable(&file, 0o600, format!("{}\n", Token::full(&server_ca.pem, "server", &server)))?;
    paths::link(&host.data("server/node-token"), "token")?;
    let agent_file = host.data("server/agent-token");
    let node = match &settings.agent_token {
        None => {
            paths::link(&agent_file, "token")?;
            server.clone()
        }
        Some(text) => {
            let node = Token::parse(text, "node").context("agent-token")?.password;
            paths::write_durable(&agent_file, 0o600, format!("{}\n", Token::full(&server_ca.pem, "node", &node)))?;
            node
        }
    };
    let lines = format!("{server},server,server,rke2:server\n{node},node,node,rke2:agent\n");
    paths::write(&host.cred("passwd"), 0o600, lines)?;
    Ok((server, node))
}

/// Creates the key that signs ServiceAccount tokens. The file also contains the public key, which verifies them.
fn service_account_key(host: &HostPaths) -> anyhow::Result<()> {
    if !host.tls("service.key").exists() {
        let pair = KeyPair::generate()?;
        let pem = format!("{}{}", pair.serialize_pem(), pair.public_key_pem());
        paths::write_durable(&host.tls("service.current.key"), 0o600, &pem)?;
        paths::write_durable(&host.tls("service.key"), 0o600, &pem)?;
    }
    Ok(())
}

/// Creates the configuration by which the apiserver encrypts Secrets in etcd; always on, as in RKE2.
fn encryption_config(host: &HostPaths) -> anyhow::Result<()> {
    let file = host.cred("encryption-config.json");
    if file.exists() {
        return Ok(());
    }
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| anyhow::anyhow!("failed to read random bytes: {error}"))?;
    let config = json!({
        "kind": "EncryptionConfiguration",
        "apiVersion": "apiserver.config.k8s.io/v1",
        "resources": [{
            "resources": ["secrets"],
            "providers": [{ "aescbc": { "keys": [{ "name": "aescbckey", "secret": BASE64.encode(key) }] } }, { "identity": {} }],
        }],
    });
    Ok(paths::write_durable(&file, 0o600, config.to_string())?)
}

/// Writes the administrator's kubeconfig to `write-kubeconfig` (default `/etc/rancher/rke2/rke2.yaml`) and logs the path.
pub(crate) fn write_kubeconfig(settings: &Settings, files: &ServerFiles) -> anyhow::Result<()> {
    let shown = settings.options.value("write-kubeconfig").unwrap_or("/etc/rancher/rke2/rke2.yaml");
    let file = settings.paths.at(shown);
    let mode = match settings.options.value("write-kubeconfig-mode") {
        None => 0o600,
        Some(text) => u32::from_str_radix(text.trim_start_matches("0o"), 8).context("invalid write-kubeconfig-mode")?,
    };
    if let Some(dir) = file.parent() {
        paths::make_dir(dir, 0o755)?;
    }
    // RKE2's file contains the loopback address too: users of the file replace it by the node's address.
    let text =
        kubeconfig(&format!("https://127.0.0.1:{APISERVER_PORT}"), &files.server_ca.pem, &files.admin, "default");
    paths::write(&file, mode, text)?;
    log::info!("Wrote kubeconfig {shown}");
    Ok(())
}

/// Formats a kubeconfig with one cluster and one context, both named `default` as in RKE2's files, and one user named `user`.
pub(crate) fn kubeconfig(server: &str, ca_pem: &str, identity: &Leaf, user: &str) -> String {
    let (ca, certificate, key) =
        (BASE64.encode(ca_pem), BASE64.encode(&identity.certificate), BASE64.encode(&identity.key));
    format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {ca}\n    server: {server}\n  name: default\n\
         contexts:\n- context:\n    cluster: default\n    user: {user}\n  name: default\ncurrent-context: default\n\
         kind: Config\npreferences: {{}}\nusers:\n- name: {user}\n  user:\n    client-certificate-data: {certificate}\n    \
         client-key-data: {key}\n"
    )
}

/// Writes the Pod Security admission configuration; called at every start of servers and agents.
pub(crate) fn write_pod_security(host: &HostPaths) -> anyhow::Result<()> {
    paths::make_dir(&host.at("/etc/rancher/rke2"), 0o755)?;
    let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: PodSecurity\n  configuration:\n    \
                apiVersion: pod-security.admission.config.k8s.io/v1beta1\n    kind: PodSecurityConfiguration\n    defaults:\n      \
                enforce: \"privileged\"\n      enforce-version: \"latest\"\n    exemptions:\n      usernames: []\n      \
                runtimeClasses: []\n      namespaces: []\n";
    Ok(paths::write(&host.at("/etc/rancher/rke2/rke2-pss.yaml"), 0o600, text)?)
}

/// Writes an audit policy that logs only writes to KubeNodes and Leases; keeps an existing policy of the operator.
pub(crate) fn write_audit_policy(host: &HostPaths) -> anyhow::Result<()> {
    let file = host.at("/etc/rancher/rke2/audit-policy.yaml");
    if file.exists() {
        return Ok(());
    }
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n  \
                verbs: [create, update, patch, delete]\n  resources:\n  - group: \"\"\n    resources: [nodes, nodes/status]\n  \
                - group: coordination.k8s.io\n    resources: [leases]\n- level: None\n";
    Ok(paths::write(&file, 0o600, text)?)
}

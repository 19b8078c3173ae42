//! Kubeconfig files: reads the distribution's admin file, and writes the files that clients get.
//!
//! The parser reads the cluster and the user of the current context, with all data embedded. It never follows files, exec plugins or auth
//! providers that a kubeconfig names: the text comes from a tenant's machine.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use zeroize::Zeroizing;

/// Longest kubeconfig that is read, in bytes. RKE2's has about 3 KB; a certificate chain of a corporate CA may add some.
pub const KUBECONFIG_BYTES_MAX: usize = 64 * 1024;

/// Credentials for one cluster, and the CA for verifying its apiserver.
pub struct Kubeconfig {
    pub(crate) ca_pem: String,
    pub(crate) ca: Vec<CertificateDer<'static>>,
    pub(crate) identity: Identity,
}

/// The client's credentials.
pub(crate) enum Identity {
    Certificate { chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static> },
    Token(SecretString),
}

impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let identity = match self.identity {
            Identity::Certificate { .. } => "certificate",
            Identity::Token(_) => "token",
        };
        f.debug_struct("Kubeconfig").field("identity", &identity).finish_non_exhaustive()
    }
}

/// The reason why a kubeconfig cannot be used. Never quotes the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    /// The file is longer than [`KUBECONFIG_BYTES_MAX`].
    #[error("the kubeconfig is longer than {KUBECONFIG_BYTES_MAX} bytes")]
    TooLong,
    /// The file is not YAML with the expected structure.
    #[error("invalid kubeconfig: {0}")]
    Malformed(&'static str),
    /// A required embedded part is missing.
    #[error("the kubeconfig has no {0}")]
    Missing(&'static str),
    /// A part is invalid.
    #[error("the kubeconfig has an invalid {0}")]
    Invalid(&'static str),
}

impl Kubeconfig {
    /// Parses the cluster and the user of the current context.
    pub fn parse(bytes: &[u8]) -> Result<Self, KubeconfigError> {
        if bytes.len() > KUBECONFIG_BYTES_MAX {
            return Err(KubeconfigError::TooLong);
        }
        // The parser's message may quote the file, including keys, so it is dropped.
        let file: File = serde_saphyr::from_slice(bytes)
            .map_err(|_| KubeconfigError::Malformed("not YAML of the expected shape"))?;
        let context =
            named(&file.contexts, &file.current_context).ok_or(KubeconfigError::Missing("current context"))?;
        let cluster = named(&file.clusters, &context.context.cluster).ok_or(KubeconfigError::Missing("cluster"))?;
        let user = named(&file.users, &context.context.user).ok_or(KubeconfigError::Missing("user"))?;
        let ca_data =
            cluster.cluster.ca_data.as_deref().ok_or(KubeconfigError::Missing("certificate-authority-data"))?;
        let ca_pem = decoded(ca_data, "certificate-authority-data")?;
        let ca = certificates(&ca_pem, "certificate-authority-data")?;
        let ca_pem =
            String::from_utf8(ca_pem.to_vec()).map_err(|_| KubeconfigError::Invalid("certificate-authority-data"))?;
        Ok(Self { ca_pem, ca, identity: identity(&user.user)? })
    }
}

fn identity(user: &User) -> Result<Identity, KubeconfigError> {
    if let Some(token) = &user.token {
        return Ok(Identity::Token(token.clone()));
    }
    let chain = user.certificate.as_deref().ok_or(KubeconfigError::Missing("client-certificate-data"))?;
    let chain = certificates(&decoded(chain, "client-certificate-data")?, "client-certificate-data")?;
    let key = user.key.as_ref().ok_or(KubeconfigError::Missing("client-key-data"))?;
    let key = decoded(key.expose_secret(), "client-key-data")?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| KubeconfigError::Invalid("client-key-data"))?;
    Ok(Identity::Certificate { chain, key })
}

fn decoded(text: &str, what: &'static str) -> Result<Zeroizing<Vec<u8>>, KubeconfigError> {
    BASE64.decode(text.trim()).map(Zeroizing::new).map_err(|_| KubeconfigError::Invalid(what))
}

fn certificates(pem: &[u8], what: &'static str) -> Result<Vec<CertificateDer<'static>>, KubeconfigError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or(KubeconfigError::Invalid(what))
}

fn named<'a, T: HasName>(all: &'a [T], name: &str) -> Option<&'a T> {
    all.iter().find(|one| one.name() == name)
}

trait HasName {
    fn name(&self) -> &str;
}

macro_rules! has_name {
    ($($kind:ty),*) => {$(
        impl HasName for $kind {
            fn name(&self) -> &str {
                &self.name
            }
        }
    )*};
}
has_name!(NamedCluster, NamedUser, NamedContext);

#[derive(Deserialize)]
struct File {
    #[serde(rename = "current-context", default)]
    current_context: String,
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    users: Vec<NamedUser>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: ClusterData,
}

#[derive(Deserialize)]
struct ClusterData {
    #[serde(rename = "certificate-authority-data")]
    ca_data: Option<String>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Deserialize)]
struct User {
    #[serde(rename = "client-certificate-data")]
    certificate: Option<String>,
    #[serde(rename = "client-key-data")]
    key: Option<SecretString>,
    token: Option<SecretString>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: ContextData,
}

#[derive(Deserialize)]
struct ContextData {
    cluster: String,
    user: String,
}

/// The values of a client's kubeconfig.
pub struct KubeconfigText<'a> {
    /// URL at which the client reaches the apiserver, for example `https://10.0.0.4:6443`.
    pub server: &'a str,
    /// The cluster's CA as PEM.
    pub ca_pem: &'a str,
    /// Name of cluster and context: the workload's name.
    pub context: &'a str,
    /// Name of the user entry: the ServiceAccount's name.
    pub user: &'a str,
    /// The bearer token.
    pub token: &'a SecretString,
}

impl KubeconfigText<'_> {
    /// Returns the file for `kubectl`. It is wiped from memory when dropped.
    pub fn render(&self) -> Zeroizing<String> {
        // A JSON string is a YAML double-quoted scalar, so a value cannot end its own scalar.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let (server, context, user) = (quoted(self.server), quoted(self.context), quoted(self.user));
        let ca = BASE64.encode(self.ca_pem);
        let token = Zeroizing::new(quoted(self.token.expose_secret()));
        Zeroizing::new(format!(
            "apiVersion: v1\nkind: Config\n\
             clusters:\n- name: {context}\n  cluster:\n    server: {server}\n    certificate-authority-data: {ca}\n\
             users:\n- name: {user}\n  user:\n    token: {token}\n\
             contexts:\n- name: {context}\n  context:\n    cluster: {context}\n    user: {user}\n\
             current-context: {context}\n",
            token = token.as_str(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ca_pem() -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        rcgen::CertificateParams::new(vec!["ca".into()]).unwrap().self_signed(&key).unwrap().pem()
    }

    fn text(ca_pem: &str, context: &str) -> Zeroizing<String> {
        let token = SecretString::from("eyJ.top.secret");
        KubeconfigText { server: "https://127.9.9.9:6443", ca_pem, context, user: "access-1", token: &token }.render()
    }

    #[test]
    fn rendered_kubeconfig_can_be_parsed() {
        let ca_pem = ca_pem();
        let read = Kubeconfig::parse(text(&ca_pem, "prod").as_bytes()).unwrap();
        assert_eq!(read.ca_pem, ca_pem);
        assert!(matches!(&read.identity, Identity::Token(token) if token.expose_secret() == "eyJ.top.secret"));
    }

    #[test]
    fn name_cannot_inject_yaml() {
        let ca_pem = ca_pem();
        let evil = "x\"\nusers: []\n#";
        let read = Kubeconfig::parse(text(&ca_pem, evil).as_bytes()).unwrap();
        assert!(matches!(read.identity, Identity::Token(_)));
    }

    #[test]
    fn neither_debug_nor_errors_show_a_secret() {
        let ca_pem = ca_pem();
        let read = Kubeconfig::parse(text(&ca_pem, "prod").as_bytes()).unwrap();
        assert!(!format!("{read:?}").contains("secret"));
        let broken = text(&ca_pem, "prod").replace("  user:\n    token:", "  user:\n   - token:");
        let error = Kubeconfig::parse(broken.as_bytes()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
    }

    #[test]
    fn files_and_plugins_named_by_a_kubeconfig_are_not_followed() {
        let ca_pem = ca_pem();
        let by_file = text(&ca_pem, "prod").replace("    token: \"eyJ.top.secret\"", "    tokenFile: /etc/passwd");
        assert_eq!(
            Kubeconfig::parse(by_file.as_bytes()).unwrap_err(),
            KubeconfigError::Missing("client-certificate-data")
        );
    }

    #[test]
    fn oversized_kubeconfig_is_refused_unparsed() {
        assert_eq!(Kubeconfig::parse(&vec![b'a'; KUBECONFIG_BYTES_MAX + 1]).unwrap_err(), KubeconfigError::TooLong);
        assert!(matches!(Kubeconfig::parse(b"\xff\xfe{"), Err(KubeconfigError::Malformed(_))));
        assert_eq!(Kubeconfig::parse(b"kind: Config\n").unwrap_err(), KubeconfigError::Missing("current context"));
    }
}

//! Joins an agent to its server: verifies the CA by the token's hash, gets the cluster's configuration, then a certificate per purpose.
//!
//! An unreachable server, a wrong CA, a wrong password and a rejected node do not end the program: each is logged with RKE2's
//! text and retried at RKE2's interval without limit. The caller must set a deadline.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{Method, StatusCode};
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;

use crate::api_client::{Call, Client, ClientError, join_host_port};
use crate::faults::{Faults, Stage};
use crate::identity::{Identity, LOAD_BALANCER};
use crate::pki::Leaf;
use crate::settings::{SUPERVISOR_PORT, Settings};
use crate::token::{self, Token};
use crate::{log, node_password, tls};

/// The address that RKE2's agent logs: its own load balancer, which forwards to the server.
const SHOWN: &str = "https://127.0.0.1:6444";
/// Interval between attempts to fetch and verify the server's CA.
const VALIDATE_EVERY: Duration = Duration::from_secs(2);
/// Minimum interval between attempts to get configuration and certificates; a random addition doubles it at most.
const RETRIEVE_EVERY: Duration = Duration::from_secs(5);

/// Logs why a node's configuration cannot be retrieved, with RKE2's text and level, and returns when the next attempt is due.
pub(crate) async fn wait_to_retrieve(reason: &str) {
    log::info!("Waiting to retrieve agent configuration; server is not ready: {reason}");
    let mut random = [0];
    // Without randomness the intervals are merely not spread.
    let _ = getrandom::fill(&mut random);
    tokio::time::sleep(RETRIEVE_EVERY + RETRIEVE_EVERY * u32::from(random[0]) / 255).await;
}

/// The results of a join.
pub(crate) struct Joined {
    pub(crate) identity: Identity,
    /// Client certificate of kube-proxy.
    pub(crate) proxy: Leaf,
    /// `host:port` of every apiserver of the cluster.
    pub(crate) apiservers: Vec<String>,
    /// The response of `/v1-rke2/config`: networks, DNS and ports of the cluster.
    pub(crate) cluster: Value,
}

/// The server to join and the token to present.
pub(crate) struct Join<'a> {
    settings: &'a Settings,
    faults: &'a Faults,
    host: String,
    port: u16,
    token: Token,
}

impl<'a> Join<'a> {
    /// Reads `server` and `token`; the errors have RKE2's texts.
    pub(crate) fn new(settings: &'a Settings, faults: &'a Faults) -> anyhow::Result<Self> {
        let Some(url) = &settings.server_url else { anyhow::bail!("--server is required") };
        let Some(rest) = url.strip_prefix("https://") else {
            anyhow::bail!("only https:// URLs are supported, invalid scheme: {url}")
        };
        let authority = rest.split('/').next().unwrap_or_default();
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse()?),
            _ => (authority, SUPERVISOR_PORT),
        };
        anyhow::ensure!(!host.is_empty(), "invalid server url: {url}");
        let Some(text) = &settings.token else { anyhow::bail!("--token is required") };
        let token = Token::parse(text, "node")?;
        Ok(Self { settings, faults, host: host.trim_matches(['[', ']']).to_owned(), port, token })
    }

    /// Joins, retrying without limit. Fails only on an unreadable node password or a CA that is no certificate.
    pub(crate) async fn run(&self) -> anyhow::Result<Joined> {
        let password = node_password::load_or_create(&self.settings.paths)?;
        let server = self.supervisor();
        log::info!("Running load balancer rke2-agent-load-balancer 127.0.0.1:6444 -> [{server}] [default: {server}]");
        let ca = self.trusted_ca().await?;
        let client = Client::new(&self.host, self.port, tls::client_config(&ca, None)?, self.headers(&password));
        let client = client.with_server_name(LOAD_BALANCER);
        loop {
            match self.retrieve(&client, &ca).await {
                Ok(joined) => return Ok(joined),
                Err(reason) => wait_to_retrieve(&reason).await,
            }
        }
    }

    fn headers(&self, password: &str) -> Vec<(&'static str, String)> {
        let basic = BASE64.encode(format!("{}:{}", self.token.user, self.token.password));
        vec![
            ("authorization", format!("Basic {basic}")),
            ("rke2-node-name", self.settings.node_name.clone()),
            ("rke2-node-password", password.to_owned()),
            ("rke2-node-ip", self.settings.address.to_string()),
        ]
    }

    /// Returns the server's CA; retries until the server responds with the CA whose hash the token contains.
    async fn trusted_ca(&self) -> anyhow::Result<String> {
        let client = Arc::new(Client::new(&self.host, self.port, tls::unverified_client_config()?, Vec::new()));
        let mut attempts = 0..;
        loop {
            let injected = self.faults.refusal(Stage::Validate);
            let injected = injected.or_else(|| self.faults.unstable_refusal(attempts.next()?));
            let fetched = match injected {
                Some(reason) => Err(reason),
                None => self.fetch_ca(&client).await,
            };
            match fetched {
                Ok(ca) => return Ok(ca),
                Err(reason) => log::error!("Failed to validate connection to cluster at {SHOWN}: {reason}"),
            }
            tokio::time::sleep(VALIDATE_EVERY).await;
        }
    }

    async fn fetch_ca(&self, client: &Client) -> Result<String, String> {
        let failed = |what: &str| format!("failed to get CA certs: Get \"{SHOWN}/cacerts\": {what}");
        let pem = match client.get("/cacerts").await {
            Ok(bytes) => String::from_utf8(bytes.to_vec()).map_err(|_| failed("malformed certificate"))?,
            // RKE2's load balancer accepts and closes the connection, so its agent logs only EOF; the line that starts the
            // load balancer names the server's address.
            Err(ClientError::Unreachable(_)) => return Err(failed("EOF")),
            Err(error) => return Err(format!("failed to get CA certs: {SHOWN}/cacerts: {error}")),
        };
        let Some(expected) = &self.token.ca_hash else {
            log::warning!(
                "Cluster CA certificate is not trusted by the host CA bundle, but the token does not include a CA hash. Use the \
                 full token from the server's node-token file to enable Cluster CA validation."
            );
            return Ok(pem);
        };
        let actual = token::ca_hash(&pem);
        if actual == *expected {
            Ok(pem)
        } else {
            Err(format!("token CA hash does not match the Cluster CA certificate hash: {expected} != {actual}"))
        }
    }

    async fn retrieve(&self, client: &Client, ca: &str) -> Result<Joined, String> {
        if let Some(reason) = self.faults.refusal(Stage::Retrieve) {
            return Err(reason);
        }
        let cluster = client.get_json("/v1-rke2/config").await.map_err(|error| failed("/v1-rke2/config", &error))?;
        client.get("/v1-rke2/readyz").await.map_err(|error| failed("/v1-rke2/readyz", &error))?;
        let path = "/v1-rke2/apiservers";
        let list = client.get_json(path).await.map_err(|error| failed(path, &error))?;
        let apiservers: Vec<String> =
            serde_json::from_value(list).map_err(|error| format!("{SHOWN}{path}: {error}"))?;
        // If the server lists no apiserver, the agent uses the server's host.
        let first = apiservers.first().and_then(|address| address.rsplit_once(':'));
        let apiserver = first.map_or(self.host.as_str(), |(host, _)| host.trim_matches(['[', ']']));
        let path = "/v1-rke2/client-ca.crt";
        let client_ca = client.get(path).await.map_err(|error| failed(path, &error))?;
        let client_ca = String::from_utf8_lossy(&client_ca).into_owned();
        let own = self.certificate(client, "client-kubelet").await?;
        let serving = self.certificate(client, "serving-kubelet").await?;
        let proxy = self.certificate(client, "client-kube-proxy").await?;
        let cas = (ca.to_owned(), client_ca);
        let identity = Identity::new(self.settings, apiserver.to_owned(), cas, (own, serving));
        Ok(Joined { identity, proxy, apiservers, cluster })
    }

    /// The host in the `server` option.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// `host:port` of the supervisor in the `server` option.
    pub(crate) fn supervisor(&self) -> String {
        join_host_port(&self.host, self.port)
    }

    /// Requests the certificate `name` for a new key, which never leaves this node.
    async fn certificate(&self, client: &Client, name: &str) -> Result<Leaf, String> {
        let path = format!("/v1-rke2/{name}.crt");
        let (key, csr) = request().map_err(|error| format!("failed to make a key: {error}"))?;
        let call = Call { method: Method::POST, path: &path, content_type: "application/pkcs10", body: csr };
        match client.call(call).await {
            Ok(bytes) => {
                Ok(Leaf { certificate: String::from_utf8_lossy(&bytes).into_owned(), key: key.serialize_pem() })
            }
            Err(error) if error.is(StatusCode::FORBIDDEN) => Err(node_password::REJECTED.to_owned()),
            Err(ClientError::Status { status, .. }) => Err(format!("{SHOWN}{path}: {status}")),
            Err(_) => Err(format!("Post \"{SHOWN}{path}\": EOF")),
        }
    }
}

fn failed(path: &str, error: &ClientError) -> String {
    match error {
        ClientError::Status { status, .. } => {
            format!("failed to retrieve configuration from server: {SHOWN}{path}: {status}")
        }
        ClientError::Unreachable(_) => {
            format!("failed to retrieve configuration from server: Get \"{SHOWN}{path}\": EOF")
        }
        ClientError::Answer(_) => format!("failed to retrieve configuration from server: {SHOWN}{path}: {error}"),
    }
}

fn request() -> Result<(KeyPair, Vec<u8>), rcgen::Error> {
    let key = KeyPair::generate()?;
    let csr = CertificateParams::default().serialize_request(&key)?;
    Ok((key, csr.der().to_vec()))
}

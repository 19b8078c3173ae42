//! The settings of a control plane.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use gpuaas_api::Rates;
use gpuaas_app_rke2::Deadlines;
use gpuaas_artifacts::{
    ArtifactStore, EgressPolicy, Network, SYSTEM_CA_BUNDLE, Sources, TrustedKey, Verification, Writers,
};
use gpuaas_channel::ProxyProtocol;
use gpuaas_engine::Retention;
use gpuaas_store::StoreOptions;
use gpuaas_trust::{OldestTls, SecretText};

use crate::error::ServerError;

/// File name of the SQLite database in the data directory.
pub(crate) const LOCAL_STORE: &str = "gpuaas.db";
/// Default port of the API.
pub(crate) const API_PORT: u16 = 7_443;
/// Default port of the node channel.
pub(crate) const CHANNEL_PORT: u16 = 7_444;

/// Default port for connections between replicas.
pub(crate) const REPLICA_PORT: u16 = 7_445;

/// The settings of a control plane.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Directory for the database, keys, artifacts and other state.
    pub data_dir: PathBuf,
    /// Address on which the API listens.
    pub listen: SocketAddr,
    /// Address on which the node channel listens.
    pub channel_listen: SocketAddr,
    /// Address on which other replicas reach this one. Used only with a shared store.
    pub replica_listen: SocketAddr,
    /// Address `host:port` that this replica announces to the others, if it differs from the listen address.
    pub replica_address: Option<String>,
    /// Oldest TLS version that clients of the API may use.
    pub tls_min_version: OldestTls,
    /// URL by which clients and nodes reach the API, if it differs from the listen address.
    pub public_url: Option<String>,
    /// `postgres://…` URL of the database that replicas share. SQLite in the data directory if absent.
    pub store_url: Option<SecretText>,
    /// File with the 32-byte key that encrypts secrets in the store. Required with a shared store; otherwise made in the data directory if
    /// absent.
    pub sealing_key_file: Option<PathBuf>,
    /// Directory for artifacts, which replicas share. A folder in the data directory if absent.
    pub artifacts_dir: Option<PathBuf>,
    /// Directory with the packages for new nodes, as `cargo xtask package` makes them. If absent, the control plane serves none.
    pub packages_dir: Option<PathBuf>,
    /// PEM file with the certificate authorities that release servers are verified against.
    pub release_ca_bundle: PathBuf,
    /// Program that reimages machines after a tenant leaves. If set, a machine must prove that it was reimaged.
    pub reimage_hook: Option<PathBuf>,
    /// Directory below which releases may be imported from folders. If absent, folder imports are refused.
    pub release_import_dir: Option<PathBuf>,
    /// Non-public networks from which releases may be fetched.
    pub release_private_networks: Vec<Network>,
    /// Minisign keys trusted to sign releases.
    pub release_trusted_keys: Vec<TrustedKey>,
    /// Whether releases without a matching digest or a trusted signature may be imported.
    pub allow_unverified_releases: bool,
    /// Networks of load balancers. Connections from there must begin with a PROXY protocol version 2 header, whose source address counts as
    /// the client's.
    pub proxy_protocol_from: Vec<Network>,
    /// Rate limits per token, project and address.
    pub rates: Rates,
    /// How long history stays in the database.
    pub retention: Retention,
    /// Whether direct loopback connections may read `/metrics` without a token.
    pub metrics_over_loopback: bool,
    /// Deadlines for steps of RKE2.
    pub rke2_deadlines: Deadlines,
    /// Whether the start creates a new platform if the data directory was used and its store is missing.
    pub reinitialize: bool,
}

impl ServerOptions {
    /// Returns default settings: SQLite, and listeners on loopback at the default ports.
    pub fn local(data_dir: PathBuf) -> Self {
        let at = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        Self {
            data_dir,
            listen: at(API_PORT),
            channel_listen: at(CHANNEL_PORT),
            replica_listen: at(REPLICA_PORT),
            replica_address: None,
            tls_min_version: OldestTls::default(),
            public_url: None,
            store_url: None,
            sealing_key_file: None,
            artifacts_dir: None,
            packages_dir: None,
            release_ca_bundle: SYSTEM_CA_BUNDLE.into(),
            reimage_hook: None,
            release_import_dir: None,
            release_private_networks: Vec::new(),
            release_trusted_keys: Vec::new(),
            allow_unverified_releases: false,
            proxy_protocol_from: Vec::new(),
            rates: Rates::DEFAULT,
            retention: Retention::DEFAULT,
            metrics_over_loopback: false,
            rke2_deadlines: Deadlines::default(),
            reinitialize: false,
        }
    }

    /// Returns the location of the rows.
    pub(crate) fn store(&self) -> StoreOptions {
        let local = || format!("sqlite://{}", self.database().display());
        StoreOptions { url: self.store_url.as_ref().map_or_else(local, |url| url.expose().to_owned()) }
    }

    /// Returns the path of the SQLite database, used without a shared store.
    pub(crate) fn database(&self) -> PathBuf {
        self.data_dir.join(LOCAL_STORE)
    }

    /// Returns the artifacts directory.
    pub(crate) fn artifacts_folder(&self) -> PathBuf {
        self.artifacts_dir.clone().unwrap_or_else(|| self.data_dir.join("artifacts"))
    }

    /// Opens the artifact store.
    pub(crate) fn artifacts(&self) -> Result<ArtifactStore, ServerError> {
        let writers = if self.store_url.is_some() { Writers::Several } else { Writers::One };
        ArtifactStore::open(&self.artifacts_folder(), writers)
            .map_err(|error| ServerError::Artifacts(error.to_string()))
    }

    /// Opens the artifact store for reading only.
    pub(crate) fn artifacts_read_only(&self) -> Result<ArtifactStore, ServerError> {
        let store = ArtifactStore::open_read_only(&self.artifacts_folder());
        store.map_err(|error| ServerError::Artifacts(error.to_string()))
    }

    /// Returns the allowed sources of releases and how releases are verified.
    pub(crate) fn sources(&self) -> Sources {
        Sources {
            ca_bundle: self.release_ca_bundle.clone(),
            egress: EgressPolicy::with_private(self.release_private_networks.clone()),
            import_dir: self.release_import_dir.clone(),
            verification: Verification {
                trusted_keys: self.release_trusted_keys.clone(),
                allow_unverified: self.allow_unverified_releases,
            },
        }
    }

    /// Returns which connections come through a load balancer.
    pub(crate) fn proxies(&self) -> ProxyProtocol {
        ProxyProtocol::from_networks(self.proxy_protocol_from.clone())
    }

    /// Returns the names and addresses for the listeners' certificates.
    pub(crate) fn names(&self, url: &str) -> Vec<String> {
        let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        names.extend([self.listen.ip(), self.channel_listen.ip()].map(|ip| ip.to_string()));
        names.extend(host(url).map(str::to_owned));
        names.sort();
        names.dedup();
        names
    }

    /// Returns the node channel's address for nodes: the public URL's host, or the bound address, with the channel's port.
    pub(crate) fn channel_endpoint(&self, bound: SocketAddr) -> String {
        let name = self.public_url.as_deref().and_then(host);
        match name {
            None => bound.to_string(),
            Some(name) if name.contains(':') => format!("[{name}]:{}", bound.port()),
            Some(name) => format!("{name}:{}", bound.port()),
        }
    }
}

/// Returns the host of a URL, without brackets.
fn host(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split('/').next()?;
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => authority.split(':').next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_contain_every_name_of_the_control_plane() {
        let options =
            ServerOptions { public_url: Some("https://cp.example:7443".into()), ..ServerOptions::local("/d".into()) };
        assert!(options.names("https://cp.example:7443").contains(&"cp.example".to_owned()));
        assert_eq!(options.channel_endpoint("0.0.0.0:7444".parse().unwrap()), "cp.example:7444");
        for url in ["https://[2001:db8::7]:7443", "https://[2001:db8::7]"] {
            let options = ServerOptions { public_url: Some(url.into()), ..options.clone() };
            assert!(options.names(url).contains(&"2001:db8::7".to_owned()));
            assert_eq!(options.channel_endpoint("[::]:7444".parse().unwrap()), "[2001:db8::7]:7444");
        }
        assert_eq!(host("https://cp.example"), Some("cp.example"));
    }
}

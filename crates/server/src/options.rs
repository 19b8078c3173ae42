//! How a control plane is run.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use gpuaas_api::{Paces, SUMS_FILE};
use gpuaas_app_rke2::Deadlines;
use gpuaas_artifacts::{ArtifactStore, Network, Reach, SYSTEM_CA_BUNDLE, Sources, TrustedKey, Users, Verification};
use gpuaas_channel::ProxyProtocol;
use gpuaas_engine::Retention;
use gpuaas_store::StoreOptions;
use gpuaas_trust::{OldestTls, SecretText};

use crate::{backup, data_dir, error::ServerError};

/// SQLite's file in the data directory.
pub(crate) const LOCAL_STORE: &str = "gpuaas.db";
/// Port of the API.
pub(crate) const API_PORT: u16 = 7_443;
/// Port of the node channel.
pub(crate) const CHANNEL_PORT: u16 = 7_444;

/// Port at which replicas reach each other.
pub(crate) const REPLICA_PORT: u16 = 7_445;

/// How a control plane is run.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// Where the API listens.
    pub listen: SocketAddr,
    /// Where the node channel listens.
    pub channel_listen: SocketAddr,
    /// Where other replicas reach this one; used with a shared store alone.
    pub replica_listen: SocketAddr,
    /// How other replicas name it, `host:port`, where that differs from the address it listens on.
    pub replica_address: Option<String>,
    /// The oldest TLS that clients of the API may speak.
    pub tls_min_version: OldestTls,
    /// How clients and nodes name the API, where that differs from the address it listens on.
    pub public_url: Option<String>,
    /// `postgres://…` of a store that replicas share; SQLite in the data directory when absent.
    pub store_url: Option<SecretText>,
    /// 32 bytes that seal what the store keeps secret; needed for a shared store. Made in the data directory when absent.
    pub sealing_key_file: Option<PathBuf>,
    /// Where artifacts lie; in the data directory when absent. Replicas share it.
    pub artifacts_dir: Option<PathBuf>,
    /// Where the packages lie that machines are brought in with, as `cargo xtask package` makes them; none are handed out when absent.
    pub packages_dir: Option<PathBuf>,
    /// The authorities, PEM, that servers of releases must prove themselves by.
    pub release_ca_bundle: PathBuf,
    /// The program that reimages machines which tenants have left; where there is one, they must show that it did.
    pub reimage_hook: Option<PathBuf>,
    /// The folder below which releases may lie that are imported from folders; none are when absent.
    pub release_import_dir: Option<PathBuf>,
    /// Networks that are not public and that releases may be fetched from all the same.
    pub release_private_networks: Vec<Network>,
    /// Keys that releases may be signed with.
    pub release_trusted_keys: Vec<TrustedKey>,
    /// Whether a release is taken that neither a digest nor a trusted signature verifies.
    pub allow_unverified_releases: bool,
    /// Networks of balancers: connections from there begin with a header of the PROXY protocol, version 2, and count for the address that it names.
    pub proxy_protocol_from: Vec<Network>,
    /// How often one may ask.
    pub paces: Paces,
    /// How long history is kept in the database.
    pub retention: Retention,
    /// Whether `/metrics` is answered without a token to this very machine.
    pub metrics_over_loopback: bool,
    /// How long steps of RKE2 may take.
    pub rke2_deadlines: Deadlines,
    /// Whether a start makes another platform where the store of a data directory that was used is missing.
    pub begin_anew: bool,
}

impl ServerOptions {
    /// On loopback, at the usual ports.
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
            paces: Paces::USUAL,
            retention: Retention::USUAL,
            metrics_over_loopback: false,
            rke2_deadlines: Deadlines::default(),
            begin_anew: false,
        }
    }

    /// What is wrong with these settings, as far as it can be seen without starting or changing anything.
    pub fn problems(&self) -> Vec<ServerError> {
        let mut problems: Vec<ServerError> = Vec::new();
        problems.extend(data_dir::look_at(&self.data_dir).err());
        problems.extend(backup::refuse_unfinished(&self.data_dir).err());
        problems.extend(data_dir::look_at_key(self).err());
        problems.extend(self.store().problem().map(ServerError::from));
        problems.extend(self.packages_dir.as_deref().and_then(packages_problem));
        problems.extend(self.reimage_hook.as_deref().and_then(hook_problem));
        problems.extend(self.release_import_dir.as_deref().and_then(import_dir_problem));
        problems
    }

    /// Where the rows are.
    pub(crate) fn store(&self) -> StoreOptions {
        let local = || format!("sqlite://{}", self.database().display());
        StoreOptions { url: self.store_url.as_ref().map_or_else(local, |url| url.expose().to_owned()) }
    }

    /// The file of the rows, where they are in no shared store.
    pub(crate) fn database(&self) -> PathBuf {
        self.data_dir.join(LOCAL_STORE)
    }

    /// The folder of the artifacts.
    pub(crate) fn artifacts_folder(&self) -> PathBuf {
        self.artifacts_dir.clone().unwrap_or_else(|| self.data_dir.join("artifacts"))
    }

    /// Where the artifacts are.
    pub(crate) fn artifacts(&self) -> Result<ArtifactStore, ServerError> {
        let users = if self.store_url.is_some() { Users::Several } else { Users::One };
        ArtifactStore::in_folder(&self.artifacts_folder(), users)
            .map_err(|error| ServerError::Artifacts(error.to_string()))
    }

    /// The same for somebody who only reads.
    pub(crate) fn artifacts_to_read(&self) -> Result<ArtifactStore, ServerError> {
        let kept = ArtifactStore::to_read(&self.artifacts_folder());
        kept.map_err(|error| ServerError::Artifacts(error.to_string()))
    }

    /// Where releases may come from, and what makes one believed.
    pub(crate) fn sources(&self) -> Sources {
        Sources {
            ca_bundle: self.release_ca_bundle.clone(),
            reach: Reach::with_private(self.release_private_networks.clone()),
            import_dir: self.release_import_dir.clone(),
            verification: Verification {
                trusted_keys: self.release_trusted_keys.clone(),
                allow_unverified: self.allow_unverified_releases,
            },
        }
    }

    /// Which connections of a listener come through a balancer.
    pub(crate) fn proxies(&self) -> ProxyProtocol {
        ProxyProtocol::from_networks(self.proxy_protocol_from.clone())
    }

    /// Names and addresses that the listeners' certificates carry.
    pub(crate) fn names(&self, url: &str) -> Vec<String> {
        let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        names.extend([self.listen.ip(), self.channel_listen.ip()].map(|ip| ip.to_string()));
        names.extend(host(url).map(str::to_owned));
        names.sort();
        names.dedup();
        names
    }

    /// How nodes name the channel: the API's name with the channel's port.
    pub(crate) fn channel_endpoint(&self, bound: SocketAddr) -> String {
        let name = self.public_url.as_deref().and_then(host);
        match name {
            None => bound.to_string(),
            Some(name) if name.contains(':') => format!("[{name}]:{}", bound.port()),
            Some(name) => format!("{name}:{}", bound.port()),
        }
    }
}

/// What is wrong with a folder of packages that was named.
fn packages_problem(folder: &Path) -> Option<ServerError> {
    let sums = folder.join(SUMS_FILE);
    std::fs::metadata(&sums).err().map(|source| ServerError::Packages { folder: folder.to_owned(), source })
}

/// What is wrong with a reimage hook that was named: it must be a file that may be executed.
fn hook_problem(program: &Path) -> Option<ServerError> {
    let source = match std::fs::metadata(program) {
        Ok(metadata) if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 => return None,
        Ok(_) => std::io::Error::other("it is no program"),
        Err(error) => error,
    };
    Some(ServerError::ReimageHook { program: program.to_owned(), source })
}

/// What is wrong with a folder of releases that was named.
fn import_dir_problem(folder: &Path) -> Option<ServerError> {
    let problem = |source| ServerError::ImportDir { folder: folder.to_owned(), source };
    match std::fs::metadata(folder) {
        Ok(_) if !folder.is_absolute() => Some(problem(std::io::ErrorKind::InvalidInput.into())),
        Ok(found) if found.is_dir() => None,
        Ok(_) => Some(problem(std::io::ErrorKind::NotADirectory.into())),
        Err(source) => Some(problem(source)),
    }
}

/// The host of a URL.
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
    fn folder_of_releases_is_an_absolute_path_of_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(import_dir_problem(folder.path()).is_none());
        for bad in [file.as_path(), &folder.path().join("nowhere"), Path::new(".")] {
            assert!(matches!(import_dir_problem(bad), Some(ServerError::ImportDir { .. })), "{}", bad.display());
        }
    }

    #[test]
    fn certificates_carry_every_name_under_which_the_control_plane_is_called() {
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

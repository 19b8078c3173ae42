//! Certificates of this process's listeners: issued at the start and renewed at two thirds of their lifetime, without a restart.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use gpuaas_api::CertificateExpiry;
use gpuaas_engine::{Authorities, Engine};
use gpuaas_model::Timestamp;
use gpuaas_trust::{
    Authority, AuthorityError, ReloadableCertificate, ReplicaIdentity, SERVER_CERTIFICATE_LIFE, ServerKey, TlsError,
    TrustedAuthorities, names_issuer,
};
use rustls_pki_types::CertificateDer;

use crate::{data_dir::write_private, error::ServerError};

/// Age at which certificates are renewed.
const RENEW_AFTER: Duration = Duration::from_secs(SERVER_CERTIFICATE_LIFE.as_secs() * 2 / 3);
/// Interval of checking whether a renewal is due. It covers clock changes and retries failed renewals.
const CHECK_EVERY: Duration = Duration::from_secs(3_600);
/// Retry delay after a failed switch to other authorities.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Reasons why a certificate cannot be issued or used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    CaFile(#[from] ServerError),
}

/// The certificates of this process's listeners and the names, key and identity they are issued for.
pub(crate) struct Certificates {
    /// Certificate of the API, for the key that enrollment commands pin.
    pub(crate) api: Arc<ReloadableCertificate>,
    /// Certificate of the node channel, with a fresh key at each renewal.
    pub(crate) channel: Arc<ReloadableCertificate>,
    /// Certificate by which other replicas identify this one, as listener and as client; with a fresh key at each renewal.
    pub(crate) replica: Arc<ReloadableCertificate>,
    /// Authorities that the node channel and the replicas trust.
    pub(crate) trusted: Arc<TrustedAuthorities>,
    /// Expiry of the certificates.
    pub(crate) expiry: Arc<CertificateExpiry>,
    names: Vec<String>,
    api_key: ServerKey,
    identity: ReplicaIdentity,
}

impl Certificates {
    /// Issues certificates for listeners at `names`, and trusts the authorities in `trusted`.
    pub(crate) fn issue(
        (authority, trusted): (&Authority, &[CertificateDer<'static>]),
        api_key: ServerKey,
        names: Vec<String>,
        identity: ReplicaIdentity,
        now: Timestamp,
    ) -> Result<Self, CertificateError> {
        let (channel, channel_key) = authority.issue_server(&names, now)?;
        let (replica, replica_key) = authority.issue_replica(&identity, now)?;
        Ok(Self {
            api: ReloadableCertificate::new(authority.issue_server_for(&api_key, &names, now)?, api_key.to_der())?,
            channel: ReloadableCertificate::new(channel, channel_key)?,
            replica: ReloadableCertificate::new(replica, replica_key)?,
            trusted: TrustedAuthorities::new(trusted)?,
            expiry: Arc::new(CertificateExpiry::at(now.plus(SERVER_CERTIFICATE_LIFE))),
            names,
            api_key,
            identity,
        })
    }

    /// Renews all certificates. Open connections continue; new handshakes use the new certificates.
    pub(crate) fn renew(&self, authority: &Authority, now: Timestamp) -> Result<(), CertificateError> {
        let (channel, channel_key) = authority.issue_server(&self.names, now)?;
        let (replica, replica_key) = authority.issue_replica(&self.identity, now)?;
        self.api.replace(authority.issue_server_for(&self.api_key, &self.names, now)?, self.api_key.to_der())?;
        self.channel.replace(channel, channel_key)?;
        self.replica.replace(replica, replica_key)?;
        self.expiry.set(now.plus(SERVER_CERTIFICATE_LIFE));
        Ok(())
    }

    /// Renews the certificates when they are due or the active authority changes, and follows changes of the trusted authorities. Writes
    /// the certificates of the active authority and its predecessor to `ca_file`, for clients on this machine.
    pub(crate) async fn maintain(self: Arc<Self>, engine: Arc<Engine>, ca_file: PathBuf) {
        let (clock, runtime) = (engine.ports().clock.clone(), engine.ports().runtime.clone());
        let mut authorities = engine.keys().watch_authorities();
        // Also follow a change that happened since the certificates were issued.
        authorities.mark_changed();
        let mut is_current = false;
        loop {
            let wait = if is_current { CHECK_EVERY } else { RETRY_AFTER };
            tokio::select! {
                _ = authorities.changed() => is_current = false,
                () = runtime.sleep_until(clock.now().plus(wait)) => {}
            }
            let present = authorities.borrow_and_update().clone();
            if !is_current {
                let applied = self.apply_authorities(&present, &ca_file, clock.now()).await;
                is_current = applied.is_ok();
                if let Err(error) = applied {
                    tracing::error!(%error, retry_after = ?RETRY_AFTER, "the listeners could not switch to the present authorities");
                }
            }
            if self.is_due(clock.now()) {
                match self.renew(present.active(), clock.now()) {
                    Ok(()) => {
                        tracing::info!(end = %self.expiry.get(), "the certificates of the listeners were renewed")
                    }
                    Err(error) => {
                        tracing::error!(%error, end = %self.expiry.get(), "the certificates of the listeners could not be renewed")
                    }
                }
            }
        }
    }

    /// Follows the present authorities and writes them to `ca_file`.
    async fn apply_authorities(
        &self,
        present: &Authorities,
        ca_file: &Path,
        now: Timestamp,
    ) -> Result<(), CertificateError> {
        self.follow(present, now)?;
        Ok(write_ca_file(ca_file.to_owned(), present.pem()).await?)
    }

    /// Trusts the present authorities and renews the certificates if another authority is active. Open connections continue.
    fn follow(&self, authorities: &Authorities, now: Timestamp) -> Result<(), CertificateError> {
        self.trusted.replace(&authorities.trusted())?;
        let issuing = authorities.active().certificate();
        if !self.api.chain().first().is_some_and(|shown| names_issuer(shown, issuing)) {
            self.renew(authorities.active(), now)?;
            tracing::info!("the listeners use certificates of another authority");
        }
        Ok(())
    }

    fn is_due(&self, now: Timestamp) -> bool {
        self.expiry.get() <= now.plus(SERVER_CERTIFICATE_LIFE - RENEW_AFTER)
    }
}

/// Writes the authorities' certificates to `path`, for clients on this machine.
pub(crate) async fn write_ca_file(path: PathBuf, pem: String) -> Result<(), ServerError> {
    let refuse = |source| ServerError::DataDirNotWritable { path: path.clone(), source };
    let written = tokio::task::spawn_blocking({
        let path = path.clone();
        move || write_private(&path, pem.as_bytes())
    });
    written.await.map_err(|error| refuse(error.into()))?.map_err(refuse)
}

#[cfg(test)]
mod tests {
    use gpuaas_model::ReplicaId;
    use gpuaas_trust::{OldestTls, api_server_config, client_config};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };
    use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

    use super::*;

    fn issued(authority: &Authority, now: Timestamp) -> Certificates {
        let identity =
            ReplicaIdentity { control_plane: "cp-1".into(), replica: ReplicaId::from_uuid(uuid::Uuid::from_u128(1)) };
        let names = vec!["127.0.0.1".to_owned()];
        Certificates::issue((authority, authority.certificates()), ServerKey::generate().unwrap(), names, identity, now)
            .unwrap()
    }

    #[test]
    fn certificates_are_renewed_at_two_thirds_of_their_lifetime() {
        let start = crate::ports::system().clock.now();
        let authority = Authority::generate("cp-1", start).unwrap();
        let certificates = issued(&authority, start);
        let days = |days: u64| start.plus(Duration::from_secs(days * 24 * 3_600));
        assert!(!certificates.is_due(days(59)));
        assert!(certificates.is_due(days(60)));
        let before = [&certificates.api, &certificates.channel, &certificates.replica].map(|shown| shown.chain());
        certificates.renew(&authority, days(60)).unwrap();
        let after = [&certificates.api, &certificates.channel, &certificates.replica].map(|shown| shown.chain());
        assert!(before.iter().zip(&after).all(|(before, after)| before[0] != after[0]), "all are replaced");
        assert!(!certificates.is_due(days(119)));
        assert_eq!(certificates.expiry.get(), days(150));
    }

    #[tokio::test]
    async fn open_connection_continues_and_next_one_gets_the_new_certificate() {
        let start = crate::ports::system().clock.now();
        let authority = Authority::generate("cp-1", start).unwrap();
        let certificates = issued(&authority, start);
        let config = api_server_config(certificates.api.clone(), OldestTls::default()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut stream = acceptor.accept(stream).await.unwrap();
                tokio::spawn(async move {
                    let (mut from, mut to) = tokio::io::split(&mut stream);
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        let mut client = client_config(authority.certificate_pem().as_bytes()).unwrap();
        client.resumption = rustls::client::Resumption::disabled();
        let connector = TlsConnector::from(Arc::new(client));
        let connect = async || -> TlsStream<TcpStream> {
            let stream = TcpStream::connect(address).await.unwrap();
            connector.connect("127.0.0.1".try_into().unwrap(), stream).await.unwrap()
        };
        let shown = |stream: &TlsStream<TcpStream>| stream.get_ref().1.peer_certificates().unwrap()[0].clone();

        let mut open = connect().await;
        certificates.renew(&authority, start).unwrap();
        open.write_all(b"on").await.unwrap();
        let mut echoed = [0; 2];
        open.read_exact(&mut echoed).await.unwrap();
        assert_eq!(&echoed, b"on", "an open connection continues");
        let next = connect().await;
        assert_ne!(shown(&open), shown(&next));
        assert_eq!(shown(&next), certificates.api.chain()[0]);
    }
}

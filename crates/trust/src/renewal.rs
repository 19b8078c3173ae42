//! Renewal of expired node certificates: for a limited time after expiry a certificate is valid only for renewal, so that nodes survive an
//! outage.

use std::{sync::Arc, time::Duration};

use gpuaas_model::Timestamp;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::{
    authority::NODE_CERTIFICATE_LIFE,
    identity::{IdentityError, expires_at},
    provider::{TlsError, client_verifier},
};

/// Time after expiry during which a certificate can still be renewed.
pub const RENEWAL_GRACE: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Permitted use of a certificate whose chain was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermittedUse {
    /// Everything that its identity is permitted to do.
    Current,
    /// Expired: only renewal is permitted.
    RenewalOnly,
    /// No use is permitted.
    Void,
}

/// Returns the permitted use of a certificate at `now`. Considers only its expiry.
pub fn permitted_use(certificate: &[u8], now: Timestamp) -> Result<PermittedUse, IdentityError> {
    let end = expires_at(certificate)?;
    Ok(match end {
        end if now <= end => PermittedUse::Current,
        end if now <= end.plus(RENEWAL_GRACE) => PermittedUse::RenewalOnly,
        _ => PermittedUse::Void,
    })
}

/// Returns true if a certificate can be renewed at `now`: not before half of its lifetime, of which the rest exceeds any clock skew. An
/// agent renews after two thirds.
pub fn is_renewable(certificate: &[u8], now: Timestamp) -> Result<bool, IdentityError> {
    Ok(now.plus(NODE_CERTIFICATE_LIFE / 2) >= expires_at(certificate)?)
}

/// Accepts certificates that `currently_valid` accepts, and those that expired at most [`RENEWAL_GRACE`] ago.
#[derive(Debug)]
pub(crate) struct RenewableClients {
    currently_valid: Arc<dyn ClientCertVerifier>,
    /// Expiry of the authority that expires last; no certificate is renewed after it.
    authorities_end: Timestamp,
}

impl RenewableClients {
    pub(crate) fn of(
        currently_valid: Arc<dyn ClientCertVerifier>,
        authorities: &[CertificateDer<'_>],
    ) -> Result<Self, TlsError> {
        let ends: Result<Vec<_>, _> = authorities.iter().map(|authority| expires_at(authority)).collect();
        let ends = ends.map_err(|error| TlsError::of(&error))?;
        let authorities_end = ends.into_iter().max().ok_or_else(|| TlsError::of(&"no authority is trusted"))?;
        Ok(Self { currently_valid, authorities_end })
    }

    /// Returns the time to use instead of `now` to verify an expired certificate: its expiry. `None` if it cannot be renewed.
    fn verification_time(&self, certificate: &CertificateDer<'_>, now: UnixTime) -> Option<UnixTime> {
        let now = Timestamp::from_millis(i64::try_from(now.as_secs().checked_mul(1_000)?).ok()?);
        let renewable =
            now <= self.authorities_end && permitted_use(certificate, now).ok()? == PermittedUse::RenewalOnly;
        let end = u64::try_from(expires_at(certificate).ok()?.as_millis()).ok()?;
        renewable.then(|| UnixTime::since_unix_epoch(Duration::from_millis(end)))
    }
}

impl ClientCertVerifier for RenewableClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.currently_valid.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.currently_valid.verify_client_cert(end_entity, intermediates, now) {
            Err(
                late @ Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }),
            ) => {
                let end = self.verification_time(end_entity, now).ok_or(late)?;
                self.currently_valid.verify_client_cert(end_entity, intermediates, end)
            }
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.currently_valid.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.currently_valid.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.currently_valid.supported_verify_schemes()
    }
}

/// Creates a verifier that accepts client certificates of `authorities` that are valid or expired recently enough to be renewed.
pub(crate) fn channel_client_verifier(
    authorities: &[CertificateDer<'static>],
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    Ok(Arc::new(RenewableClients::of(client_verifier(authorities)?, authorities)?))
}

#[cfg(test)]
mod hostile_tests {
    use rustls_pki_types::pem::PemObject;

    use super::*;
    use crate::{
        authority::{Authority, NodeKey},
        identity::NodeIdentity,
    };

    const MADE: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn node_certificate(authority: &Authority) -> CertificateDer<'static> {
        let node = "0198c0de-7a3b-7c11-9b54-0242ac120002".parse().unwrap();
        let identity = NodeIdentity { control_plane: "cp-1".into(), node, epoch: 3 };
        let request = NodeKey::generate().unwrap().request_pem().unwrap();
        let pem = authority.issue_node(&request, &identity, MADE).unwrap();
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    fn is_accepted(trusted: &Authority, certificate: &CertificateDer<'_>, at: Timestamp) -> bool {
        let at = UnixTime::since_unix_epoch(Duration::from_millis(at.as_millis().unsigned_abs()));
        channel_client_verifier(trusted.certificates()).unwrap().verify_client_cert(certificate, &[], at).is_ok()
    }

    #[test]
    fn a_certificate_is_renewed_in_the_second_half_of_its_life_and_after() {
        let certificate = node_certificate(&Authority::generate("cp-1", MADE).unwrap());
        let half = MADE.plus(NODE_CERTIFICATE_LIFE / 2);
        let before = Timestamp::from_millis(half.as_millis() - 1_000);
        for (at, may) in [(MADE, false), (before, false), (half, true), (half.plus(NODE_CERTIFICATE_LIFE), true)] {
            assert_eq!(is_renewable(&certificate, at), Ok(may), "{at}");
        }
    }

    #[test]
    fn expired_certificate_is_accepted_for_thirty_days_for_renewal_only() {
        let authority = Authority::generate("cp-1", MADE).unwrap();
        let certificate = node_certificate(&authority);
        let end = MADE.plus(NODE_CERTIFICATE_LIFE);
        let (second, last) = (Duration::from_secs(1), end.plus(Duration::from_secs(2_592_000)));
        for (at, expected, permitted) in [
            (MADE, true, PermittedUse::Current),
            (end, true, PermittedUse::Current),
            (end.plus(second), true, PermittedUse::RenewalOnly),
            (last, true, PermittedUse::RenewalOnly),
            (last.plus(second), false, PermittedUse::Void),
        ] {
            assert_eq!(is_accepted(&authority, &certificate, at), expected, "{at}");
            assert_eq!(permitted_use(&certificate, at), Ok(permitted), "{at}");
        }
    }

    #[test]
    fn untrusted_or_future_certificate_is_refused() {
        let (authority, untrusted) =
            (Authority::generate("cp-1", MADE).unwrap(), Authority::generate("cp-1", MADE).unwrap());
        let late = MADE.plus(NODE_CERTIFICATE_LIFE).plus(Duration::from_secs(60));
        assert!(!is_accepted(&authority, &node_certificate(&untrusted), late));
        assert!(!is_accepted(&authority, &node_certificate(&untrusted), MADE));
        let early = Timestamp::from_millis(MADE.as_millis() - 3_600_000);
        assert!(!is_accepted(&authority, &node_certificate(&authority), early));
    }
}

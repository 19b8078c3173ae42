//! Identities of nodes and replicas in certificates: a SPIFFE-style URI that only the platform's authority writes.

use std::time::Duration;

use gpuaas_model::{EnrolledNode, NodeId, ReplicaId, Timestamp};
use x509_parser::extensions::GeneralName;

/// Certificates become valid this long before they are issued, to tolerate slow clocks.
pub(crate) const BACKDATED: Duration = Duration::from_secs(300);

/// Identity of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Id of the control plane that issued the identity.
    pub control_plane: String,
    /// The node's id.
    pub node: NodeId,
    /// Enrollment epoch of the identity. The identity is void if the node has a higher epoch.
    pub epoch: u64,
}

/// Identity of one process of a control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaIdentity {
    /// Id of the control plane.
    pub control_plane: String,
    /// Id of the process.
    pub replica: ReplicaId,
}

/// A certificate or URI does not contain an identity of the expected form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the certificate has no valid identity: {0}")]
pub struct IdentityError(pub String);

impl NodeIdentity {
    /// Returns the node and the enrollment epoch of this identity.
    pub const fn enrolled(&self) -> EnrolledNode {
        EnrolledNode { node: self.node, epoch: self.epoch }
    }

    /// Returns `spiffe://CONTROL-PLANE/node/NODE/epoch/N`.
    pub fn uri(&self) -> String {
        format!("spiffe://{}/node/{}/epoch/{}", self.control_plane, self.node, self.epoch)
    }

    /// Parses the URI of a node identity.
    pub fn of_uri(uri: &str) -> Result<Self, IdentityError> {
        let refuse = || IdentityError(format!("{uri} is not of the form spiffe://CONTROL-PLANE/node/NODE/epoch/N"));
        let parts: Vec<&str> = uri.strip_prefix("spiffe://").ok_or_else(refuse)?.split('/').collect();
        let [control_plane, "node", node, "epoch", epoch] = parts[..] else { return Err(refuse()) };
        Ok(Self {
            control_plane: control_plane.to_owned(),
            node: node.parse().map_err(|_| refuse())?,
            epoch: epoch.parse().map_err(|_| refuse())?,
        })
    }

    /// Reads the identity from a certificate. The caller must have verified the certificate's chain.
    pub fn of_certificate(der: &[u8]) -> Result<Self, IdentityError> {
        Self::of_uri(&uri_of(der)?)
    }
}

impl ReplicaIdentity {
    /// Returns `spiffe://CONTROL-PLANE/replica/REPLICA`.
    pub fn uri(&self) -> String {
        format!("spiffe://{}/replica/{}", self.control_plane, self.replica)
    }

    /// Parses the URI of a replica identity.
    pub fn of_uri(uri: &str) -> Result<Self, IdentityError> {
        let refuse = || IdentityError(format!("{uri} is not of the form spiffe://CONTROL-PLANE/replica/REPLICA"));
        let parts: Vec<&str> = uri.strip_prefix("spiffe://").ok_or_else(refuse)?.split('/').collect();
        let [control_plane, "replica", replica] = parts[..] else { return Err(refuse()) };
        Ok(Self { control_plane: control_plane.to_owned(), replica: replica.parse().map_err(|_| refuse())? })
    }

    /// Reads the identity from a certificate. The caller must have verified the certificate's chain.
    pub fn of_certificate(der: &[u8]) -> Result<Self, IdentityError> {
        Self::of_uri(&uri_of(der)?)
    }

    /// Returns the TLS server name for connections to this replica. Only this replica has a certificate for it.
    pub fn server_name(&self) -> String {
        format!("{}.replica.invalid", self.replica)
    }
}

/// Returns the only URI name of a certificate; fails if there is none or more than one.
fn uri_of(der: &[u8]) -> Result<String, IdentityError> {
    let (_, certificate) =
        x509_parser::parse_x509_certificate(der).map_err(|error| IdentityError(error.to_string()))?;
    let names = certificate.subject_alternative_name().map_err(|error| IdentityError(error.to_string()))?;
    let names = names.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
    let mut uris = names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        _ => None,
    });
    match (uris.next(), uris.next()) {
        (Some(uri), None) => Ok(uri),
        _ => Err(IdentityError("it must have exactly one URI name".to_owned())),
    }
}

/// Returns the expiry of a certificate.
pub fn expires_at(der: &[u8]) -> Result<Timestamp, IdentityError> {
    let (_, certificate) =
        x509_parser::parse_x509_certificate(der).map_err(|error| IdentityError(error.to_string()))?;
    Ok(Timestamp::from_millis(certificate.validity().not_after.timestamp().saturating_mul(1_000)))
}

/// Returns the time, in whole seconds, when the authority issued a certificate.
pub fn issued_at(der: &[u8]) -> Result<Timestamp, IdentityError> {
    let (_, certificate) =
        x509_parser::parse_x509_certificate(der).map_err(|error| IdentityError(error.to_string()))?;
    let begins = certificate.validity().not_before.timestamp().saturating_mul(1_000);
    Ok(Timestamp::from_millis(begins).plus(BACKDATED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_uri_round_trips_and_malformed_uris_are_refused() {
        let uri = "spiffe://cp-1/node/0198c0de-7a3b-7c11-9b54-0242ac120002/epoch/7";
        assert_eq!(NodeIdentity::of_uri(uri).unwrap().uri(), uri);
        for bad in [
            "spiffe://cp-1/node/0198c0de-7a3b-7c11-9b54-0242ac120002",
            "spiffe://cp-1/user/0198c0de-7a3b-7c11-9b54-0242ac120002/epoch/7",
            "spiffe://cp-1/node/gpu-07/epoch/7",
            "spiffe://cp-1/node/0198c0de-7a3b-7c11-9b54-0242ac120002/epoch/-1",
            "https://cp-1/node/0198c0de-7a3b-7c11-9b54-0242ac120002/epoch/7",
        ] {
            assert!(NodeIdentity::of_uri(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn node_and_replica_identities_are_not_interchangeable() {
        let replica = "spiffe://cp-1/replica/0198c0de-7a3b-7c11-9b54-0242ac120002";
        let node = "spiffe://cp-1/node/0198c0de-7a3b-7c11-9b54-0242ac120002/epoch/7";
        assert_eq!(ReplicaIdentity::of_uri(replica).unwrap().uri(), replica);
        assert!(ReplicaIdentity::of_uri(node).is_err());
        assert!(ReplicaIdentity::of_uri(&format!("{replica}/epoch/7")).is_err());
        assert!(NodeIdentity::of_uri(replica).is_err());
        // A connecting replica requires this name of the peer.
        let named = ReplicaIdentity::of_uri(replica).unwrap().server_name();
        assert_eq!(named, "0198c0de-7a3b-7c11-9b54-0242ac120002.replica.invalid");
    }
}

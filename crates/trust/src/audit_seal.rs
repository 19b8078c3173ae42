//! Signatures of audit seals, by the key that also signs tasks. The payload type tells the two apart.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use gpuaas_model::Timestamp;
use serde::Serialize;

use crate::{dsse::TaskSigner, key_set::TaskKey, pre_authentication::pre_authentication};

/// Payload type, covered by the signature: no signature of a task is valid for a seal, and the reverse.
const PAYLOAD_TYPE: &str = "application/vnd.gpuaas.audit-seal.v1+json";

/// What the signature of an audit seal covers, as JSON with the fields in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AuditSealStatement<'a> {
    /// Id of the control plane.
    pub control_plane: &'a str,
    /// Number of the seal.
    pub number: u64,
    /// Number of the first audit record.
    pub first: u64,
    /// Number of the last audit record.
    pub last: u64,
    /// How many audit records the seal covers.
    pub records: u64,
    /// When the seal was made.
    pub at: Timestamp,
    /// Digest of the seal before it.
    pub previous: &'a str,
    /// Digest of the previous digest and the records.
    pub digest: &'a str,
}

impl AuditSealStatement<'_> {
    /// Returns the signature in base64.
    pub fn sign(&self, signer: &TaskSigner) -> String {
        signer.sign_payload(PAYLOAD_TYPE, &self.payload())
    }

    /// Returns whether the holder of this key made the signature, whatever the present state of the key.
    pub fn is_signed_by(&self, key: &TaskKey, signature: &str) -> bool {
        let signature = STANDARD.decode(signature).ok();
        let signature = signature.and_then(|bytes| ed25519_dalek::Signature::from_slice(&bytes).ok());
        let signed = pre_authentication(PAYLOAD_TYPE, &self.payload());
        key.verifying_key()
            .zip(signature)
            .is_some_and(|(key, signature)| key.verify_strict(&signed, &signature).is_ok())
    }

    fn payload(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers are always JSON")
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_model::KeyState;

    use super::*;

    fn statement<'a>(previous: &'a str, digest: &'a str) -> AuditSealStatement<'a> {
        let at = Timestamp::from_millis(1_790_000_000_000);
        AuditSealStatement { control_plane: "cp-1", number: 2, first: 11, last: 20, records: 10, at, previous, digest }
    }

    #[test]
    fn signature_is_valid_only_for_the_unchanged_seal_and_its_key() {
        let (signer, other) = (TaskSigner::from_seed(&[1; 32]), TaskSigner::from_seed(&[2; 32]));
        let (key, foreign) = (signer.public(KeyState::Retired), other.public(KeyState::Active));
        let (zeros, ones) = ("0".repeat(64), "1".repeat(64));
        let seal = statement(&zeros, &ones);
        let signature = seal.sign(&signer);
        assert!(seal.is_signed_by(&key, &signature), "a retired key still proves its seals");
        assert!(!seal.is_signed_by(&foreign, &signature));
        let changed = [
            AuditSealStatement { control_plane: "cp-2", ..seal.clone() },
            AuditSealStatement { number: 3, ..seal.clone() },
            AuditSealStatement { first: 10, ..seal.clone() },
            AuditSealStatement { last: 21, ..seal.clone() },
            AuditSealStatement { records: 9, ..seal.clone() },
            AuditSealStatement { at: Timestamp::from_millis(0), ..seal.clone() },
            AuditSealStatement { previous: &ones, ..seal.clone() },
            AuditSealStatement { digest: &zeros, ..seal.clone() },
        ];
        assert!(changed.iter().all(|changed| !changed.is_signed_by(&key, &signature)));
        for invalid in ["", "AAAA", "not base64"] {
            assert!(!seal.is_signed_by(&key, invalid), "{invalid}");
        }
    }

    #[test]
    fn signed_text_has_its_fields_in_a_fixed_order() {
        let (zeros, ones) = ("0".repeat(64), "1".repeat(64));
        let text = String::from_utf8(statement(&zeros, &ones).payload()).unwrap();
        let expected = format!(
            r#"{{"control_plane":"cp-1","number":2,"first":11,"last":20,"records":10,"at":1790000000000,"previous":"{zeros}","digest":"{ones}"}}"#
        );
        assert_eq!(text, expected, "seals that exist could no longer be verified");
    }
}

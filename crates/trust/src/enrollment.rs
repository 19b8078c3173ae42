//! The enrollment string for a new machine: the API's address, the authority to trust, and a one-time token.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use gpuaas_model::{Name, NodeId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{digest::sha256_hex, token::SecretText};

const PREFIX: &str = "gpuaas1.";
/// Hex digits of the checksum at the end of the string, which distinguishes a damaged string from an unknown token.
const CHECK_DIGITS: usize = 8;

/// Contents of an enrollment string.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrollmentString {
    /// URL of the API, for example `https://cp.example:7443`.
    pub url: String,
    /// Id of the control plane.
    pub control_plane: String,
    /// Id of the node to enroll.
    pub node: NodeId,
    /// Name of the node, shown to the person who enrolls it.
    pub name: Name,
    /// One-time token, valid only for enrollment.
    pub token: SecretText,
    /// SHA-256 of the authority's certificate. The agent trusts nothing else, from the first byte.
    pub ca_sha256: String,
    /// Time at which the token expires.
    pub expires_at: Timestamp,
}

/// Why a text is not a valid enrollment string.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrollmentError {
    /// The text does not look like an enrollment string.
    #[error("this is not an enrollment string: it must begin with {PREFIX}")]
    NotEnrollmentString,
    /// The format version is not supported.
    #[error("this agent does not support the format of this enrollment string")]
    Version,
    /// A character was lost or changed.
    #[error("this enrollment string is damaged: a character was lost or changed")]
    Damaged,
}

impl EnrollmentString {
    /// Encodes the string, to be shown once.
    pub fn encode(&self) -> SecretText {
        let json = serde_json::to_vec(self).expect("plain fields are always JSON");
        let body = URL_SAFE_NO_PAD.encode(json);
        let check = &sha256_hex(body.as_bytes())[..CHECK_DIGITS];
        SecretText::new(format!("{PREFIX}{body}.{check}"))
    }

    /// Decodes an enrollment string. Ignores surrounding white space.
    pub fn decode(text: &str) -> Result<Self, EnrollmentError> {
        let text = text.trim();
        let Some(rest) = text.strip_prefix(PREFIX) else {
            return Err(if text.starts_with("gpuaas") {
                EnrollmentError::Version
            } else {
                EnrollmentError::NotEnrollmentString
            });
        };
        let (body, check) = rest.rsplit_once('.').ok_or(EnrollmentError::Damaged)?;
        if sha256_hex(body.as_bytes())[..CHECK_DIGITS] != *check {
            return Err(EnrollmentError::Damaged);
        }
        let json = URL_SAFE_NO_PAD.decode(body).map_err(|_| EnrollmentError::Damaged)?;
        serde_json::from_slice(&json).map_err(|_| EnrollmentError::Version)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn string() -> EnrollmentString {
        EnrollmentString {
            url: "https://127.0.0.1:7443".into(),
            control_plane: "cp-1".into(),
            node: "0198c0de-7a3b-7c11-9b54-0242ac120002".parse().unwrap(),
            name: "gpu-07".parse().unwrap(),
            token: SecretText::new("t".repeat(43)),
            ca_sha256: "ab".repeat(32),
            expires_at: Timestamp::from_millis(9),
        }
    }

    #[test]
    fn string_round_trips_and_errors_are_distinguished() {
        let text = string().encode();
        assert_eq!(EnrollmentString::decode(text.expose()).unwrap().node, string().node);
        assert_eq!(EnrollmentString::decode("hello").unwrap_err(), EnrollmentError::NotEnrollmentString);
        assert_eq!(EnrollmentString::decode("gpuaas2.x.y").unwrap_err(), EnrollmentError::Version);
        let cut = &text.expose()[..text.expose().len() - 3];
        assert_eq!(EnrollmentString::decode(cut).unwrap_err(), EnrollmentError::Damaged);
    }

    proptest! {
        #[test]
        fn a_changed_character_is_always_noticed(at in 0_usize..200, with in "[a-zA-Z0-9]") {
            let text = string().encode().expose().to_owned();
            let at = PREFIX.len() + at % (text.len() - PREFIX.len());
            let mut changed = text.clone();
            changed.replace_range(at..=at, &with);
            prop_assume!(changed != text);
            prop_assert!(EnrollmentString::decode(&changed).is_err());
        }
    }
}

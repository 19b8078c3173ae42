//! The digest of a seal.

use std::io::{self, Write};

use gpuaas_store::AuditRecord;
use gpuaas_trust::Sha256Writer;

/// The digest that the first seal continues.
pub(crate) const FIRST_PREVIOUS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Computes the digest of a seal, record by record.
pub(crate) struct SealDigest(Sha256Writer<io::Sink>);

impl SealDigest {
    /// Begins the digest of the seal after the one with the digest `previous`.
    pub(crate) fn after(previous: &str) -> Self {
        let mut digest = Self(Sha256Writer::new(io::sink()));
        digest.add_line(previous.as_bytes());
        digest
    }

    /// Adds the next record.
    pub(crate) fn add(&mut self, record: &AuditRecord) {
        self.add_line(&serde_json::to_vec(record).expect("an audit record consists of texts, numbers and JSON"));
    }

    /// Returns the digest, 64 hex digits.
    pub(crate) fn finish(self) -> String {
        self.0.finish().1
    }

    fn add_line(&mut self, line: &[u8]) {
        let written = self.0.write_all(line).and_then(|()| self.0.write_all(b"\n"));
        written.expect("a sink takes every byte");
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_model::{ActorType, AuditAction, AuditResult, CorrelationId, Role, Timestamp, TokenId};
    use gpuaas_store::ActorToken;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn record() -> AuditRecord {
        AuditRecord {
            sequence: 7,
            at: Timestamp::from_millis(1_790_000_000_000),
            actor: "ada".to_owned(),
            actor_type: ActorType::Principal,
            by: Some(ActorToken {
                token: TokenId::from_uuid(Uuid::from_u128(1)),
                service_account: None,
                role: Some(Role::PlatformAdmin),
            }),
            action: AuditAction::NodeRegister,
            target: "node/gpu-1".to_owned(),
            project: None,
            workload: None,
            result: AuditResult::Accepted,
            correlation: Some(CorrelationId::from_uuid(Uuid::from_u128(2))),
            metadata: json!({ "b": 1, "a": "it's" }),
        }
    }

    #[test]
    fn digest_is_that_of_the_previous_digest_and_the_records_as_lines_of_an_archive() {
        let line = r#"{"sequence":7,"at":1790000000000,"actor":"ada","actor_type":"principal","by":{"token":"00000000-0000-0000-0000-000000000001","role":"platform-admin"},"action":"node.register","target":"node/gpu-1","project":null,"result":"accepted","correlation":"00000000-0000-0000-0000-000000000002","metadata":{"a":"it's","b":1}}"#;
        let mut digest = SealDigest::after(FIRST_PREVIOUS);
        digest.add(&record());
        let expected = gpuaas_trust::sha256_hex(format!("{FIRST_PREVIOUS}\n{line}\n").as_bytes());
        assert_eq!(digest.finish(), expected, "seals that exist could no longer be verified");
    }

    #[test]
    fn digest_is_the_same_after_a_record_was_written_and_read() {
        for number in 1..10_000_u32 {
            let value = f64::from(number).sqrt() / 3e22;
            let written = AuditRecord { metadata: json!({ "value": value }), ..record() };
            let line = serde_json::to_string(&written).unwrap();
            assert_eq!(serde_json::from_str::<AuditRecord>(&line).unwrap(), written, "the digest is of this line");
        }
    }

    #[test]
    fn order_and_content_of_records_change_the_digest() {
        let of = |records: &[AuditRecord]| {
            let mut digest = SealDigest::after(FIRST_PREVIOUS);
            records.iter().for_each(|record| digest.add(record));
            digest.finish()
        };
        let (one, other) = (record(), AuditRecord { sequence: 8, ..record() });
        let expected = of(&[one.clone(), other.clone()]);
        assert_ne!(of(&[other.clone(), one.clone()]), expected);
        assert_ne!(of(&[one.clone(), AuditRecord { actor: "eve".to_owned(), ..other }]), expected);
        assert_ne!(of(&[one]), expected);
    }
}

use proptest::prelude::*;
use serde_json::json;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

fn signer() -> TaskSigner {
    TaskSigner::from_seed(&[7; 32])
}

fn statement() -> TaskStatement {
    let id = "0198c0de-7a3b-7c11-9b54-0242ac120002";
    TaskStatement {
        control_plane: "cp-1".into(),
        node: id.parse().unwrap(),
        epoch: 1,
        allocation: None,
        workload: None,
        operation: None,
        step: None,
        attempt: 1,
        task: id.parse().unwrap(),
        task_type: "host.noop".into(),
        schema: 1,
        params: json!({}),
        issued_at: NOW,
        expires_at: NOW.plus(std::time::Duration::from_secs(60)),
        fence: 4,
        correlation: id.parse().unwrap(),
    }
}

fn keys() -> SigningKeySet {
    SigningKeySet {
        version: 1,
        keys: vec![signer().public(KeyState::Active)],
        expires_at: Timestamp::from_millis(i64::MAX),
        authorities: Vec::new(),
    }
}

#[test]
fn a_signed_task_is_accepted_until_it_expires() {
    let envelope = signer().sign(&statement()).unwrap().to_json();
    assert_eq!(Envelope::verify(envelope.as_bytes(), &keys(), NOW).unwrap(), statement());
    let late = statement().expires_at;
    assert_eq!(Envelope::verify(envelope.as_bytes(), &keys(), late), Err(EnvelopeError::Expired(late)));
}

#[test]
fn envelope_size_limit_applies_to_signing_and_reading() {
    let padded = |bytes: usize| {
        let params = json!({ "config": "x".repeat(bytes) });
        signer().sign(&TaskStatement { params, ..statement() })
    };
    let sizes: Vec<usize> = (190_000..200_000).collect();
    let fitting = sizes.partition_point(|bytes| padded(*bytes).is_ok());
    let longest = padded(sizes[fitting - 1]).unwrap().to_json();
    // Base64 grows in steps of four.
    assert!((262_141..=262_144).contains(&longest.len()), "{}", longest.len());
    assert!(Envelope::open(longest.as_bytes(), &keys()).is_ok());
    assert!(matches!(padded(300_000), Err(SignError::TooLong)));
    let spaced = |length: usize| format!("{longest}{}", " ".repeat(length - longest.len()));
    assert!(Envelope::open(spaced(262_144).as_bytes(), &keys()).is_ok());
    assert!(matches!(Envelope::open(spaced(262_145).as_bytes(), &keys()), Err(EnvelopeError::Malformed(_))));
}

#[test]
fn restored_key_signs_identically() {
    let kept = TaskSigner::from_seed(&signer().to_seed());
    assert_eq!(kept.sign(&statement()).unwrap(), signer().sign(&statement()).unwrap());
    assert_ne!(*TaskSigner::from_seed(&[8; 32]).to_seed(), *kept.to_seed());
}

#[test]
fn payload_digest_is_that_of_the_signed_statement() {
    let envelope = signer().sign(&statement()).unwrap();
    assert_eq!(envelope.payload_sha256(), sha256_hex(&serde_json::to_vec(&statement()).unwrap()));
}

#[test]
fn a_key_that_the_set_does_not_list_is_not_accepted() {
    let unlisted = TaskSigner::from_seed(&[8; 32]);
    let envelope = unlisted.sign(&statement()).unwrap().to_json();
    let refused = Envelope::verify(envelope.as_bytes(), &keys(), NOW);
    assert_eq!(refused, Err(EnvelopeError::Key(unlisted.key_id().to_owned())));
}

#[test]
fn a_signature_under_anothers_key_id_is_wrong() {
    let mut envelope = TaskSigner::from_seed(&[8; 32]).sign(&statement()).unwrap();
    envelope.signatures[0].keyid = signer().key_id().to_owned();
    assert_eq!(Envelope::verify(envelope.to_json().as_bytes(), &keys(), NOW), Err(EnvelopeError::Signature));
}

#[test]
fn a_signed_statement_with_an_unknown_or_missing_field_is_refused() {
    let sign = |value: &serde_json::Value| {
        let payload = serde_json::to_vec(value).unwrap();
        let sig = signer().key.sign(&pre_authentication(PAYLOAD_TYPE, &payload));
        let signature = Signature { keyid: signer().key_id, sig: STANDARD.encode(sig.to_bytes()) };
        let payload = STANDARD.encode(payload);
        Envelope { payload_type: PAYLOAD_TYPE.to_owned(), payload, signatures: vec![signature] }.to_json()
    };
    let good = serde_json::to_value(statement()).unwrap();
    assert!(Envelope::open(sign(&good).as_bytes(), &keys()).is_ok());
    let (mut more, mut less) = (good.clone(), good);
    more["also"] = json!(1);
    less.as_object_mut().unwrap().remove("fence");
    for odd in [more, less] {
        assert!(matches!(Envelope::open(sign(&odd).as_bytes(), &keys()), Err(EnvelopeError::Malformed(_))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_random_mutation_of_an_envelope_is_accepted(at in any::<prop::sample::Index>(), flip in 1_u8..=255) {
        let mut bytes = signer().sign(&statement()).unwrap().to_json().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        // A mutation that parses to the identical envelope is acceptable.
        let same = serde_json::from_slice::<Envelope>(&bytes)
            .is_ok_and(|read| read == signer().sign(&statement()).unwrap());
        prop_assert!(same || Envelope::verify(&bytes, &keys(), NOW).is_err());
    }
}

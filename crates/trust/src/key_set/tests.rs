use super::*;
use crate::dsse::TaskSigner;

const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

fn set(version: u64) -> SigningKeySet {
    let keys = vec![TaskSigner::from_seed(&[7; 32]).public(KeyState::Active)];
    SigningKeySet { version, keys, expires_at: NOW.plus(SigningKeySet::LIFE), authorities: Vec::new() }
}

#[test]
fn key_set_is_accepted_only_from_its_authority_and_never_in_an_older_version() {
    let authority = Authority::generate("cp-1", NOW).unwrap();
    let signed = set(4).sign(&authority).unwrap();
    let verified = |held: Option<&SigningKeySet>| signed.verify(authority.certificates(), held, NOW);
    assert_eq!(verified(None), Ok(set(4)));
    assert_eq!(verified(Some(&set(4))), Ok(set(4)));
    assert_eq!(verified(Some(&set(5))), Err(KeySetError::Older { offered: 4, held: 5 }));
    let other = SigningKeySet { keys: vec![TaskSigner::from_seed(&[8; 32]).public(KeyState::Active)], ..set(4) };
    assert_eq!(verified(Some(&other)), Err(KeySetError::Changed(4)));
    let untrusted = Authority::generate("cp-1", NOW).unwrap();
    assert_eq!(signed.verify(untrusted.certificates(), None, NOW), Err(KeySetError::Signature));
    let spoiled = SignedKeySet { set: signed.set.replace(":4", ":9"), ..signed };
    assert_eq!(spoiled.verify(authority.certificates(), None, NOW), Err(KeySetError::Signature));
}

#[test]
fn key_set_expires_and_is_renewed_before() {
    let authority = Authority::generate("cp-1", NOW).unwrap();
    let signed = set(4).sign(&authority).unwrap();
    let end = NOW.plus(SigningKeySet::LIFE);
    assert_eq!(signed.verify(authority.certificates(), None, end), Err(KeySetError::Expired(end)));
    assert!(!set(4).needs_renewal(NOW));
    assert!(set(4).needs_renewal(NOW.plus(SigningKeySet::RENEWED_AFTER)));
}

#[test]
fn other_data_signed_by_the_authority_is_no_key_set() {
    let authority = Authority::generate("cp-1", NOW).unwrap();
    let set = serde_json::to_string(&set(4)).unwrap();
    for other in [set.clone().into_bytes(), pre_authentication(crate::dsse::PAYLOAD_TYPE, set.as_bytes())] {
        let signature = STANDARD.encode(authority.sign(&other).unwrap());
        let signed = SignedKeySet { set: set.clone(), signature, by_predecessor: None };
        assert_eq!(signed.verify(authority.certificates(), None, NOW), Err(KeySetError::Signature));
    }
}

/// Returns a set with this version and these authorities.
fn naming(version: u64, authorities: &[&Authority]) -> SigningKeySet {
    let authorities = authorities.iter().map(|authority| authority.certificate_pem().to_owned()).collect();
    SigningKeySet { authorities, ..set(version) }
}

#[test]
fn authorities_are_accepted_only_from_a_trusted_signer_and_never_in_an_older_version() {
    let first = Authority::generate("cp-1", NOW).unwrap();
    let (next, untrusted) = (first.successor(NOW).unwrap(), first.successor(NOW).unwrap());
    let staged = naming(5, &[&first, &next]);
    let signed = staged.sign(&first).unwrap();
    assert_eq!(signed.verify(first.certificates(), Some(&set(4)), NOW), Ok(staged.clone()));
    for unknown in [&next, &untrusted] {
        let named_by = staged.sign(unknown).unwrap();
        assert_eq!(named_by.verify(first.certificates(), Some(&set(4)), NOW), Err(KeySetError::Signature));
    }
    let other = naming(5, &[&first, &untrusted]).sign(&first).unwrap();
    assert_eq!(other.verify(first.certificates(), Some(&staged), NOW), Err(KeySetError::Changed(5)));
    let earlier = naming(4, &[&first]).sign(&first).unwrap();
    let back = earlier.verify(first.certificates(), Some(&staged), NOW);
    assert_eq!(back, Err(KeySetError::Older { offered: 4, held: 5 }));
    let damaged = SigningKeySet { authorities: vec!["-----BEGIN CERTIFICATE-----\n!".to_owned()], ..set(6) };
    let damaged = damaged.sign(&first).unwrap().verify(first.certificates(), Some(&staged), NOW);
    assert!(matches!(damaged, Err(KeySetError::Malformed(_))), "{damaged:?}");
}

#[test]
fn key_set_of_a_new_authority_is_accepted_by_agents_that_know_the_old_one_while_both_sign() {
    let first = Authority::generate("cp-1", NOW).unwrap();
    let next = first.successor(NOW).unwrap();
    let active = naming(6, &[&next, &first]);
    let by_both = active.sign(&next).unwrap().signed_by_predecessor(&first).unwrap();
    for trusted in [first.certificates(), next.certificates()] {
        assert_eq!(by_both.verify(trusted, None, NOW), Ok(active.clone()));
    }
    let alone = naming(7, &[&next]).sign(&next).unwrap();
    assert_eq!(alone.verify(first.certificates(), None, NOW), Err(KeySetError::Signature));
    assert_eq!(alone.open(&active.authority_certificates().unwrap()), Ok(naming(7, &[&next])));
}

#[test]
fn retired_and_revoked_keys_are_not_accepted() {
    let kid = set(1).keys[0].kid.clone();
    for &state in KeyState::ALL {
        let mut keys = set(1);
        keys.keys[0].state = state;
        let accepted = matches!(state, KeyState::Staged | KeyState::Active | KeyState::Grace);
        assert_eq!(keys.accepted(&kid).is_some(), accepted, "{state}");
    }
}

use super::*;

fn key(byte: u8) -> SealingKey {
    SealingKey::new(&[byte; 32]).unwrap()
}

#[test]
fn id_distinguishes_keys_and_does_not_reveal_them() {
    assert_eq!(key(1).id(), key(1).id());
    assert_ne!(key(1).id(), key(2).id());
    assert_eq!(key(1).id().len(), 2 * ID_BYTES);
    assert!(!key(1).id().contains("0101"), "{}", key(1).id());
}

#[test]
fn all_keys_open_and_verify_but_only_the_active_one_seals() {
    let (old, new, keys) = (key(1), key(2), SealingKeys::from(key(1)));
    assert!(keys.set_next(key(2)) && !keys.set_next(key(2)));
    let before = keys.seal(b"owner", b"plain").unwrap();
    old.open(b"owner", &before).expect("the next key seals nothing until it is active");
    let coded = keys.code(None, "token", &[b"record"]).unwrap();
    assert!(old.records().is_valid_code("token", &[b"record"], &coded));

    assert!(keys.activate(new.id()));
    let after = keys.seal(b"owner", b"plain").unwrap();
    new.open(b"owner", &after).expect("the active key sealed it");
    for sealed in [&before, &after] {
        assert_eq!(&**keys.open(b"owner", sealed).unwrap(), b"plain");
        assert_eq!(keys.open(b"other", sealed), Err(SealError::Open));
    }
    assert_eq!(keys.proven_by("token", &[b"record"], &coded).as_deref(), Some(old.id()));
    let coded = keys.code(None, "token", &[b"record"]).unwrap();
    assert_eq!(keys.proven_by("token", &[b"record"], &coded).as_deref(), Some(new.id()));
    assert_eq!(keys.code(Some("another"), "token", &[b"record"]), None);

    keys.drop_previous();
    assert_eq!(keys.open(b"owner", &before), Err(SealError::Open));
    assert!(!keys.holds(old.id()) && !keys.activate(old.id()));
}

#[test]
fn reseal_uses_the_named_key_and_needs_a_key_that_opens() {
    let (new, keys) = (key(2), SealingKeys::from(key(1)));
    let sealed = keys.seal(b"owner", b"plain").unwrap();
    assert_eq!(keys.reseal(Some(new.id()), b"owner", &sealed), None, "the key is not held");
    keys.set_next(key(2));
    let again = keys.reseal(Some(new.id()), b"owner", &sealed).expect("it opens").into_owned();
    assert_eq!(&**new.open(b"owner", &again).unwrap(), b"plain");
    assert!(matches!(keys.reseal(Some(new.id()), b"owner", &again), Some(Cow::Borrowed(same)) if same == again));
    assert_eq!(keys.reseal(Some(new.id()), b"another", &sealed), None);
    let of_unknown_key = key(9).seal(b"owner", b"plain").unwrap();
    assert_eq!(keys.reseal(Some(new.id()), b"owner", &of_unknown_key), None);
}

#[test]
fn secret_opens_only_unchanged_with_its_owner_and_key() {
    let key = SealingKey::new(&[1; 32]).unwrap();
    let sealed = key.seal(b"secret-1", b"hello").unwrap();
    assert_eq!(&**key.open(b"secret-1", &sealed).unwrap(), b"hello");
    assert_eq!(key.open(b"secret-2", &sealed), Err(SealError::Open));
    assert_eq!(SealingKey::new(&[2; 32]).unwrap().open(b"secret-1", &sealed), Err(SealError::Open));
    for at in 0..sealed.len() {
        let mut spoiled = sealed.clone();
        spoiled[at] ^= 1;
        assert_eq!(key.open(b"secret-1", &spoiled), Err(SealError::Open));
    }
    assert_eq!(key.open(b"secret-1", b"short"), Err(SealError::Open));
    assert!(SealingKey::new(b"short").is_err());
}

#[test]
fn record_code_is_valid_only_for_its_key_kind_and_fields() {
    let key = SealingKey::new(&[1; 32]).unwrap();
    let code = key.records().code("token", &[b"one", b"two"]);
    assert!(key.records().is_valid_code("token", &[b"one", b"two"], &code));
    assert!(!key.records().is_valid_code("enrollment", &[b"one", b"two"], &code));
    assert!(!key.records().is_valid_code("token", &[b"onet", b"wo"], &code), "bytes moved between fields");
    assert!(!key.records().is_valid_code("token", &[b"one", b"two"], &[]));
    assert!(!SealingKey::new(&[2; 32]).unwrap().records().is_valid_code("token", &[b"one", b"two"], &code));
}

#[test]
fn sealing_a_secret_twice_gives_different_bytes() {
    let key = SealingKey::new(&[1; 32]).unwrap();
    assert_ne!(key.seal(b"a", b"hello").unwrap(), key.seal(b"a", b"hello").unwrap());
}

use gpuaas_model::TaskType;
use gpuaas_store::{AuditFilter, StoreOptions};
use gpuaas_trust::SealingKey;
use gpuaas_wire::task::GENERAL_TASKS;

use super::*;

const SEALING_KEY: [u8; 32] = [7; 32];

fn sealing() -> SealingKeys {
    SealingKey::new(&SEALING_KEY).unwrap().into()
}

async fn store_in(folder: &std::path::Path, ports: &Ports) -> Store {
    let options = StoreOptions { url: format!("sqlite://{}", folder.join("store.db").display()) };
    Store::open(&options, ports.clock.clone()).await.unwrap()
}

#[test]
fn every_task_type_is_defined_once() {
    let catalog = catalog(Deadlines::default());
    let of_apps = catalog.apps().flat_map(|entry| entry.app.tasks());
    let defined: Vec<TaskType> = GENERAL_TASKS.iter().chain(of_apps).map(|of| of.task_type).collect();
    for task in TaskType::ALL {
        assert_eq!(defined.iter().filter(|of| *of == task).count(), 1, "definitions of {task}");
    }
}

#[tokio::test]
async fn api_key_stays_the_same_and_is_stored_encrypted() {
    let (folder, ports) = (tempfile::tempdir().unwrap(), crate::ports::system());
    let store = store_in(folder.path(), &ports).await;
    let mut pins = Vec::new();
    for _ in 0..2 {
        let keys = keys(&store, sealing(), &ports).await.unwrap();
        pins.push(api_key(&store, &keys).await.unwrap().pin());
    }
    assert_eq!(pins[0], pins[1]);
    let kept = store.read().await.unwrap().setting(API_KEY).await.unwrap().unwrap();
    assert!(!String::from_utf8_lossy(&kept).contains("PRIVATE KEY"));
    let other = Keys::new(
        "cp-1".into(),
        Authority::generate("cp-1", ports.clock.now()).unwrap(),
        SealingKey::new(&[8; 32]).unwrap(),
        TokenKey::new(&[8; 32]),
    );
    assert!(api_key(&store, &other).await.is_err(), "another sealing key decrypts nothing");
}

#[tokio::test]
async fn token_key_stays_the_same_and_differs_between_control_planes() {
    let (folder, ports) = (tempfile::tempdir().unwrap(), crate::ports::system());
    let store = store_in(folder.path(), &ports).await;
    let first = keys(&store, sealing(), &ports).await.unwrap();
    let made = first.tokens().generate("gpuaas", &*ports.entropy).text;
    let kept = async || store.read().await.unwrap().setting(TOKEN_KEY).await.unwrap().unwrap();
    let sealed = kept().await;
    let key = sealing().open(TOKEN_KEY.as_bytes(), &sealed).expect("it is encrypted for its name");
    assert_eq!(key.len(), TokenKey::BYTES);
    assert!(!sealed.windows(key.len()).any(|bytes| bytes == key.as_slice()), "it is stored unencrypted");

    // Rotating the sealing key reseals it without changing it.
    let next = SealingKey::new(&[8; 32]).unwrap();
    let (old, now) = (first.sealing().active(), ports.clock.now());
    assert!(first.sealing().set_next(SealingKey::new(&[8; 32]).unwrap()));
    let mut tx = store.begin().await.unwrap();
    let rotation = SealingRecord { previous: Some(old), ..SealingRecord::new(next.id().to_owned(), now) };
    tx.put_sealing(&rotation).await.unwrap();
    while !tx.reseal_rows(100).await.unwrap() {}
    tx.put_sealing(&SealingRecord::new(next.id().to_owned(), now)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(next.open(TOKEN_KEY.as_bytes(), &kept().await).unwrap(), key);
    let second = keys(&store, next.into(), &ports).await.unwrap();
    assert!(second.tokens().has_valid_code("gpuaas", made.expose()), "a restart invalidated a token");

    let (elsewhere, other) = (tempfile::tempdir().unwrap(), sealing());
    let other = keys(&store_in(elsewhere.path(), &ports).await, other, &ports).await.unwrap();
    assert!(!other.tokens().has_valid_code("gpuaas", made.expose()), "two control planes share a key");
}

#[tokio::test]
async fn replacement_of_lost_signing_keys_has_a_version_that_agents_accept() {
    let (folder, ports) = (tempfile::tempdir().unwrap(), crate::ports::system());
    let store = store_in(folder.path(), &ports).await;
    keys(&store, sealing(), &ports).await.unwrap();
    let before = store.read().await.unwrap().key_set_version().await.unwrap();
    assert_eq!(before, 1);
    // The state after a database writer's change, or after an upgrade from a version whose rows have no authentication codes.
    store.set_record_proof(record_proof(SealingKey::new(&[8; 32]).unwrap().into()));
    let mut tx = store.begin().await.unwrap();
    assert_eq!(tx.remove_forged_signing_keys().await.unwrap(), 1);
    tx.commit().await.unwrap();
    let keys = keys(&store, sealing(), &ports).await.unwrap();
    let mut reader = store.read().await.unwrap();
    assert!(reader.key_set_version().await.unwrap() > 1_000_000, "agents hold a set of version {before} or later");
    keys.ring(&mut reader).await.expect("the new key signs");
}

#[tokio::test]
async fn authority_in_settings_is_moved_into_a_row() {
    let (folder, ports) = (tempfile::tempdir().unwrap(), crate::ports::system());
    let store = store_in(folder.path(), &ports).await;
    let before = Authority::generate("cp-1", ports.clock.now()).unwrap();
    let sealed = sealing().seal(FIRST_AUTHORITY_KEY.as_bytes(), before.key_pem().as_bytes()).unwrap();
    let mut tx = store.begin().await.unwrap();
    tx.put_setting_if_absent(FIRST_AUTHORITY_KEY, &sealed).await.unwrap();
    tx.put_setting_if_absent(FIRST_AUTHORITY, before.certificate_pem().as_bytes()).await.unwrap();
    tx.commit().await.unwrap();
    for _ in 0..2 {
        let keys = keys(&store, sealing(), &ports).await.unwrap();
        assert_eq!(keys.authority().digest(), before.digest());
        let mut reader = store.read().await.unwrap();
        assert_eq!(reader.setting(FIRST_AUTHORITY_KEY).await.unwrap(), None, "it is stored in one place only");
        assert_eq!(reader.authority_ids().await.unwrap(), [before.digest()]);
    }
    let refused = keys(&store, SealingKey::new(&[8; 32]).unwrap().into(), &ports).await;
    assert!(refused.is_err(), "another sealing key");
    assert_eq!(store.read().await.unwrap().authority_ids().await.unwrap(), [before.digest()], "nothing is removed");
}

#[tokio::test]
async fn signing_key_in_settings_is_moved_into_a_row() {
    let (folder, ports) = (tempfile::tempdir().unwrap(), crate::ports::system());
    let store = store_in(folder.path(), &ports).await;
    let signer = TaskSigner::from_seed(&[9; 32]);
    let sealed = SealingKey::new(&SEALING_KEY).unwrap().seal(FIRST_KEY.as_bytes(), &[9; 32]).unwrap();
    let mut tx = store.begin().await.unwrap();
    tx.put_setting_if_absent(FIRST_KEY, &sealed).await.unwrap();
    tx.commit().await.unwrap();
    for start in ["the first", "a later"] {
        let keys = keys(&store, sealing(), &ports).await.unwrap();
        let mut reader = store.read().await.unwrap();
        let kept = reader.signing_keys().await.unwrap();
        let kept: Vec<_> = kept.iter().map(|stored| (stored.key.key_id.as_str(), stored.key.state)).collect();
        assert_eq!(kept, [(signer.key_id(), KeyState::Active)], "{start} start");
        assert_eq!(reader.setting(FIRST_KEY).await.unwrap(), None, "it is stored in one place only");
        let records = reader.audits(&AuditFilter::default()).await.unwrap();
        let actions: Vec<_> = records.iter().map(|record| record.action).collect();
        assert_eq!(actions, [AuditAction::AuthorityActivate, AuditAction::KeyActivate]);
        keys.ring(&mut reader).await.expect("its seed is decrypted");
    }
}

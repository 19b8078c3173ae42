//! Rotation of the sealing key: sealed values and coded records move from the old key to the new one.

use std::sync::Arc;

use gpuaas_model::{KeyState, Role, SecretId, TokenId};
use gpuaas_store::{
    ForgedRow, IdempotencyRecord, Page, RecordProof, SealingRecord, SecretRecord, ServiceAccountRecord,
    SigningKeyRecord, Store, StoreError, StoredAuthority, StoredSigningKey, TokenRecord,
};

use super::{
    database::{Database, NOW, Proof},
    given,
};

fn token(name: &str) -> TokenRecord {
    TokenRecord { name: name.into(), ..given::token(Role::PlatformAdmin) }
}

fn signing_key(under: &str) -> StoredSigningKey {
    let given = given::signing_key("own", KeyState::Active, 3);
    StoredSigningKey { seed: Proof::sealed(under, &StoredSigningKey::seal_owner("own"), b"seed"), ..given }
}

fn authority(under: &str) -> StoredAuthority {
    let given = given::authority("own", KeyState::Active, 3);
    StoredAuthority { key: Proof::sealed(under, &StoredAuthority::seal_owner("own"), b"key"), ..given }
}

fn secret(under: &str) -> SecretRecord {
    let id = SecretId::from_uuid(given::uuid());
    let sealed = Proof::sealed(under, id.to_string().as_bytes(), b"hello");
    SecretRecord { id, workload: None, name: id.to_string(), sha256: given::digest(), sealed, created_at: NOW }
}

fn answer(of: &TokenRecord, under: &str) -> IdempotencyRecord {
    let answer = IdempotencyRecord {
        token: of.id,
        key: "once".into(),
        request_sha256: given::digest(),
        status: 200,
        body: String::new(),
        created_at: NOW,
    };
    IdempotencyRecord { body: hex::encode(Proof::sealed(under, &answer.seal_owner(), b"{}")), ..answer }
}

/// Rows that depend on a sealing key: one of each kind, and several tokens.
struct Rows {
    tokens: Vec<TokenRecord>,
    secret: SecretRecord,
    enrollment: gpuaas_store::EnrollmentRecord,
    account: ServiceAccountRecord,
}

impl Rows {
    /// Inserts the rows while `old` is in use.
    async fn insert_under_old_key(store: &Store) -> Self {
        let (node, project) = (given::node("gpu-1"), given::project("lab"));
        let rows = Self {
            tokens: (0..5).map(|number| token(&format!("token-{number}"))).collect(),
            secret: secret("old"),
            enrollment: given::enrollment(&node),
            account: given::service_account(project.id, "ci"),
        };
        let mut tx = store.begin().await.unwrap();
        tx.put_sealing(&SealingRecord::new("old".into(), NOW)).await.unwrap();
        for token in &rows.tokens {
            tx.insert_token(token).await.unwrap();
        }
        tx.insert_signing_key(&signing_key("old")).await.unwrap();
        tx.insert_authority(&authority("old")).await.unwrap();
        tx.put_secret(&rows.secret).await.unwrap();
        tx.insert_node(&node).await.unwrap();
        tx.insert_enrollment(&rows.enrollment).await.unwrap();
        tx.insert_project(&project).await.unwrap();
        tx.insert_service_account(&rows.account).await.unwrap();
        tx.put_setting_if_absent("api.key", &Proof::sealed("old", b"api.key", b"pem")).await.unwrap();
        tx.put_setting_if_absent("plain", b"a value that is not sealed").await.unwrap();
        tx.put_idempotency(&answer(&rows.tokens[0], "old"), None).await.unwrap();
        tx.commit().await.unwrap();
        rows
    }

    /// Whether all rows can be read with only these keys.
    async fn are_readable_with(&self, store: &Store, keys: &[&'static str]) -> bool {
        let proof = Arc::new(Proof(keys.to_vec()));
        store.set_record_proof(proof.clone());
        let mut reader = store.read().await.unwrap();
        let opens = |owner: &[u8], sealed: &[u8]| proof.reseal(None, owner, sealed).is_some();
        let signing = reader.signing_keys().await.unwrap();
        let seed = signing.first().is_some_and(|kept| opens(&StoredSigningKey::seal_owner("own"), &kept.seed));
        let authorities = reader.authorities().await.unwrap();
        let authority = authorities.first().is_some_and(|kept| opens(&StoredAuthority::seal_owner("own"), &kept.key));
        let secret = reader.secret(self.secret.id).await.unwrap();
        let setting = reader.setting("api.key").await.unwrap().unwrap();
        let answer = reader.idempotency(self.tokens[0].id, "once").await.unwrap().expect("the response is stored");
        let (enrollment, account) = (&self.enrollment, &self.account);
        let found = reader.service_account_by_name(account.project, &account.name).await;
        reader.all_tokens().await.unwrap() == self.tokens
            && reader.check_enrollment(&enrollment.sha256, enrollment.node, NOW).await.is_ok()
            && found.is_ok_and(|found| found == *account)
            && seed
            && authority
            && opens(self.secret.id.to_string().as_bytes(), &secret.sealed)
            && opens(b"api.key", &setting)
            && opens(&answer.seal_owner(), &hex::decode(&answer.body).unwrap())
    }
}

/// Begins the rotation from `old` to `new`, as a process that has both keys.
async fn begin_rotation(store: &Store) {
    store.set_record_proof(Arc::new(Proof(vec!["old", "new"])));
    let mut tx = store.begin().await.unwrap();
    let before = tx.sealing().await.unwrap().expect("a sealing key is in use");
    tx.put_sealing(&SealingRecord { current: "new".into(), previous: Some(before.current), ..before }).await.unwrap();
    tx.commit().await.unwrap();
}

/// Moves at most `rows_max` rows to the new key. Returns whether none are left.
async fn reseal_batch(store: &Store, rows_max: u32) -> bool {
    let mut tx = store.begin().await.unwrap();
    let is_done = tx.reseal_rows(rows_max).await.unwrap();
    tx.commit().await.unwrap();
    is_done
}

pub(crate) async fn rows_stay_readable_during_a_rotation_and_end_under_the_new_key(database: Database) {
    let store = database.open().await;
    let rows = Rows::insert_under_old_key(&store).await;
    assert_eq!(store.read().await.unwrap().rows_to_reseal().await.unwrap(), 0, "no rotation is in progress");
    begin_rotation(&store).await;
    let mut left = store.read().await.unwrap().rows_to_reseal().await.unwrap();
    assert!(left >= 14, "{left}");
    let mut batches = 0;
    loop {
        assert!(rows.are_readable_with(&store, &["old", "new"]).await, "after {batches} batches");
        // A newly started process moves each batch: the rows record where the last one stopped.
        let fresh = database.open().await;
        fresh.set_record_proof(Arc::new(Proof(vec!["new", "old"])));
        batches += 1;
        if reseal_batch(&fresh, 2).await {
            break;
        }
        let now = fresh.read().await.unwrap().rows_to_reseal().await.unwrap();
        assert!(now == left - 2, "{now} of {left}");
        left = now;
    }
    assert!(batches > 5, "{batches}");
    assert!(rows.are_readable_with(&store, &["new"]).await, "a row is still under the old key only");
    assert!(!rows.are_readable_with(&store, &["old"]).await);
    assert_eq!(store.read().await.unwrap().rows_to_reseal().await.unwrap(), 0);
    let plain = store.read().await.unwrap().setting("plain").await.unwrap();
    assert_eq!(plain.as_deref(), Some(&b"a value that is not sealed"[..]));
}

pub(crate) async fn writes_use_the_sealing_key_recorded_in_the_store(database: Database) {
    let store = database.open().await;
    let rows = Rows::insert_under_old_key(&store).await;
    begin_rotation(&store).await;
    while !reseal_batch(&store, 100).await {}
    // A writer that does not know of the rotation yet: it seals with the old key, and codes with the key that it assumes to be in use.
    store.set_record_proof(Arc::new(Proof(vec!["old", "new"])));
    let (late, sealed) = (token("late"), secret("old"));
    let account = given::service_account(rows.account.project, "late");
    let mut tx = store.begin().await.unwrap();
    tx.insert_token(&late).await.unwrap();
    tx.insert_service_account(&account).await.unwrap();
    tx.put_secret(&sealed).await.unwrap();
    tx.put_setting_if_absent("late.key", &Proof::sealed("old", b"late.key", b"pem")).await.unwrap();
    tx.put_idempotency(&answer(&late, "old"), None).await.unwrap();
    let key = tx.signing_keys().await.unwrap().remove(0).key;
    tx.update_signing_key(&SigningKeyRecord { version: 4, ..key }).await.unwrap();
    tx.update_authority(&authority("old").authority).await.unwrap();
    tx.insert_authority(&StoredAuthority {
        authority: given::authority("late", KeyState::Staged, 4).authority,
        key: Proof::sealed("old", &StoredAuthority::seal_owner("late"), b"key"),
    })
    .await
    .unwrap();
    tx.commit().await.unwrap();

    let new = Proof(vec!["new"]);
    store.set_record_proof(Arc::new(Proof(vec!["new"])));
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.token(late.id).await.unwrap(), late);
    let accounts = reader.service_accounts(account.project, &Page::default()).await.unwrap();
    assert_eq!(accounts, [rows.account, account]);
    assert_eq!(reader.key_set_version().await.unwrap(), 4);
    let authorities = reader.authorities().await.unwrap();
    assert_eq!(authorities.len(), 2);
    for kept in authorities {
        let owner = StoredAuthority::seal_owner(&kept.authority.id);
        assert!(new.reseal(None, &owner, &kept.key).is_some(), "the key of authority {}", kept.authority.id);
    }
    let kept = reader.secret(sealed.id).await.unwrap().sealed;
    assert!(new.reseal(None, sealed.id.to_string().as_bytes(), &kept).is_some(), "a secret");
    let kept = reader.setting("late.key").await.unwrap().unwrap();
    assert!(new.reseal(None, b"late.key", &kept).is_some(), "a setting");
    let answer = reader.idempotency(late.id, "once").await.unwrap().unwrap();
    let kept = hex::decode(&answer.body).unwrap();
    assert!(new.reseal(None, &answer.seal_owner(), &kept).is_some(), "an answer");
    for changed in [
        IdempotencyRecord { status: 201, ..answer.clone() },
        IdempotencyRecord { request_sha256: given::digest(), ..answer.clone() },
        IdempotencyRecord { key: "another".into(), ..answer.clone() },
        IdempotencyRecord { token: TokenId::from_uuid(given::uuid()), ..answer.clone() },
    ] {
        assert!(new.reseal(None, &changed.seal_owner(), &kept).is_none(), "{changed:?}");
    }
}

pub(crate) async fn rotation_does_not_verify_forged_rows(database: Database) {
    let store = database.open().await;
    let project = Rows::insert_under_old_key(&store).await.account.project;
    let copied = "insert into tokens (id, sha256, project_id, ends_at, doc, code)";
    let forged = given::digest();
    let from = "project_id, ends_at, replace(doc, 'token-0', 'mallory'), code from tokens where doc like '%token-0%'";
    database.sql(&format!("{copied} select 'forged', '{forged}', {from}")).await.unwrap();
    database.sql("update enrollments set code = ''").await.unwrap();
    database.sql("update service_accounts set doc = replace(doc, 'viewer', 'project-admin')").await.unwrap();
    let key = "insert into signing_keys (key_id, state, version, seed, doc, code) \
               select 'forged', 'grace', 99, seed, replace(doc, 'own', 'forged'), code from signing_keys";
    database.sql(key).await.unwrap();
    begin_rotation(&store).await;
    let mut reported = store.forged_rows();
    while !reseal_batch(&store, 3).await {}
    let mut of = Vec::new();
    while let Ok(ForgedRow { table, .. }) = reported.try_recv() {
        of.push(table);
    }
    assert_eq!(of, ["signing_keys", "service_accounts", "tokens", "enrollments"], "each forged row is reported");
    for keys in [vec!["new"], vec!["old", "new"]] {
        store.set_record_proof(Arc::new(Proof(keys)));
        let mut reader = store.read().await.unwrap();
        assert_eq!(reader.token_by_sha256(&forged).await.unwrap(), None);
        assert_eq!(reader.tokens(None, &Page::default()).await.unwrap().len(), 5);
        assert_eq!(reader.signing_keys().await.unwrap().len(), 1);
        assert_eq!(reader.service_accounts(project, &Page::default()).await.unwrap(), []);
    }
    assert_eq!(database.number("select count(*) from enrollments where code = ''").await, 1, "the row is unchanged");
}

pub(crate) async fn write_fails_without_the_recorded_sealing_key(database: Database) {
    let store = database.open().await;
    Rows::insert_under_old_key(&store).await;
    begin_rotation(&store).await;
    store.set_record_proof(Arc::new(Proof(vec!["old"])));
    let mut tx = store.begin().await.unwrap();
    let refused = tx.insert_token(&token("late")).await.unwrap_err();
    assert!(matches!(&refused, StoreError::SealingKeyMissing { id } if id == "new"), "{refused}");
}

//! Sessions of browsers and sign-in links: found by their digest, used once, and deleted after their end.

use std::{sync::Arc, time::Duration};

use gpuaas_model::{Role, Timestamp};
use gpuaas_store::{BrowserSessionRecord, Change, ForgedRow, SealingRecord, SignInLinkRecord, Store, StoreError};

use super::{
    database::{Database, NOW, Proof},
    given,
};

async fn insert(store: &Store, sessions: &[BrowserSessionRecord], links: &[SignInLinkRecord]) {
    let mut tx = store.begin().await.unwrap();
    for session in sessions {
        tx.insert_browser_session(session).await.unwrap();
    }
    for link in links {
        tx.insert_sign_in_link(link).await.unwrap();
    }
    tx.commit().await.unwrap();
}

fn after_seconds(seconds: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(seconds))
}

pub(crate) async fn session_is_found_by_its_digest_and_listed_for_its_token(database: Database) {
    let store = database.open().await;
    let (ada, bob) = (given::token(Role::Viewer).id, given::token(Role::Viewer).id);
    let [first, second, other] = [ada, ada, bob].map(given::browser_session);
    insert(&store, &[first.clone(), second.clone(), other.clone()], &[]).await;
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.browser_session_by_sha256(&second.sha256).await.unwrap().as_ref(), Some(&second));
    assert_eq!(reader.browser_session_by_sha256(&given::digest()).await.unwrap(), None);
    assert_eq!(reader.browser_sessions_of(ada).await.unwrap(), [first, second]);
    assert_eq!(reader.browser_session(other.id).await.unwrap(), other);
}

pub(crate) async fn use_extends_a_session_and_a_revoked_one_stays_deleted(database: Database) {
    let store = database.open().await;
    let session = given::browser_session(given::token(Role::Viewer).id);
    insert(&store, &[session.clone()], &[]).await;
    let used = BrowserSessionRecord {
        last_used_at: after_seconds(60),
        idle_expires_at: after_seconds(1_860),
        ..session.clone()
    };
    let mut tx = store.begin().await.unwrap();
    tx.update_browser_session(&used).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(store.read().await.unwrap().browser_session(session.id).await.unwrap(), used);
    let mut changes = store.changes();
    let mut tx = store.begin().await.unwrap();
    tx.delete_browser_session(&used).await.unwrap();
    tx.update_browser_session(&used).await.expect("the update of a deleted session has no effect");
    tx.commit().await.unwrap();
    assert_eq!(changes.try_recv().unwrap(), Change::Token(session.token), "its streams look again");
    let absent = store.read().await.unwrap().browser_session(session.id).await;
    assert!(matches!(absent, Err(StoreError::NotFound { what: "session", .. })), "{absent:?}");
}

pub(crate) async fn a_sign_in_link_is_used_once(database: Database) {
    let store = database.open().await;
    let link = given::sign_in_link(given::token(Role::Viewer).id);
    insert(&store, &[], &[link.clone()]).await;
    let mut tx = store.begin().await.unwrap();
    assert!(tx.use_sign_in_link(&link, after_seconds(1)).await.unwrap());
    drop(tx);
    let mut tx = store.begin().await.unwrap();
    assert!(tx.use_sign_in_link(&link, after_seconds(2)).await.unwrap(), "the first use was not committed");
    assert!(!tx.use_sign_in_link(&link, after_seconds(3)).await.unwrap());
    tx.commit().await.unwrap();
    let mut tx = store.begin().await.unwrap();
    assert!(!tx.use_sign_in_link(&link, after_seconds(4)).await.unwrap());
    let used = SignInLinkRecord { used_at: Some(after_seconds(2)), ..link.clone() };
    assert_eq!(tx.sign_in_link_by_sha256(&link.sha256).await.unwrap().as_ref(), Some(&used));
    assert_eq!(tx.sign_in_links_of(link.token).await.unwrap(), [used]);
}

pub(crate) async fn ended_sessions_and_links_are_deleted_and_others_kept(database: Database) {
    let store = database.open().await;
    let token = given::token(Role::Viewer).id;
    let (idle, whole, kept) =
        (given::browser_session(token), given::browser_session(token), given::browser_session(token));
    let idle = BrowserSessionRecord { idle_expires_at: after_seconds(10), ..idle };
    let whole = BrowserSessionRecord { expires_at: after_seconds(10), ..whole };
    let (void, open) = (given::sign_in_link(token), given::sign_in_link(token));
    let void = SignInLinkRecord { expires_at: after_seconds(10), ..void };
    insert(&store, &[idle, whole, kept.clone()], &[void, open.clone()]).await;
    let mut tx = store.begin().await.unwrap();
    tx.delete_ended_browser_sessions(after_seconds(10)).await.unwrap();
    tx.delete_ended_sign_in_links(after_seconds(10)).await.unwrap();
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.browser_sessions_of(token).await.unwrap(), [kept]);
    assert_eq!(reader.sign_in_links_of(token).await.unwrap(), [open]);
}

pub(crate) async fn forged_session_and_link_are_unknown(database: Database) {
    let store = database.open().await;
    let (own, admin) = (given::token(Role::Viewer).id, given::token(Role::PlatformAdmin).id);
    let mut reported = store.forged_rows();
    for (table, change) in [
        ("browser_sessions", "code = ''".to_owned()),
        ("browser_sessions", format!("token_id = '{admin}', doc = replace(doc, '{own}', '{admin}')")),
        ("browser_sessions", "ends_at = ends_at + 1".to_owned()),
        ("sign_in_links", format!("token_id = '{admin}', doc = replace(doc, '{own}', '{admin}')")),
        ("sign_in_links", "ends_at = ends_at + 1".to_owned()),
    ] {
        let (session, link) = (given::browser_session(own), given::sign_in_link(own));
        insert(&store, &[session.clone()], &[link.clone()]).await;
        database.sql(&format!("update {table} set {change}")).await.unwrap();
        let mut reader = store.read().await.unwrap();
        let is_session = table == "browser_sessions";
        assert_eq!(reader.browser_session_by_sha256(&session.sha256).await.unwrap().is_none(), is_session, "{change}");
        assert_eq!(reader.sign_in_link_by_sha256(&link.sha256).await.unwrap().is_none(), !is_session, "{change}");
        assert!(matches!(reported.try_recv(), Ok(ForgedRow { table: of, .. }) if of == table), "{table}: {change}");
        drop(reader);
        for table in ["browser_sessions", "sign_in_links"] {
            database.sql(&format!("delete from {table}")).await.unwrap();
        }
    }
}

pub(crate) async fn sessions_and_links_outlive_a_rotation_of_the_sealing_key(database: Database) {
    let store = database.open().await;
    store.set_record_proof(Arc::new(Proof(vec!["old", "new"])));
    let token = given::token(Role::Viewer).id;
    let (session, link) = (given::browser_session(token), given::sign_in_link(token));
    let mut tx = store.begin().await.unwrap();
    tx.put_sealing(&SealingRecord::new("old".into(), NOW)).await.unwrap();
    tx.insert_browser_session(&session).await.unwrap();
    tx.insert_sign_in_link(&link).await.unwrap();
    let rotating = SealingRecord { previous: Some("old".into()), ..SealingRecord::new("new".into(), NOW) };
    tx.put_sealing(&rotating).await.unwrap();
    while !tx.reseal_rows(1).await.unwrap() {}
    tx.commit().await.unwrap();
    store.set_record_proof(Arc::new(Proof(vec!["new"])));
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.browser_session(session.id).await.unwrap(), session);
    assert_eq!(reader.sign_in_link_by_sha256(&link.sha256).await.unwrap(), Some(link));
}

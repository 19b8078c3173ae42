//! Rows that were written without the store are rejected as forged.

use gpuaas_model::{KeyState, Role};
use gpuaas_store::{EnrollmentRefusal, ForgedRow, Page, StoreError, TokenRecord};

use super::{
    database::{Database, NOW},
    given,
};

pub(crate) async fn forged_token_is_ignored_and_reported(database: Database) {
    let store = database.open().await;
    let (admin, viewer, own) = (given::token(Role::PlatformAdmin), given::token(Role::Viewer), given::digest());
    let mut tx = store.begin().await.unwrap();
    tx.insert_token(&admin).await.unwrap();
    tx.insert_token(&viewer).await.unwrap();
    tx.commit().await.unwrap();
    let mut reported = store.forged_rows();
    let absent = async |sha256: &str| store.read().await.unwrap().token_by_sha256(sha256).await.unwrap().is_none();

    let copied = "insert into tokens (id, sha256, project_id, ends_at, doc, code)";
    let sql =
        format!("{copied} select 'new', '{own}', project_id, ends_at, doc, '' from tokens where id = '{}'", admin.id);
    database.sql(&sql).await.unwrap();
    assert!(absent(&own).await, "a row without a code was read");
    database.sql(&format!("delete from tokens where sha256 = '{own}'")).await.unwrap();
    let sql =
        format!("{copied} select 'new', '{own}', project_id, ends_at, doc, code from tokens where id = '{}'", admin.id);
    database.sql(&sql).await.unwrap();
    assert!(absent(&own).await, "an admin's record with another digest was read");
    let role = "update tokens set doc = replace(doc, 'viewer', 'platform-admin')";
    database.sql(&format!("{role} where id = '{}'", viewer.id)).await.unwrap();
    assert!(absent(&viewer.sha256).await, "a record with a changed role was read");
    assert!(matches!(store.read().await.unwrap().token(viewer.id).await, Err(StoreError::NotFound { .. })));
    assert!(!absent(&admin.sha256).await, "a valid record was not read");
    for (column, other) in
        [("id", "'moved'"), ("project_id", "'moved'"), ("service_account_id", "'moved'"), ("ends_at", "7")]
    {
        let kept = given::token(Role::PlatformAdmin);
        let mut tx = store.begin().await.unwrap();
        tx.insert_token(&kept).await.unwrap();
        tx.commit().await.unwrap();
        database.sql(&format!("update tokens set {column} = {other} where sha256 = '{}'", kept.sha256)).await.unwrap();
        assert!(absent(&kept.sha256).await, "a row whose {column} differs from its record was read");
        let mut tx = store.begin().await.unwrap();
        tx.delete_tokens(NOW).await.expect("no forged row blocks the deletion");
        drop(tx);
        database.sql(&format!("delete from tokens where sha256 = '{}'", kept.sha256)).await.unwrap();
    }
    assert!(!store.read().await.unwrap().all_tokens().await.unwrap().contains(&viewer));

    assert_eq!(reported.try_recv().unwrap(), ForgedRow { table: "tokens", id: "new".into() });
    assert!(store.forged_rows_refused() >= 4, "{}", store.forged_rows_refused());
}

pub(crate) async fn altered_service_account_is_refused_and_reported(database: Database) {
    let store = database.open().await;
    let (ours, _, _) = given::allocated_node(&store, "gpu-1").await;
    let (theirs, _, _) = given::allocated_node(&store, "gpu-2").await;
    let (ours, theirs) = (ours.id, theirs.id);
    let moved = format!("project_id = '{theirs}'");
    let moved_whole = format!("{moved}, doc = replace(doc, '{ours}', '{theirs}')");
    for (change, is_deleted, project, name) in [
        ("code = ''", false, ours, "ci"),
        ("doc = replace(doc, 'viewer', 'project-admin')", false, ours, "ci"),
        (&moved, false, theirs, "ci"),
        (&moved_whole, false, theirs, "ci"),
        ("name = 'cd'", false, ours, "cd"),
        ("id = 'moved'", false, ours, "ci"),
        ("deleted_at = 0", true, ours, "ci"),
    ] {
        let account = given::service_account(ours, "ci");
        let mut tx = store.begin().await.unwrap();
        tx.insert_service_account(&account).await.unwrap();
        assert_eq!(tx.service_account_by_name(ours, &account.name).await.unwrap(), account);
        if is_deleted {
            tx.delete_service_account(&account, NOW).await.unwrap();
        }
        tx.commit().await.unwrap();
        database.sql(&format!("update service_accounts set {change}")).await.unwrap();

        let (mut reported, name) = (store.forged_rows(), given::name(name));
        let mut tx = store.begin().await.unwrap();
        let found = tx.service_account_by_name(project, &name).await;
        assert!(matches!(found, Err(StoreError::NotFound { .. })), "{change}: {found:?}");
        assert_eq!(reported.try_recv().map(|row| row.table), Ok("service_accounts"), "{change}");
        assert_eq!(tx.service_accounts(project, &Page::default()).await.unwrap(), [], "{change}");
        let next = given::service_account(project, name.as_str());
        tx.insert_service_account(&next).await.unwrap_or_else(|error| panic!("{change} blocks the name: {error}"));
        assert_eq!(tx.service_accounts(project, &Page::default()).await.unwrap(), [next], "{change}");
        drop(tx);
        database.sql("delete from service_accounts").await.unwrap();
    }
}

pub(crate) async fn forged_signing_key_is_not_in_the_key_set(database: Database) {
    let store = database.open().await;
    let own = given::signing_key("own", KeyState::Active, 3);
    let mut tx = store.begin().await.unwrap();
    tx.insert_signing_key(&own).await.unwrap();
    tx.commit().await.unwrap();
    let forged = "insert into signing_keys (key_id, state, version, seed, doc, code) \
                  select 'forged', 'grace', 99, seed, replace(doc, 'own', 'forged'), code from signing_keys";
    database.sql(forged).await.unwrap();
    let mut tx = store.begin().await.unwrap();
    assert_eq!(tx.signing_keys().await.unwrap(), [own.clone()]);
    assert_eq!(tx.key_set_version().await.unwrap(), 3, "a forged version does not count");
    assert_eq!(tx.remove_forged_signing_keys().await.unwrap(), 1);
    tx.commit().await.unwrap();
    assert_eq!(database.number("select count(*) from signing_keys").await, 1);
    database.sql("update signing_keys set state = 'grace' where key_id = 'own'").await.unwrap();
    assert_eq!(store.read().await.unwrap().signing_keys().await.unwrap(), [], "the column has another state");
    database.sql("update signing_keys set state = 'active', code = ''").await.unwrap();
    assert_eq!(store.read().await.unwrap().signing_keys().await.unwrap(), []);
}

pub(crate) async fn forged_authority_is_not_read(database: Database) {
    let store = database.open().await;
    let own = given::authority("own", KeyState::Active, 3);
    let mut tx = store.begin().await.unwrap();
    tx.insert_authority(&own).await.unwrap();
    tx.commit().await.unwrap();
    let forged = "insert into authorities (id, state, version, sealed_key, doc, code) \
                  select 'forged', 'staged', 99, sealed_key, replace(doc, 'own', 'forged'), code from authorities";
    database.sql(forged).await.unwrap();
    let mut reported = store.forged_rows();
    let mut tx = store.begin().await.unwrap();
    assert_eq!(tx.authorities().await.unwrap(), [own.clone()]);
    assert_eq!(reported.try_recv().unwrap(), ForgedRow { table: "authorities", id: "forged".into() });
    assert_eq!(tx.key_set_version().await.unwrap(), 3, "a forged version does not count");
    tx.remove_forged_authorities().await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(store.read().await.unwrap().authority_ids().await.unwrap(), ["own"]);
    for columns in ["version = 99", "state = 'staged'", "id = 'other'"] {
        database.sql(&format!("update authorities set {columns}")).await.unwrap();
        assert_eq!(store.read().await.unwrap().authorities().await.unwrap(), [], "{columns}");
        database.sql("update authorities set id = 'own', state = 'active', version = 3").await.unwrap();
        assert_eq!(store.read().await.unwrap().authorities().await.unwrap(), [own.clone()]);
    }
    database.sql("update authorities set doc = replace(doc, 'active', 'grace')").await.unwrap();
    let mut tx = store.begin().await.unwrap();
    assert_eq!(tx.authorities().await.unwrap(), [], "the document has another state");
    tx.remove_forged_authorities().await.unwrap();
    assert_eq!(tx.authority_ids().await.unwrap(), ["own"], "without a verified row, the key may be the wrong one");
}

pub(crate) async fn forged_enrollment_is_unknown(database: Database) {
    let store = database.open().await;
    let node = given::node("gpu-1");
    let enrollment = given::enrollment(&node);
    let mut tx = store.begin().await.unwrap();
    tx.insert_node(&node).await.unwrap();
    tx.insert_enrollment(&enrollment).await.unwrap();
    tx.commit().await.unwrap();
    let check = async |sha256: &str| {
        let mut reader = store.read().await.unwrap();
        reader.check_enrollment(sha256, node.id, NOW).await
    };
    let own = given::digest();
    let copied = "insert into enrollments (id, node_id, sha256, doc, code)";
    database.sql(&format!("{copied} select 'new', node_id, '{own}', doc, code from enrollments")).await.unwrap();
    let assert_unknown = |looked: Result<_, StoreError>| {
        assert!(matches!(looked, Err(StoreError::EnrollmentRefused(EnrollmentRefusal::Unknown))), "{looked:?}");
    };
    assert_unknown(check(&own).await);
    check(&enrollment.sha256).await.expect("the platform's enrollment is valid");
    database
        .sql("update enrollments set doc = replace(doc, '\"is_forced\":false', '\"is_forced\":true')")
        .await
        .unwrap();
    assert_unknown(check(&enrollment.sha256).await);
}

pub(crate) async fn records_are_neither_written_nor_read_without_a_proof(database: Database) {
    let (store, unproven) = (database.open().await, database.open_unproven().await);
    let known = given::token(Role::PlatformAdmin);
    let mut tx = store.begin().await.unwrap();
    tx.insert_token(&known).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(unproven.read().await.unwrap().token_by_sha256(&known.sha256).await.unwrap(), None);
    let mut tx = unproven.begin().await.unwrap();
    assert!(matches!(tx.insert_token(&given::token(Role::PlatformAdmin)).await, Err(StoreError::NoProof)));
}

pub(crate) async fn forged_rows_do_not_hide_verified_ones_from_a_page(database: Database) {
    let store = database.open().await;
    let tokens: Vec<TokenRecord> = (0..5).map(|_| given::token(Role::Viewer)).collect();
    let mut tx = store.begin().await.unwrap();
    for token in &tokens {
        tx.insert_token(token).await.unwrap();
    }
    tx.commit().await.unwrap();
    for forged in [&tokens[0], &tokens[1], &tokens[3]] {
        database.sql(&format!("update tokens set code = '' where id = '{}'", forged.id)).await.unwrap();
    }
    let page = Page { limit: Some(1), ..Page::default() };
    let mut reader = store.read().await.unwrap();
    let first = reader.tokens(None, &page).await.unwrap();
    assert_eq!(first, [tokens[2].clone()], "two forged rows precede it");
    let next = Page { after: Some(first[0].id.to_string()), ..page };
    assert_eq!(reader.tokens(None, &next).await.unwrap(), [tokens[4].clone()]);
}

//! Rows that an attacker writes into the database: the platform refuses them and reports each with an event.

use gpuaas_api_types::{CreateProject, CreateServiceAccount, CreateServiceAccountToken};
use gpuaas_model::Code;
use gpuaas_trust::{TaskSigner, sha256_hex};

use crate::{
    fleet::Fleet,
    world::{eventually, token_request},
};

pub(crate) async fn execute_sql(fleet: &Fleet, sql: &str) {
    let store = rusqlite::Connection::open(fleet.data_dir().join("gpuaas.db")).expect("the store");
    store.execute_batch(sql).expect("written");
    store.close().expect("closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_token_row_is_refused_and_reported() {
    let fleet = Fleet::start(0).await;
    let admin = fleet.client();
    // The text of a genuine token, because the control plane does not look up a text that it did not issue.
    let ask = token_request("own", "platform-metrics", None);
    let own = admin.create_token(&ask).await.expect("made").secret;
    let sql = format!(
        "delete from tokens where sha256 = '{sha}'; insert into tokens (id, sha256, project_id, service_account_id, ends_at, doc, code) \
         select '0198c0de-7a3b-7c11-9b54-0242ac120002', '{sha}', project_id, service_account_id, ends_at, \
         replace(doc, sha256, '{sha}'), code from tokens where doc like '%platform-admin%' limit 1",
        sha = sha256_hex(own.as_bytes()),
    );
    execute_sql(&fleet, &sql).await;
    let refused = fleet.client_with(0, &own).whoami().await.expect_err("a forged token");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");

    eventually("the forged row is not reported", async || {
        let events = admin.list_events(None, 0).await.expect("events").items;
        events.iter().any(|event| event.kind == "row.forged" && event.data["table"] == "tokens")
    })
    .await;
    let listed = admin.list_tokens(None).await.expect("listed").items;
    assert!(listed.iter().all(|token| token.id != "0198c0de-7a3b-7c11-9b54-0242ac120002"));
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_signing_key_row_reaches_no_node() {
    let fleet = Fleet::start(1).await;
    let admin = fleet.client();
    let public = TaskSigner::from_seed(&[9; 32]).public(gpuaas_model::KeyState::Grace);
    let sql = format!(
        "insert into signing_keys (key_id, state, version, seed, doc, code) \
         select '{kid}', 'grace', version + 1, x'', \
         replace(replace(replace(doc, '\"active\"', '\"grace\"'), key_id, '{kid}'), '\"version\":1', '\"version\":2'), code \
         from signing_keys",
        kid = public.kid,
    );
    execute_sql(&fleet, &sql).await;
    // Rotating the keys makes the control plane send the key set to the nodes.
    admin.rotate_signing_keys().await.expect("accepted");
    eventually("the rotation does not end", async || {
        let keys = admin.list_signing_keys().await.expect("keys").items;
        keys.iter().any(|key| key.state == "retired")
    })
    .await;
    let identity = std::fs::read_to_string(fleet.node_file(1, "var/lib/gpuaas-agent/identity.json")).expect("kept");
    assert!(!identity.contains(&public.kid), "the node accepted a forged key");
    let keys = admin.list_signing_keys().await.expect("keys").items;
    assert!(keys.iter().all(|key| key.id != public.kid), "{keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_service_account_row_gets_no_token_and_is_reported() {
    let fleet = Fleet::start(0).await;
    let admin = fleet.client();
    let lab = admin.create_project(&CreateProject { name: "lab".into() }).await.expect("a project").id;
    let other = admin.create_project(&CreateProject { name: "other".into() }).await.expect("a project").id;
    let token = async |project: &str, name: &str| {
        admin.create_service_account_token(Some(project.into()), name, &CreateServiceAccountToken::default()).await
    };
    let make = async |name: &str| {
        let account = CreateServiceAccount {
            name: name.into(),
            role: "viewer".into(),
            workload: None,
            project: Some("lab".into()),
        };
        admin.create_service_account(&account).await
    };
    for (name, project, change) in [
        ("promoted", "lab", "doc = replace(doc, 'viewer', 'project-admin')".to_owned()),
        ("raised", "lab", "doc = replace(doc, 'viewer', 'platform-admin')".to_owned()),
        ("moved", "other", format!("project_id = '{other}', doc = replace(doc, '{lab}', '{other}')")),
    ] {
        let id = make(name).await.expect("an account").id;
        let before = fleet.client_with(0, &token("lab", name).await.expect("a token").secret);
        execute_sql(&fleet, &format!("update service_accounts set {change} where id = '{id}'")).await;
        let refused = token(project, name).await.map(|made| made.token.role).expect_err("no such account");
        assert_eq!(refused.code(), Code::NotFound, "{name}: {refused}");
        eventually("the forged row is not reported", async || {
            let events = admin.list_events(None, 0).await.expect("events").items;
            events.iter().any(|event| {
                event.kind == "row.forged" && event.subject_id == id && event.data["table"] == "service_accounts"
            })
        })
        .await;
        let holder = before.whoami().await.expect("the earlier token is valid");
        assert_eq!((holder.role.as_str(), holder.project), ("viewer", Some(lab.clone())), "{name}");
    }
    make("promoted").await.expect("the forged row does not reserve the name");
    assert_eq!(token("lab", "promoted").await.expect("a token").token.role, "viewer");
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_authority_row_is_not_trusted() {
    let fleet = Fleet::start(1).await;
    let admin = fleet.client();
    let own = gpuaas_trust::Authority::generate("mallory", gpuaas_model::Timestamp::from_millis(1_790_000_000_000));
    let own = own.expect("an authority");
    let sql = format!(
        "insert into authorities (id, state, version, sealed_key, doc, code) \
         select '{id}', 'staged', version + 1, sealed_key, \
         replace(replace(replace(doc, '\"active\"', '\"staged\"'), id, '{id}'), '\"version\":1', '\"version\":2'), code \
         from authorities",
        id = own.digest(),
    );
    execute_sql(&fleet, &sql).await;
    let pem = own.certificate_pem().replace('\n', "\\n");
    execute_sql(
        &fleet,
        &format!("update authorities set doc = json_set(doc, '$.certificate', '{pem}') where state = 'staged'"),
    )
    .await;
    // Rotating the keys makes the control plane send the key set to the nodes.
    admin.rotate_signing_keys().await.expect("accepted");
    eventually("the rotation does not end", async || {
        let keys = admin.list_signing_keys().await.expect("keys").items;
        keys.iter().any(|key| key.state == "retired")
    })
    .await;
    let authority = || {
        let kept = std::fs::read(fleet.node_file(1, "var/lib/gpuaas-agent/identity.json")).expect("kept");
        let kept: serde_json::Value = serde_json::from_slice(&kept).expect("JSON");
        kept["authority"].as_str().expect("a text").matches("BEGIN CERTIFICATE").count()
    };
    assert_eq!(authority(), 1, "the node trusts a forged authority");
    assert_eq!(admin.list_authorities().await.expect("listed").items.len(), 1);
    // The forged authority does not block a rotation either.
    admin.rotate_authority().await.expect("accepted");
    eventually("the rotation does not end", async || {
        let authorities = admin.list_authorities().await.expect("listed").items;
        authorities.iter().map(|authority| authority.state.as_str()).eq(["retired", "active"])
    })
    .await;
    eventually("the node still trusts the old authority", async || authority() == 1).await;
}

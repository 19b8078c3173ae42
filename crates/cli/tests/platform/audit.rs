//! Filters of the audit, its chain, and the roles that read it.

use gpuaas_api_types::{AuditEntry, AuditHead, CreateProject, CreateServiceAccount, CreateServiceAccountToken};
use gpuaas_client::{AuditQuery, Client, ClientError};
use serde_json::Value;

use crate::{
    fleet::Fleet,
    forged_rows::execute_sql,
    world::{Platform, eventually, token_request},
};

async fn token(platform: &Platform, name: &str, role: &str, project: Option<&str>) -> Client {
    let ask = token_request(name, role, project);
    platform.client_with(&platform.client().create_token(&ask).await.expect("made").secret)
}

async fn targets(client: &Client, query: AuditQuery) -> Vec<String> {
    let records = client.list_audit(&query).await.expect("records").items;
    records.into_iter().map(|record: AuditEntry| record.target).collect()
}

/// Returns the targets that `gpuaas audit list` prints with these flags.
fn listed(platform: &Platform, flags: &[&str]) -> Vec<String> {
    let records = platform.json(&[&["audit", "list", "--action", "project.create"], flags].concat());
    let records = records.as_array().expect("a list").iter();
    records.map(|record: &Value| record["target"].as_str().expect("a target").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_is_listed_by_actor_time_correlation_and_number() {
    let platform = Platform::start(0);
    let root = platform.client();
    for name in ["a", "b"] {
        root.create_project(&CreateProject { name: name.into() }).await.expect("made");
    }
    let other = token(&platform, "carol", "platform-admin", None).await;
    other.create_project(&CreateProject { name: "c".into() }).await.expect("made");
    let all = root.list_audit(&AuditQuery { action: Some("project.create".into()), ..AuditQuery::default() }).await;
    let all = all.expect("records").items;
    assert_eq!(listed(&platform, &[]), ["project/a", "project/b", "project/c"]);
    assert_eq!(listed(&platform, &["--actor", "carol"]), ["project/c"]);
    assert_eq!(listed(&platform, &["--limit", "2"]), ["project/b", "project/c"]);
    assert_eq!(listed(&platform, &["--since", "1h", "--until", "30m"]), [] as [&str; 0]);
    assert_eq!(listed(&platform, &["--since", "1h"]).len(), 3);
    assert_eq!(listed(&platform, &["--since", &all[1].at, "--until", &all[2].at]), ["project/b"]);
    assert_eq!(listed(&platform, &["--correlation", all[0].correlation_id.as_deref().expect("one")]), ["project/a"]);
    assert_eq!(listed(&platform, &["--project", "b"]), ["project/b"]);

    assert_eq!(listed(&platform, &["--since", "2020-01-01"]).len(), 3);
    assert!(all.iter().all(|record| record.actor_role.as_deref() == Some("platform-admin")), "{all:?}");
    let none = platform.gpuaas(&["audit", "list", "--actor", "nobody"]);
    let hint = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(none.status.success() && none.stdout.is_empty(), "{none:?}");
    assert!(hint.starts_with("nothing found\ncheck the spelling"), "{hint}");
    let none = platform.gpuaas(&["audit", "list", "--target", "train"]);
    let hint = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(hint.contains("KIND/NAME, for example workload/train"), "{hint}");
    let none = platform.gpuaas(&["audit", "list", "--until", "2020-01-01"]);
    assert_eq!(String::from_utf8_lossy(&none.stderr), "nothing found\n", "nothing was named that could be misspelt");
    assert_eq!(listed(&platform, &["--result", "refused"]), [] as [&str; 0]);
    assert!(!platform.gpuaas(&["project", "create", "a"]).status.success(), "its name is taken");
    assert_eq!(listed(&platform, &["--result", "refused"]), ["project/a"]);
    assert_eq!(listed(&platform, &["--result", "accepted"]), ["project/a", "project/b", "project/c"]);

    let refused = platform.gpuaas(&["audit", "list", "--since", "yesterday"]);
    assert_eq!(refused.status.code(), Some(2));
    for (query, field) in [
        (AuditQuery { correlation: Some("x".into()), ..AuditQuery::default() }, "correlation"),
        (AuditQuery { result: Some("denied".into()), ..AuditQuery::default() }, "result"),
        (AuditQuery { since: Some("1h".into()), ..AuditQuery::default() }, "since"),
        (AuditQuery { until: Some("2026-07-01".into()), ..AuditQuery::default() }, "until"),
    ] {
        match root.list_audit(&query).await.expect_err(field) {
            ClientError::Problem(problem) => {
                assert_eq!((problem.code.as_str(), problem.field.as_deref()), ("query_invalid", Some(field)));
            }
            other => panic!("{other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn auditors_read_the_audit_of_their_scope_and_change_nothing() {
    let platform = Platform::start(0);
    let root = platform.client();
    for name in ["ours", "theirs"] {
        root.create_project(&CreateProject { name: name.into() }).await.expect("made");
    }
    let of_platform = token(&platform, "eve", "platform-auditor", None).await;
    let ours = token(&platform, "ann", "auditor", Some("ours")).await;
    let account = CreateServiceAccount {
        name: "export".into(),
        role: "auditor".into(),
        workload: None,
        project: Some("ours".into()),
    };
    root.create_service_account(&account).await.expect("made");
    let ask = CreateServiceAccountToken { ttl_seconds: None };
    let program = root.create_service_account_token(Some("ours".into()), "export", &ask).await.expect("made");
    let program = platform.client_with(&program.secret);

    let all = targets(&of_platform, AuditQuery::default()).await;
    assert!(all.contains(&"project/ours".to_owned()) && all.contains(&"project/theirs".to_owned()), "{all:?}");
    for reader in [&ours, &program] {
        let seen = targets(reader, AuditQuery::default()).await;
        assert!(seen.contains(&"project/ours".to_owned()) && !seen.contains(&"project/theirs".to_owned()), "{seen:?}");
        let foreign = reader.list_audit(&AuditQuery { project: Some("theirs".into()), ..AuditQuery::default() }).await;
        assert_eq!(foreign.expect_err("it looks absent").exit() as u8, 3);
    }
    for reader in [&of_platform, &ours, &program] {
        reader.list_projects().await.expect("names");
        reader.list_operations(None, None, None).await.expect("names");
        let project = CreateProject { name: "more".into() };
        assert_eq!(reader.create_project(&project).await.expect_err("it reads only").exit() as u8, 6);
    }
    of_platform.list_nodes(None, None).await.expect("names");
    of_platform.list_archives(None).await.expect("older records");
    assert_eq!(ours.list_archives(None).await.expect_err("they are of all projects").exit() as u8, 6);
}

/// Waits until every audit record is sealed. Returns the newest seal.
pub(crate) async fn sealed_head(client: &Client) -> AuditHead {
    eventually("the audit is not sealed", async || {
        let chain = client.get_audit_chain().await.expect("shown");
        chain.unsealed == 0 && chain.last_seal.is_some()
    })
    .await;
    let seal = client.get_audit_chain().await.expect("shown").last_seal.expect("a seal");
    AuditHead { seal: seal.number, digest: seal.digest }
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_is_sealed_and_verified_by_the_command_line() {
    let platform = Platform::start(0);
    let root = platform.client();
    root.create_project(&CreateProject { name: "ours".into() }).await.expect("made");
    let head = sealed_head(&root).await;
    let head = format!("{}:{}", head.seal, head.digest);
    let shown = platform.gpuaas(&["audit", "chain"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains(&head), "{shown:?}");

    let verified = platform.gpuaas(&["audit", "verify", "--head", &head]);
    let line = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.success() && line.contains("chain intact") && line.contains(&head), "{verified:?}");
    let named = platform.gpuaas(&["audit", "verify", "-o", "name"]);
    assert!(String::from_utf8_lossy(&named.stdout).contains(':'), "{named:?}");
    assert_eq!(platform.json(&["audit", "verify"])["result"], "intact");
    let filter = AuditQuery { action: Some("audit.verify".into()), ..AuditQuery::default() };
    let records = root.list_audit(&filter).await.expect("records").items;
    assert_eq!(records.len(), 3);
    assert_eq!(records[0].metadata["expected"], head.as_str());

    let unknown = format!("1:{}", "0".repeat(64));
    let broken = platform.gpuaas(&["audit", "verify", "--head", &unknown]);
    assert_eq!(broken.status.code(), Some(1), "{broken:?}");
    assert!(String::from_utf8_lossy(&broken.stdout).contains("changed at seal 1: "), "{broken:?}");
    assert!(String::from_utf8_lossy(&broken.stderr).contains("gpuaas explain audit_chain_broken"), "{broken:?}");
    assert_eq!(platform.gpuaas(&["audit", "verify", "--head", "1"]).status.code(), Some(2));

    let ours = token(&platform, "ann", "auditor", Some("ours")).await;
    assert_eq!(ours.verify_audit(None).await.expect_err("it is of all projects").exit() as u8, 6);
    let of_platform = token(&platform, "eve", "platform-auditor", None).await;
    assert_eq!(of_platform.verify_audit(None).await.expect("verified").result, "intact");
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_record_changed_by_the_owner_of_the_tables_is_found() {
    let fleet = Fleet::start(0).await;
    let client = fleet.client();
    client.create_project(&CreateProject { name: "ours".into() }).await.expect("made");
    let head = sealed_head(&client).await;
    let sql = "drop trigger audit_is_not_updated; update audit set actor = 'eve' where action = 'project.create'";
    execute_sql(&fleet, sql).await;
    let verified = client.verify_audit(Some(head)).await.expect("a result");
    let defects: Vec<&str> = verified.defects.iter().map(|defect| defect.kind.as_str()).collect();
    assert_eq!((verified.result.as_str(), defects), ("broken", vec!["changed"]), "{:?}", verified.defects);
    assert!(verified.defects[0].seal.is_some(), "{:?}", verified.defects);
}

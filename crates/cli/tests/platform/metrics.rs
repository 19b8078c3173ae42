//! Access to the control plane's metrics.

use gpuaas_api_types::{CreateProject, CreateToken};
use gpuaas_model::{Permission, Role};
use http::Method;

use crate::{
    raw::{HttpResponse, read_open, send},
    world::{Platform, eventually},
};

async fn metrics(platform: &Platform, token: &str) -> HttpResponse {
    send(platform, Method::GET, "/metrics", &[("authorization", &format!("Bearer {token}"))], "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_need_a_permission_and_the_metrics_role_reads_nothing_else() {
    let platform = Platform::start(0);
    let client = platform.client();
    client.create_project(&CreateProject { name: "ours".to_owned() }).await.expect("made");
    let answer = read_open(&platform.ready(), "/metrics").await;
    assert_eq!((answer.status, answer.code()), (401, "unauthenticated"), "also over loopback: {answer:?}");
    for role in Role::ALL.iter().filter(|role| !role.is_of_workload()) {
        let project = (!role.is_of_platform()).then(|| "ours".to_owned());
        let ask = CreateToken { name: "scraper".to_owned(), role: role.to_string(), project, ttl_seconds: Some(600) };
        let token = client.create_token(&ask).await.expect("made").secret;
        let answer = metrics(&platform, &token).await;
        match role.allows(Permission::MetricsRead) {
            true => {
                assert!(answer.body.as_str().is_some_and(|text| text.contains("gpuaas_nodes")), "{role}: {answer:?}")
            }
            false => assert_eq!((answer.status, answer.code()), (403, "forbidden"), "{role}: {answer:?}"),
        }
        if *role == Role::PlatformMetrics {
            let refused =
                platform.client_with(&token).list_nodes(None, None).await.expect_err("the role only reads metrics");
            assert_eq!(refused.exit() as u8, 6);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_over_loopback_need_no_token_if_configured() {
    let platform = Platform::start_with(0, &[("GPUAAS_METRICS_OVER_LOOPBACK", "true")]);
    assert_eq!(read_open(&platform.ready(), "/metrics").await.status, 200);
    assert_eq!(read_open(&platform.ready(), "/api/v1/nodes").await.status, 401, "and nothing else");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_each_committed_change_at_once() {
    let platform = Platform::start(0);
    let (client, ready) = (platform.client(), platform.ready());
    let token = ready["token"].as_str().expect("the developer's token");
    let count = async |name: &str| {
        let shown = metrics(&platform, token).await;
        let text = shown.body.as_str().expect("it is text").to_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("it is there");
        line.trim().parse::<u64>().expect("it is a number")
    };
    for name in ["gpuaas_store_statements_total", "gpuaas_store_changes_total", "gpuaas_store_commits_total"] {
        let before = count(name).await;
        client.create_project(&CreateProject { name: name.replace('_', "-") }).await.expect("made");
        assert!(count(name).await > before, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_show_how_large_each_table_is() {
    let platform = Platform::start(0);
    let ready = platform.ready();
    let token = ready["token"].as_str().expect("the developer's token");
    eventually("no table is measured", async || {
        let shown = metrics(&platform, token).await;
        let text = shown.body.as_str().unwrap_or_default();
        let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        of("gpuaas_store_table_bytes{table=\"audit\"}").is_some_and(|bytes| bytes >= 4_096.0)
            && of("gpuaas_store_table_rows{table=\"tokens\"}").is_some_and(|rows| rows >= 1.0)
            && of("gpuaas_store_free_bytes").is_some()
            && of("gpuaas_audit_unsealed_seconds").is_some()
    })
    .await;
}

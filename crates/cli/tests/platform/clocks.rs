//! Nodes whose clocks are an hour off: the control plane reports the skew and refuses enrollment and renewal with `clock_skewed`; a node's
//! clock never determines the times of events or audit records.

use gpuaas_api_types::Event;
use gpuaas_client::{AuditQuery, Client, ClientError};
use gpuaas_model::Timestamp;
use gpuaas_trust::{ALPN_FETCH, NODE_CERTIFICATE_LIFE, NodeIdentity, NodeKey};
use gpuaas_wire::session::{ConnectionKind, Hello, RenewRequest, RenewResponse, path};
use http::Method;
use serde_json::json;

use crate::{
    fleet::Fleet,
    hostile_nodes::{Lies, Node, age_certificate, authority, hello, hours_ago, kept_certificate, send_request},
    world::eventually,
};

const HOUR_SECONDS: i64 = 3_600;
/// Age, in hours, before which a certificate is too young to be renewed.
const HALF_A_LIFE_HOURS: u64 = NODE_CERTIFICATE_LIFE.as_secs() / 2 / 3_600;

fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).expect("after 1970");
    Timestamp::from_millis(i64::try_from(since.as_millis()).expect("it fits"))
}

fn off_by(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp::from_millis(now().as_millis() + seconds * 1_000))
}

fn millis(time: &str) -> i64 {
    time.parse::<jiff::Timestamp>().expect("a time").as_millisecond()
}

/// Waits until one line of the agent's journal contains all of `words`.
async fn await_agent_log(fleet: &Fleet, node: u8, words: &[&str]) {
    let journal = fleet.node_file(node, ".sandbox/journal/gpuaas-agent.service.jsonl");
    eventually(&format!("the agent does not log {words:?}"), async || {
        let log_text = std::fs::read_to_string(&journal).unwrap_or_default();
        log_text.lines().any(|line| words.iter().all(|word| line.contains(word)))
    })
    .await;
}

/// Returns the node's clock skew events, oldest first, as skew in seconds and `within_limit`.
async fn skew_events(client: &Client, name: &str) -> Vec<(i64, bool)> {
    let events = client.list_events(None, 0).await.expect("listed").items;
    let of_clock = |event: &Event| event.kind == "node.clock_skew_changed" && event.data["name"] == name;
    let reported = |event: Event| {
        let skew = event.data["clock_skew_seconds"].as_i64().expect("a number");
        (skew, event.data["within_limit"].as_bool().expect("a boolean"))
    };
    events.into_iter().filter(of_clock).map(reported).collect()
}

fn is_about(skew: Option<i64>, seconds: i64) -> bool {
    skew.is_some_and(|skew| (skew - seconds).abs() < 60)
}

#[tokio::test(flavor = "multi_thread")]
async fn enrollment_with_a_skewed_clock_is_refused_with_the_skew() {
    let mut fleet = Fleet::start(0).await;
    let client = fleet.client();
    for (number, skew, words) in [
        // By the node's clock the control plane's certificate is valid, so it is the control plane that detects the skew.
        (1, HOUR_SECONDS, ["this node's clock is 3", " s ahead of", "clock_skewed"]),
        (2, -HOUR_SECONDS, ["this node's clock is at least 3", " s behind", "clock_skewed"]),
    ] {
        let name = format!("gpu-{number}");
        fleet.clock_skew_seconds = skew;
        fleet.start_node(&client, number).await;
        await_agent_log(&fleet, number, &words).await;
        assert_eq!(client.get_node(&name).await.expect("a node").state, "registered");
        // The token was not used up: once the clock is right, the same string enrolls the node.
        fleet.kill_init(number);
        fleet.clock_skew_seconds = 0;
        fleet.start_init(number);
        eventually("the node does not become active", async || {
            client.get_node(&name).await.is_ok_and(|node| node.state == "active" && node.clock_skew_seconds == Some(0))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_jump_of_an_enrolled_node_is_shown_and_tasks_are_refused() {
    let mut fleet = Fleet::start(2).await;
    let (client, began) = (fleet.client(), now());
    fleet.kill_init(1);
    fleet.kill_init(2);
    // Ahead: the channel connects, but every task has expired by the node's clock.
    fleet.clock_skew_seconds = HOUR_SECONDS;
    fleet.start_init(1);
    eventually("the skew is not shown", async || {
        client.get_node("gpu-1").await.is_ok_and(|node| is_about(node.clock_skew_seconds, HOUR_SECONDS))
    })
    .await;
    let ping = client.ping_node("gpu-1").await;
    let Err(ClientError::Problem(refused)) = ping else { panic!("expected a problem document, got {ping:?}") };
    assert_eq!(refused.code, "envelope_expired");
    assert!(refused.detail.contains("this node's clock is"), "{refused:?}");
    // Behind: by the node's clock the control plane's certificate is not valid yet.
    fleet.clock_skew_seconds = -HOUR_SECONDS;
    fleet.start_init(2);
    await_agent_log(&fleet, 2, &["this node's clock is at least 3", " s behind", "clock_skewed"]).await;
    // Both nodes take tasks again once their clocks are right.
    fleet.clock_skew_seconds = 0;
    for number in [1, 2] {
        fleet.kill_init(number);
        fleet.start_init(number);
        let name = format!("gpu-{number}");
        eventually("the node executes no task", async || {
            client.ping_node(&name).await.is_ok_and(|ping| ping.task.state == "succeeded")
        })
        .await;
    }
    let reported = skew_events(&client, "gpu-1").await;
    assert!(matches!(reported[..], [(ahead, false), (0, true)] if is_about(Some(ahead), HOUR_SECONDS)), "{reported:?}");
    // A node's clock affects neither the order nor the times of events and audit records.
    let mut last = began.as_millis() - 60_000;
    for event in client.list_events(None, 0).await.expect("listed").items {
        let at = millis(&event.at);
        assert!(at >= last && at <= now().as_millis(), "{event:?}");
        last = at;
    }
    for record in client.list_audit(&AuditQuery::default()).await.expect("listed").items {
        assert!(millis(&record.at) <= now().as_millis(), "{record:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn renewal_with_a_skewed_clock_is_refused_in_both_directions() {
    let fleet = Fleet::start(0).await;
    let client = fleet.client();
    let node = Node::enrolled(&client, "gpu-1").await;
    let fresh = NodeKey::generate().expect("a key");
    let csr = || fresh.request_pem().expect("a request");
    for (skew, way) in [(HOUR_SECONDS, "ahead of"), (-HOUR_SECONDS, "behind")] {
        let ask = serde_json::to_vec(&RenewRequest { csr: csr(), clock: off_by(skew) }).expect("JSON");
        let (status, refusal) =
            send_request(&mut node.fetch().await, Method::POST, path::RENEW, ask).await.expect("an answer");
        assert_eq!((status, &refusal["code"]), (403, &json!("clock_skewed")), "{refusal}");
        let message = refusal["message"].as_str().expect("a text");
        assert!(message.contains(way) && message.contains(" s "), "{message}");

        let hello = Hello { clock: off_by(skew), ..hello(ConnectionKind::Control) };
        let serving = node.serve(Lies { hello: Some(hello), ..Lies::default() }).await;
        eventually("the skew is not shown", async || {
            client.get_node("gpu-1").await.is_ok_and(|node| is_about(node.clock_skew_seconds, skew))
        })
        .await;
        serving.abort();
    }
    // With the clock right, the only obstacle is that the certificate is too young; an older certificate is renewed.
    let ask = serde_json::to_vec(&RenewRequest { csr: csr(), clock: off_by(0) }).expect("JSON");
    let young = send_request(&mut node.fetch().await, Method::POST, path::RENEW, ask.clone()).await.expect("an answer");
    assert_eq!((young.0, &young.1["code"]), (403, &json!("rate_limited")), "{}", young.1);
    let (control_plane, authority) = authority(&fleet).await;
    let identity = NodeIdentity { control_plane, node: node.id, epoch: 1 };
    let older = authority
        .issue_node(&node.key.request_pem().expect("a request"), &identity, hours_ago(HALF_A_LIFE_HOURS + 1))
        .expect("issued");
    let mut sender = node.fetch_with(&older).await.expect("connected");
    let (status, renewed) = send_request(&mut sender, Method::POST, path::RENEW, ask).await.expect("an answer");
    assert_eq!(status, 200, "{renewed}");
    let renewed: RenewResponse = serde_json::from_value(renewed).expect("a renewal");
    let shown = node.tls_config_with_key(&fresh, &renewed.certificate, ALPN_FETCH);
    assert!(renewed.certificate != older && node.fetch_by(shown).await.is_ok());
    let reported = skew_events(&client, "gpu-1").await;
    assert!(
        matches!(reported[..], [(ahead, false)] if is_about(Some(ahead), HOUR_SECONDS)),
        "not one report: {reported:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_renews_its_certificate_once_its_clock_is_right() {
    let mut fleet = Fleet::start(1).await;
    fleet.kill_init(1);
    // An agent renews after two thirds of a certificate's life; this one is older.
    let old = age_certificate(&fleet, 1, HALF_A_LIFE_HOURS * 5 / 3).await;
    fleet.clock_skew_seconds = HOUR_SECONDS;
    fleet.start_init(1);
    await_agent_log(&fleet, 1, &["could not renew the node's certificate", " s ahead of", "clock_skewed"]).await;
    assert_eq!(kept_certificate(&fleet, 1), Some(old.clone()));
    fleet.kill_init(1);
    fleet.clock_skew_seconds = 0;
    fleet.start_init(1);
    eventually("the agent does not renew", async || kept_certificate(&fleet, 1).is_some_and(|kept| kept != old)).await;
    assert_eq!(fleet.client().ping_node("gpu-1").await.expect("it serves").task.state, "succeeded");
}

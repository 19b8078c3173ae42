//! Databases that lost changes which the control plane had acknowledged: it makes no change on top of them until an operator decides.

use std::{
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use gpuaas_api_types::{EnrollNode, RegisterNode};
use gpuaas_client::{AuditQuery, Client};
use gpuaas_model::Code;
use gpuaas_wire::session::{ConnectionKind, Hello};

use crate::{
    fleet::Fleet,
    forged_rows::execute_sql,
    hostile_nodes::{Lies, Node, hello},
    raw::read_open,
    single_server::Start,
    world::eventually,
};

/// Starts the server. Its lifeline is already closed, so it stops as soon as it serves, or reports why it does not start.
const START: [&str; 5] = ["--lifeline", "--listen", "127.0.0.1:0", "--channel-listen", "127.0.0.1:0"];

fn assert_refused(output: &Output, code: &str) -> String {
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{printed}");
    assert!(!output.status.success() && printed.contains(code), "{printed}");
    printed
}

fn assert_done(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{printed}");
    printed
}

async fn register(client: &Client, name: &str) -> Result<String, gpuaas_client::ClientError> {
    let ask = RegisterNode { name: name.to_owned(), ..RegisterNode::default() };
    client.register_node(&ask).await.map(|registered| registered.enrollment.string)
}

async fn nodes(client: &Client) -> usize {
    client.list_nodes(None, None).await.expect("listed").items.len()
}

/// Copies the database with its write-ahead log.
fn copy_database(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for name in ["gpuaas.db", "gpuaas.db-wal"] {
        let _ = std::fs::remove_file(to.join(name));
        if from.join(name).exists() {
            std::fs::copy(from.join(name), to.join(name)).expect("copied");
        }
    }
    let _ = std::fs::remove_file(to.join("gpuaas.db-shm"));
}

fn mark(fleet: &Fleet) -> PathBuf {
    fleet.data_dir().join("history.mark")
}

/// Checks that the node takes tasks again once it has enrolled again.
async fn assert_node_works_again(fleet: &Fleet, client: &Client) {
    let string = client.issue_enrollment("gpu-1", &EnrollNode::default()).await.expect("issued").enrollment.string;
    fleet.enroll_again(1, &string);
    eventually("the node does not reconnect", async || {
        let listed = client.list_nodes(Some("active".into()), Some("connected".into())).await;
        listed.is_ok_and(|list| !list.items.is_empty())
    })
    .await;
    let ping = client.ping_node("gpu-1").await.expect("the node executes tasks");
    assert_eq!(ping.task.state, "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn start_with_lost_changes_is_refused_until_the_history_is_accepted() {
    let mut fleet = Fleet::start(1).await;
    let client = fleet.client();
    client.ping_node("gpu-1").await.expect("a task under the first fence");
    fleet.kill_server();
    // Moves the contents of the write-ahead log into the database.
    let database = rusqlite::Connection::open(fleet.data_dir().join("gpuaas.db")).expect("the store");
    database.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(())).expect("written back");
    drop(database);
    fleet.start_server();
    let before = nodes(&client).await;
    for number in 20..61 {
        register(&client, &format!("gpu-{number}")).await.expect("acknowledged");
    }
    assert_eq!(nodes(&client).await, before + 41);
    fleet.kill_server();
    let log = std::fs::File::options().write(true).open(fleet.data_dir().join("gpuaas.db-wal")).expect("a log");
    log.set_len(32).expect("cut behind its header");
    let printed = assert_refused(&fleet.server_verb(&START), "history_rolled_back");
    assert!(printed.contains("commits of this process are missing") && printed.contains("accept-history"), "{printed}");
    assert_refused(&fleet.server_verb(&["accept-history", "--yes", "--keep-credentials"]), "history_rolled_back");
    assert_refused(&fleet.server_verb(&START), "history_rolled_back");

    let printed = assert_done(&fleet.server_verb(&["accept-history", "--dry-run"]));
    assert!(
        printed.contains("Would accept the history") && printed.contains("commits of this process are missing"),
        "{printed}"
    );
    let printed = assert_done(&fleet.server_verb(&["accept-history", "--yes"]));
    assert!(printed.contains("gpu-1") && printed.contains("gpuaas node enroll"), "{printed}");
    assert_refused(&fleet.server_verb(&["accept-history", "--yes"]), "state_conflict");
    fleet.start_server();
    let ended = client.whoami().await.expect_err("every earlier token is revoked");
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
    fleet.exchange_one_time_admin().await;
    let client = fleet.client();
    assert_eq!(nodes(&client).await, before);
    assert_node_works_again(&fleet, &client).await;
    let audit = client.list_audit(&AuditQuery::default()).await.expect("listed").items;
    let accepted = audit.iter().find(|record| record.action == "server.history_accept").expect("audited");
    assert!(accepted.metadata["found"].as_str().is_some_and(|found| found.contains("missing")), "{accepted:?}");
    fleet.kill_server();
    fleet.start_server();
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_or_damaged_mark_is_refused_at_start_and_one_torn_slot_is_not() {
    let mut fleet = Fleet::start(0).await;
    register(&fleet.client(), "gpu-1").await.expect("acknowledged");
    fleet.kill_server();
    let whole = std::fs::read(mark(&fleet)).expect("a mark");
    std::fs::remove_file(mark(&fleet)).expect("removed");
    assert_refused(&fleet.server_verb(&START), "history_unverified");
    let copied = fleet.path("copied");
    std::fs::write(mark(&fleet), &whole).expect("put back");
    for damaged in [&whole[..whole.len() / 2], &[], &vec![0; whole.len()]] {
        std::fs::write(mark(&fleet), damaged).expect("written");
        assert_refused(&fleet.server_verb(&START), "history_unverified");
    }
    // A copy of the database alone, in another data directory: nothing there shows how old it is.
    copy_database(&fleet.data_dir(), &copied);
    std::fs::copy(fleet.data_dir().join("sealing.key"), copied.join("sealing.key")).expect("copied");
    std::fs::write(mark(&fleet), &whole).expect("put back");
    let elsewhere = Fleet::start(0).await;
    let elsewhere_started = tokio::task::block_in_place(|| Start::default().on(&copied));
    assert_eq!(elsewhere_started.err().expect("refused").code, "history_unverified");
    std::fs::copy(mark(&elsewhere), mark(&fleet)).expect("another platform's");
    assert_refused(&fleet.server_verb(&START), "history_unverified");

    let printed = assert_done(&fleet.server_verb(&["accept-history", "--yes", "--keep-credentials"]));
    assert!(printed.contains("nothing was revoked"), "{printed}");
    fleet.start_server();
    assert!(fleet.client().whoami().await.is_ok(), "the token is refused after accept-history --keep-credentials");
    register(&fleet.client(), "gpu-2").await.expect("changes are accepted");
    fleet.kill_server();
    let mut torn = std::fs::read(mark(&fleet)).expect("a mark");
    torn[20..60].fill(b'x');
    std::fs::write(mark(&fleet), torn).expect("one slot of two");
    fleet.start_server();
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_certificate_stops_changes_but_not_reads() {
    let mut fleet = Fleet::start(1).await;
    let client = fleet.client();
    // A certificate, dated in whole seconds, is evidence only if its date is after the first start.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let lost = fleet.path("before");
    fleet.kill_server();
    copy_database(&fleet.data_dir(), &lost);
    fleet.start_server();
    let later = Node::enrolled(&client, "gpu-2").await;
    fleet.kill_server();
    copy_database(&lost, &fleet.data_dir());
    std::fs::remove_file(mark(&fleet)).expect("removed");
    // An operator accepts a database that is in fact an older one.
    assert_done(&fleet.server_verb(&["accept-history", "--yes", "--keep-credentials"]));
    fleet.start_server();
    register(&client, "gpu-3").await.expect("no evidence against the history yet");

    assert!(!later.is_accepted(&later.certificate).await);
    let refused_change = register(&client, "gpu-4").await.expect_err("changes are stopped");
    assert_eq!(refused_change.code(), Code::HistoryRolledBack, "{refused_change}");
    println!("{refused_change}");
    let pinged = client.ping_node("gpu-1").await.expect_err("no task is signed");
    assert_eq!(pinged.code(), Code::HistoryRolledBack, "{pinged}");
    assert_eq!(nodes(&client).await, 2, "reads work");
    let ready = read_open(&fleet.ready(), "/readyz?verbose").await;
    let printed = ready.body.as_str().expect("a text");
    assert!(ready.status == 503 && printed.contains("[-]history failed"), "{printed}");
    println!("{printed}");
    fleet.kill_server();
    assert_refused(&fleet.server_verb(&START), "history_rolled_back");
    assert_done(&fleet.server_verb(&["accept-history", "--yes"]));
    fleet.start_server();
    fleet.exchange_one_time_admin().await;
    let client = fleet.client();
    assert!(!later.is_accepted(&later.certificate).await, "the unknown certificate is accepted");
    register(&client, "gpu-4").await.expect("the accepted history stays accepted");
    assert_node_works_again(&fleet, &client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rolled_back_rows_stop_the_changes_of_a_running_control_plane() {
    let mut fleet = Fleet::start(1).await;
    let client = fleet.client();
    register(&client, "gpu-2").await.expect("acknowledged");
    execute_sql(&fleet, "update streams set last_sequence = 1 where stream like 'history/%'").await;
    for name in ["gpu-3", "gpu-4"] {
        let refused = register(&client, name).await.expect_err("changes are stopped");
        assert_eq!(refused.code(), Code::HistoryRolledBack, "{refused}");
    }
    assert_eq!(nodes(&client).await, 2);
    fleet.kill_server();
    assert_refused(&fleet.server_verb(&START), "history_rolled_back");
    assert_done(&fleet.server_verb(&["accept-history", "--yes"]));
    fleet.start_server();
    fleet.exchange_one_time_admin().await;
    assert_node_works_again(&fleet, &fleet.client()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_claims_a_later_history_is_refused_alone() {
    let fleet = Fleet::start(1).await;
    let client = fleet.client();
    let node = Node::enrolled(&client, "gpu-2").await;
    let serving = node.serve(Lies::default()).await;
    let active = async || client.get_node("gpu-2").await.is_ok_and(|node| node.connectivity == "connected");
    eventually("it does not connect", active).await;
    client.ping_node("gpu-2").await.expect("a task under the first fence");
    serving.abort();
    eventually("it stays connected", async || !active().await).await;
    let honest = || hello(ConnectionKind::Control);
    for ahead in [Hello { fence: u64::MAX, ..honest() }, Hello { key_set_version: u64::MAX, ..honest() }] {
        let serving = node.serve(Lies { hello: Some(ahead), ..Lies::default() }).await;
        let ended = tokio::time::timeout(crate::world::WAIT_MAX, serving);
        ended.await.expect("the node is disconnected").expect("no panic");
        assert!(!active().await);
    }
    let log = std::fs::read_to_string(fleet.path("server-0.log")).expect("a log");
    let line = log.lines().find(|line| line.contains("gpu-2 reports")).expect("a log line about gpu-2");
    println!("{line}");
    register(&client, "gpu-3").await.expect("other nodes work");
    assert_eq!(client.ping_node("gpu-1").await.expect("an answer").task.state, "succeeded");
    let _serving = node.serve(Lies::default()).await;
    eventually("the node is not accepted with an honest hello", active).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_control_plane_keeps_all_acknowledged_changes() {
    let mut fleet = Fleet::start(0).await;
    let mut acknowledged = Vec::new();
    for round in 0..12_u64 {
        let client = fleet.client();
        let hammering: Vec<_> = (0..4)
            .map(|task| {
                let client = client.clone();
                tokio::spawn(async move {
                    let mut done = Vec::new();
                    for number in 0.. {
                        let name = format!("gpu-{round}-{task}-{number}");
                        if register(&client, &name).await.is_err() {
                            return done;
                        }
                        done.push(name);
                    }
                    done
                })
            })
            .collect();
        // Vary the moment of the kill from round to round.
        tokio::time::sleep(Duration::from_micros(40_000 + round * 7_919)).await;
        fleet.kill_server();
        for hammer in hammering {
            acknowledged.extend(hammer.await.expect("no panic"));
        }
        fleet.start_server();
    }
    assert!(acknowledged.len() > 12, "{} changes", acknowledged.len());
    let client = fleet.client();
    for name in &acknowledged {
        client.get_node(name).await.unwrap_or_else(|error| panic!("{name} was acknowledged: {error}"));
    }
    println!("    {} changes over 12 kills, and none was lost", acknowledged.len());
}

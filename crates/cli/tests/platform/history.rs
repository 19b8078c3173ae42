//! Databases that lost changes which the control plane had acknowledged: it makes no change on top of them until an operator decides.

use std::{
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use gpuaas_api_types::{EnrollNode, RegisterNode};
use gpuaas_client::Client;
use gpuaas_model::Code;
use gpuaas_wire::session::{ConnectionKind, Hello};

use crate::{
    fleet::Fleet,
    forged_rows::write,
    hostile_nodes::{Lies, Node, hello},
    lone::Start,
    raw::read_open,
    world::eventually,
};

/// Starts the server. Its lifeline is already closed, so it stops as soon as it serves, or reports why it does not start.
const START: [&str; 5] = ["--lifeline", "--listen", "127.0.0.1:0", "--channel-listen", "127.0.0.1:0"];

fn refused(output: &Output, code: &str) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{said}");
    assert!(!output.status.success() && said.contains(code), "{said}");
    said
}

fn done(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{said}");
    said
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
async fn obeys_again(fleet: &Fleet, client: &Client) {
    let string = client.issue_enrollment("gpu-1", &EnrollNode::default()).await.expect("issued").enrollment.string;
    fleet.enroll_again(1, &string);
    eventually("the node does not come back", async || {
        let listed = client.list_nodes(Some("active".into()), Some("connected".into())).await;
        listed.is_ok_and(|list| !list.items.is_empty())
    })
    .await;
    let ping = client.ping_node("gpu-1").await.expect("the node takes tasks as before");
    assert_eq!(ping.task.state, "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_log_that_loses_acknowledged_changes_is_refused_at_start_until_it_is_accepted() {
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
    let said = refused(&fleet.server_verb(&START), "history_went_back");
    assert!(said.contains("commits of this process are missing") && said.contains("accept-history"), "{said}");
    refused(&fleet.server_verb(&["accept-history", "--as-it-is"]), "history_went_back");
    refused(&fleet.server_verb(&START), "history_went_back");

    let said = done(&fleet.server_verb(&["accept-history"]));
    assert!(said.contains("gpu-1") && said.contains("gpuaas node enroll"), "{said}");
    refused(&fleet.server_verb(&["accept-history"]), "state_conflict");
    fleet.start_server();
    let ended = client.whoami().await.expect_err("every token of the time before has ended");
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
    fleet.exchange_one_time_admin().await;
    let client = fleet.client();
    assert_eq!(nodes(&client).await, before);
    obeys_again(&fleet, &client).await;
    let audit = client.list_audit(None, None, None, 0).await.expect("listed").items;
    let accepted = audit.iter().find(|record| record.action == "server.history_accept").expect("audited");
    assert!(accepted.metadata["found"].as_str().is_some_and(|found| found.contains("missing")), "{accepted:?}");
    fleet.kill_server();
    fleet.start_server();
}

#[tokio::test(flavor = "multi_thread")]
async fn mark_that_is_missing_cut_overwritten_or_anothers_stops_the_start_and_a_torn_one_does_not() {
    let mut fleet = Fleet::start(0).await;
    register(&fleet.client(), "gpu-1").await.expect("acknowledged");
    fleet.kill_server();
    let whole = std::fs::read(mark(&fleet)).expect("a mark");
    std::fs::remove_file(mark(&fleet)).expect("removed");
    refused(&fleet.server_verb(&START), "history_unproven");
    let copied = fleet.path("copied");
    std::fs::write(mark(&fleet), &whole).expect("put back");
    for damaged in [&whole[..whole.len() / 2], &[], &vec![0; whole.len()]] {
        std::fs::write(mark(&fleet), damaged).expect("written");
        refused(&fleet.server_verb(&START), "history_unproven");
    }
    // A copy of the database alone, in another data directory: nothing there shows how old it is.
    copy_database(&fleet.data_dir(), &copied);
    std::fs::copy(fleet.data_dir().join("sealing.key"), copied.join("sealing.key")).expect("copied");
    std::fs::write(mark(&fleet), &whole).expect("put back");
    let elsewhere = Fleet::start(0).await;
    let elsewhere_started = tokio::task::block_in_place(|| Start::default().on(&copied));
    assert_eq!(elsewhere_started.err().expect("refused").code, "history_unproven");
    std::fs::copy(mark(&elsewhere), mark(&fleet)).expect("another platform's");
    refused(&fleet.server_verb(&START), "history_unproven");

    let said = done(&fleet.server_verb(&["accept-history", "--as-it-is"]));
    assert!(said.contains("nothing was revoked"), "{said}");
    fleet.start_server();
    assert!(fleet.client().whoami().await.is_ok(), "an operator vouched that nothing is missing");
    register(&fleet.client(), "gpu-2").await.expect("changes are taken");
    fleet.kill_server();
    let mut torn = std::fs::read(mark(&fleet)).expect("a mark");
    torn[20..60].fill(b'x');
    std::fs::write(mark(&fleet), torn).expect("one slot of two");
    fleet.start_server();
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_that_the_database_does_not_know_stops_all_changes_and_reads_go_on() {
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
    done(&fleet.server_verb(&["accept-history", "--as-it-is"]));
    fleet.start_server();
    register(&client, "gpu-3").await.expect("nobody knows better yet");

    assert!(!later.is_let_in(&later.certificate).await);
    let refused_change = register(&client, "gpu-4").await.expect_err("changes are stopped");
    assert_eq!(refused_change.code(), Code::HistoryWentBack, "{refused_change}");
    println!("{refused_change}");
    let pinged = client.ping_node("gpu-1").await.expect_err("no task is signed");
    assert_eq!(pinged.code(), Code::HistoryWentBack, "{pinged}");
    assert_eq!(nodes(&client).await, 2, "reads go on");
    let ready = read_open(&fleet.ready(), "/readyz?verbose").await;
    let said = ready.body.as_str().expect("a text");
    assert!(ready.status == 503 && said.contains("[-]history failed"), "{said}");
    println!("{said}");
    fleet.kill_server();
    refused(&fleet.server_verb(&START), "history_went_back");
    done(&fleet.server_verb(&["accept-history"]));
    fleet.start_server();
    fleet.exchange_one_time_admin().await;
    let client = fleet.client();
    assert!(!later.is_let_in(&later.certificate).await, "it is not known any more");
    register(&client, "gpu-4").await.expect("what was decided is not asked again");
    obeys_again(&fleet, &client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_go_back_under_a_running_control_plane_stop_its_changes() {
    let mut fleet = Fleet::start(1).await;
    let client = fleet.client();
    register(&client, "gpu-2").await.expect("acknowledged");
    write(&fleet, "update streams set last_sequence = 1 where stream like 'history/%'").await;
    for name in ["gpu-3", "gpu-4"] {
        let refused = register(&client, name).await.expect_err("changes are stopped");
        assert_eq!(refused.code(), Code::HistoryWentBack, "{refused}");
    }
    assert_eq!(nodes(&client).await, 2);
    fleet.kill_server();
    refused(&fleet.server_verb(&START), "history_went_back");
    done(&fleet.server_verb(&["accept-history"]));
    fleet.start_server();
    fleet.exchange_one_time_admin().await;
    obeys_again(&fleet, &fleet.client()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_says_that_it_has_seen_more_is_set_aside_alone() {
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
        let ended = tokio::time::timeout(crate::world::PATIENCE, serving);
        ended.await.expect("it is turned away").expect("no panic");
        assert!(!active().await);
    }
    let log = std::fs::read_to_string(fleet.path("server-0.log")).expect("a log");
    let line = log.lines().find(|line| line.contains("gpu-2 says that it has seen")).expect("it is told");
    println!("{line}");
    register(&client, "gpu-3").await.expect("the others go on");
    assert_eq!(client.ping_node("gpu-1").await.expect("obeys").task.state, "succeeded");
    let _serving = node.serve(Lies::default()).await;
    eventually("an honest word does not let it in", active).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn control_plane_killed_at_any_moment_around_its_commits_starts_again_with_all_that_it_acknowledged() {
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
    println!("    {} changes over 12 kills, and none was missed", acknowledged.len());
}

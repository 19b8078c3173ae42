//! Floods from nodes: endless journals and endless progress.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use gpuaas_api_types::CreateProject;
use gpuaas_client::{Client, LogOptions};
use gpuaas_model::{TaskType, Timestamp};
use gpuaas_wire::{
    session::{JOURNAL_BYTES_MAX, JournalLine, TaskLine, path},
    task::TaskProgress,
};
use hyper::body::Bytes;

use super::{
    lie::{Lies, lines, pieces, unfinished},
    node::Node,
};
use crate::{
    fleet::Fleet,
    restarts::{prepare_deployment, until_running},
    world::{CLUSTERS, WAIT_MAX, eventually, token_request},
};

/// One GiB of journal.
const FLOOD_BYTES: u64 = 1 << 30;
/// Most that the control plane's memory may grow, in bytes, while it forwards the journal.
const GROWTH_BYTES_MAX: u64 = 96 << 20;

/// Starts a deployment on two lying nodes and returns once its first task runs.
async fn deploying(client: &Client, lies: [Lies; 2]) -> [tokio::task::JoinHandle<()>; 2] {
    let nodes = [Node::enrolled(client, "gpu-1").await, Node::enrolled(client, "gpu-2").await];
    let [one, other] = lies;
    let serving = [nodes[0].serve(one).await, nodes[1].serve(other).await];
    eventually("the nodes do not become active", async || {
        client.list_nodes(Some("active".into()), None).await.is_ok_and(|list| list.items.len() == 2)
    })
    .await;
    let deploy = prepare_deployment(client).await;
    let operation = client.deploy_workload(&deploy).await.expect("accepted").operation.id;
    until_running(client, &operation, "server-1/preflight").await;
    serving
}

/// Returns an answer of journal lines in pieces of about 1 MiB; `handed_over` counts the bytes handed to the connection.
fn journal(handed_over: Arc<AtomicU64>) -> impl Fn() -> http::Response<super::lie::Body> + Send + Sync {
    let line = JournalLine { at: Timestamp::from_millis(1), text: "x".repeat(4_000) };
    let mut line = serde_json::to_vec(&line).expect("JSON");
    line.push(b'\n');
    let piece = Bytes::from(line.repeat(256));
    move || {
        let (piece, handed_over) = (piece.clone(), handed_over.clone());
        let count = FLOOD_BYTES / piece.len() as u64 + 1;
        pieces(stream::iter(0..count).map(move |_| {
            handed_over.fetch_add(piece.len() as u64, Ordering::Relaxed);
            piece.clone()
        }))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gigabyte_journal_is_cut_and_memory_stays_bounded() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let fleet = Fleet::start(0).await;
    let client = fleet.client();
    let handed_over = Arc::new(AtomicU64::new(0));
    let lies = Lies::default().on(path::JOURNAL, journal(handed_over.clone()));
    let lies = [lies, Lies::default()].map(|lies| lies.on_task(TaskType::Preflight, |_| unfinished()));
    let _serving = deploying(&client, lies).await;
    let before = fleet.memory(0);

    let ask = LogOptions { tail: Some(10), follow: true, ..LogOptions::default() };
    let read = async || client.read_logs(Some("research".into()), "train", "server-1", &ask).await.expect("a journal");
    let (mut bytes, mut last) = (0, String::new());
    let mut whole = Box::pin(read().await);
    while let Some(line) = whole.next().await {
        last = line.expect("a line").text;
        bytes += last.len();
    }
    assert!(bytes <= JOURNAL_BYTES_MAX + last.len() && bytes > JOURNAL_BYTES_MAX / 2, "{bytes}");
    assert!(last.starts_with("[cut: "), "{last}");

    // Readers that stop after one line: the control plane takes no more from the node than its clients read.
    handed_over.store(0, Ordering::Relaxed);
    let mut stopped = Vec::new();
    for _ in 0..8 {
        let mut one = Box::pin(read().await);
        one.next().await.expect("a line").expect("a line");
        stopped.push(one);
    }
    let mut seen = 0;
    eventually("the node is read although no client reads", async || {
        tokio::time::sleep(Duration::from_millis(500)).await;
        std::mem::replace(&mut seen, handed_over.load(Ordering::Relaxed)) == handed_over.load(Ordering::Relaxed)
    })
    .await;
    let grown = fleet.memory(0).saturating_sub(before);
    println!("the control plane had {} MiB at most before, and {} MiB with it", before >> 20, fleet.memory(0) >> 20);
    assert!(grown < GROWTH_BYTES_MAX, "the control plane grew by {} MiB", grown >> 20);
    client.create_project(&CreateProject { name: "other".into() }).await.expect("the control plane serves");
}

#[tokio::test(flavor = "multi_thread")]
async fn followed_journal_ends_only_for_the_revoked_token() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let fleet = Fleet::start(0).await;
    let client = fleet.client();
    let line = || JournalLine { at: Timestamp::from_millis(1), text: "the only line".to_owned() };
    let quiet = move || lines(stream::iter([line()]).chain(stream::pending()));
    let lies = [Lies::default().on(path::JOURNAL, quiet), Lies::default()];
    let _serving = deploying(&client, lies.map(|lies| lies.on_task(TaskType::Preflight, |_| unfinished()))).await;
    let ask = LogOptions { follow: true, ..LogOptions::default() };
    let mut journals = Vec::new();
    for _ in 0..2 {
        let viewer = token_request("viewer", "viewer", Some("research"));
        let viewer = client.create_token(&viewer).await.expect("made");
        let journal = fleet.client_with(0, &viewer.secret).read_logs(None, "train", "server-1", &ask).await;
        let mut journal = Box::pin(journal.expect("a journal"));
        assert_eq!(journal.next().await.expect("a line").expect("a line").text, "the only line");
        journals.push((viewer.token.id, journal));
    }
    let [(revoked, mut ended), (_, mut other)] = <[_; 2]>::try_from(journals).ok().expect("two");
    client.revoke_token(&revoked).await.expect("revoked");
    let end = tokio::time::timeout(Duration::from_secs(20), async {
        while ended.next().await.is_some_and(|line| line.is_ok()) {}
    });
    end.await.expect("the journal of the revoked token does not end");
    assert!(tokio::time::timeout(Duration::from_secs(2), other.next()).await.is_err(), "the other journal ended too");
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_flood_blocks_neither_writer_nor_events() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let fleet = Fleet::start(0).await;
    let client = fleet.client();
    let progress = |number: u64| {
        let text = format!("{number} {}", "x".repeat(2_000));
        TaskLine::Progress(TaskProgress { text, percent: None })
    };
    let accepted = || stream::iter([TaskLine::Accepted]);
    let flooding = move |_| lines(accepted().chain(stream::iter(0_u64..).map(progress)));
    // Slow enough for each line to be read on its own, and far more frequent than rows should change.
    let dripping = move |_| {
        lines(accepted().chain(stream::iter(0_u64..).then(move |number| async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            progress(number)
        })))
    };
    let lies = [
        Lies::default().on_task(TaskType::Preflight, flooding),
        Lies::default().on_task(TaskType::Preflight, dripping),
    ];
    let _serving = deploying(&client, lies).await;
    let events = async || {
        let mut after = 0;
        let mut count = 0;
        loop {
            let page = client.list_events(Some("research".into()), after).await.expect("events").items;
            let Some(last) = page.last() else { return count };
            (after, count) = (last.sequence, count + page.len());
        }
    };
    let (began, reported) = (Instant::now(), events().await);
    let mut slowest = Duration::ZERO;
    for number in 0..20 {
        let asked = Instant::now();
        client.create_project(&CreateProject { name: format!("other-{number}") }).await.expect("made");
        slowest = slowest.max(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (reported, took) = (events().await - reported, began.elapsed());
    println!("{reported} events in {took:?} of the flood; the slowest of 20 changes took {slowest:?}");
    assert!(reported as u128 <= 2 * (took.as_millis() / 250 + 4), "{reported} events in {took:?}");
    assert!(slowest < WAIT_MAX, "{slowest:?}");
    let operation =
        client.list_operations(Some("research".into()), None, None).await.expect("operations").items.remove(0);
    let steps = client.get_operation(&operation.id).await.expect("an operation").steps;
    let detail = steps.iter().find_map(|step| step.detail.clone()).expect("a step with a detail");
    assert!(detail.len() <= 512 && detail.ends_with("[cut]"), "{detail}");
}

//! Measures the engine under load: real engine, planner, app and store; simulated nodes and clusters that answer after a fixed time.
//! Prints figures; asserts only that the work completes.

mod fleet;
mod ports;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fleet::{Fleet, Nodes};
use gpuaas_postgres_server::Server;

/// Number of open operations when the control plane restarts.
const OPEN: usize = 1_000;
/// Number of concurrent deployments.
const CONCURRENT_DEPLOYMENTS: usize = 20;
/// Duration of a task on a simulated node.
const TASK: Duration = Duration::from_millis(20);
/// Runs per figure; the result is their median.
const RUNS: usize = 9;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let is_requested = |what: &str| std::env::args().any(|argument| argument == what);
    // Measures nothing without one of these arguments, so `cargo test --benches` stays fast.
    if is_requested("restart") {
        runtime.block_on(restart());
    }
    if is_requested("replicas") {
        runtime.block_on(replicas());
    }
    if is_requested("grow") {
        let arguments: Vec<String> = std::env::args().skip_while(|argument| argument != "grow").collect();
        let number = |at: usize| arguments[at].parse().expect("a number");
        runtime.block_on(grow(&arguments[1], number(2), number(3)));
    }
}

/// Creates `nodes` nodes with allocations, then deploys to one node each and decommissions until `operations` operations have succeeded.
/// `nodes` must be at least half of `operations`. Keeps the database for other measurements.
async fn grow(url: &str, nodes: usize, operations: usize) {
    let fleet = Box::pin(Fleet::start(url, Arc::new(Nodes::new(Duration::ZERO)), 1, nodes)).await;
    let workloads = operations / 2;
    for number in 0..workloads {
        fleet.deploy(number, 1).await;
    }
    fleet.until_all_succeeded(workloads).await;
    fleet.decommission_all().await;
    fleet.until_all_succeeded(workloads * 2).await;
    fleet.stop().await;
}

async fn restart() {
    let server = tokio::task::block_in_place(|| Server::start(&[], &[]));
    let folder = tempfile::tempdir().expect("a folder");
    let sqlite = format!("sqlite://{}", folder.path().join("store.db").display());
    println!("restart with {OPEN} open operations");
    for (what, url) in [("SQLite", sqlite), ("PostgreSQL", server.fresh_database().await)] {
        let nodes = Arc::new(Nodes::new(TASK));
        let fleet = Box::pin(Fleet::start(&url, nodes.clone(), 1, OPEN)).await;
        nodes.hold(true);
        for number in 0..OPEN {
            fleet.deploy(number, 1).await;
        }
        nodes.until_dispatched(OPEN).await;
        let predecessor = fleet.stop().await;
        nodes.clear_dispatched();
        let began = Instant::now();
        let again = Fleet::restart(&url, nodes.clone(), predecessor).await;
        let open = began.elapsed();
        nodes.until_dispatched(1).await;
        let first = began.elapsed();
        nodes.until_dispatched(OPEN).await;
        let all = began.elapsed();
        println!(
            "  {what:<12} store open {} · first task {} (target 1000 ms) · all tasks {}",
            ms(open),
            ms(first),
            ms(all)
        );
        again.stop().await;
    }
}

async fn replicas() {
    let server = tokio::task::block_in_place(|| Server::start(&[], &[]));
    println!("{CONCURRENT_DEPLOYMENTS} deployments at once, each to two simulated nodes, on PostgreSQL");
    let mut took = [1, 2].map(|replicas| (replicas, Vec::new()));
    // Alternates between the two, so that a machine that slows down affects both equally.
    for _ in 0..RUNS {
        for (replicas, took) in &mut took {
            let nodes = Arc::new(Nodes::new(TASK));
            let fleet =
                Box::pin(Fleet::start(&server.fresh_database().await, nodes, *replicas, CONCURRENT_DEPLOYMENTS * 2))
                    .await;
            let began = Instant::now();
            for number in 0..CONCURRENT_DEPLOYMENTS {
                fleet.deploy(number, 2).await;
            }
            fleet.until_all_succeeded(CONCURRENT_DEPLOYMENTS).await;
            took.push(began.elapsed());
            fleet.stop().await;
        }
    }
    for (replicas, mut took) in took {
        let all: Vec<String> = took.iter().map(|took| ms(*took)).collect();
        took.sort_unstable();
        println!("  {replicas} replica(s)   {}   (of {})", ms(took[RUNS / 2]), all.join(", "));
    }
}

fn ms(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

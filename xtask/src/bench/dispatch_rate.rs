//! `cargo xtask bench dispatch-rate`: rate of no-op tasks from a control plane to its nodes and back.

use std::time::{Duration, Instant};

use camino::Utf8Path;
use futures::future::try_join_all;
use gpuaas_client::Client;

use super::{
    Chosen,
    control_plane::{ControlPlane, Place, SETTINGS},
    figures::{self, Figure, percentile_ms},
    syscalls,
};
use crate::demo::Store;

/// Options of `bench dispatch-rate`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of sandbox nodes.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=200))]
    nodes: u8,
    /// Seconds per measurement.
    #[arg(long, default_value_t = 10, value_name = "N")]
    seconds: u64,
    /// Cargo profile of the measured programs.
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Also count syscalls per task with strace, which slows the control plane down.
    #[arg(long)]
    strace: bool,
    #[command(flatten)]
    chosen: Chosen,
}

/// Numbers of concurrent requests.
const CONCURRENCIES: [usize; 3] = [1, 10, 100];
/// Number of concurrent requests and length of the measurement that counts syscalls.
const TRACED: (usize, Duration) = (10, Duration::from_secs(5));

/// Runs the benchmark.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let programs = options.chosen.programs(&options.profile)?;
    let (mut columns, mut traces) = (Vec::new(), Vec::new());
    for store in options.chosen.stores() {
        let (figures, trace) = super::block_on(measured(options, &programs, store))?;
        columns.push((store, figures));
        traces.extend(trace.map(|trace| (store, trace)));
    }
    println!(
        "POST /api/v1/nodes/NODE/ping, HTTP/1.1 over TLS 1.3, one persistent connection per concurrent request. A ping is not an operation: it records"
    );
    println!(
        "and signs a no-op task with its audit record in one change, sends it over the node channel, waits for the node's ledger and result, and"
    );
    println!("records the end in a second change. {SETTINGS}");
    figures::side_by_side(
        &format!("dispatch-rate, profile {}, {} nodes, {} s each", options.profile, options.nodes, options.seconds),
        &columns,
    );
    for (store, trace) in traces {
        println!("syscalls of the server per task, {}", figures::name(store));
        trace.print();
    }
    Ok(())
}

async fn measured(
    options: &Options,
    programs: &Utf8Path,
    store: Store,
) -> anyhow::Result<(Vec<Figure>, Option<syscalls::Trace>)> {
    let place = Place::fresh(store).await?;
    let plane = ControlPlane::start(programs, &place, options.nodes).await?;
    let mut figures = vec![Figure::new("gpuaas dev, all nodes ready", "s", plane.ready_after.as_secs_f64())];
    for concurrency in CONCURRENCIES {
        eprintln!("    {}: {concurrency} at once", figures::name(store));
        let senders = senders(&plane, concurrency).await?;
        let before = plane.begin().await?;
        let mut done = pings(senders, Duration::from_secs(options.seconds)).await?;
        let used = plane.used_since(before).await?;
        let label = format!("{concurrency} at once");
        let of_run = [
            Figure::new("tasks", "/s", done.took.len() as f64 / done.elapsed.as_secs_f64()),
            Figure::new("p50", "ms", percentile_ms(&mut done.took, 50)),
            Figure::new("p99", "ms", percentile_ms(&mut done.took, 99)),
        ];
        let each = used.figures(done.took.len()).into_iter().map(|figure| figure.of("per task"));
        figures.extend(of_run.into_iter().chain(each).map(|figure| figure.of(&label)));
    }
    let trace = if options.strace { traced(&plane).await? } else { None };
    plane.stop();
    Ok((figures, trace))
}

/// One of several concurrent senders of pings, each with its own nodes as long as there are enough.
struct Sender {
    client: Client,
    nodes: Vec<String>,
}

/// Returns senders whose connections are already open.
async fn senders(plane: &ControlPlane, concurrency: usize) -> anyhow::Result<Vec<Sender>> {
    let nodes = plane.nodes();
    let mut senders = Vec::new();
    for number in 0..concurrency {
        let own: Vec<String> = nodes.iter().skip(number % nodes.len()).step_by(concurrency).cloned().collect();
        let sender = Sender { client: plane.client()?, nodes: own };
        sender.client.whoami().await?;
        senders.push(sender);
    }
    Ok(senders)
}

/// Result of a measurement.
struct Done {
    took: Vec<Duration>,
    elapsed: Duration,
}

async fn pings(senders: Vec<Sender>, time: Duration) -> anyhow::Result<Done> {
    let began = Instant::now();
    let sending = senders.into_iter().map(|sender| tokio::spawn(sender.until(began + time)));
    let all = try_join_all(sending).await?.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Done { took: all.concat(), elapsed: began.elapsed() })
}

impl Sender {
    async fn until(self, deadline: Instant) -> anyhow::Result<Vec<Duration>> {
        let mut took = Vec::new();
        for node in self.nodes.iter().cycle() {
            let began = Instant::now();
            if began >= deadline {
                break;
            }
            self.client.ping_node(node).await?;
            took.push(began.elapsed());
        }
        Ok(took)
    }
}

async fn traced(plane: &ControlPlane) -> anyhow::Result<Option<syscalls::Trace>> {
    let (concurrency, time) = TRACED;
    let senders = senders(plane, concurrency).await?;
    let Some(tracer) = syscalls::Tracer::attach(plane.pid()?).await? else { return Ok(None) };
    let done = pings(senders, time).await?;
    tracer.finish(done.took.len()).map(Some)
}

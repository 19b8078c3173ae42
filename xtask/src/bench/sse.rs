//! `cargo xtask bench sse`: cost of event stream subscribers, and delivery time.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use camino::Utf8Path;
use futures::StreamExt;
use gpuaas_api_types::{CreateProject, CreateToken};
use gpuaas_client::Client;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{
    Chosen,
    control_plane::{ControlPlane, Place, SETTINGS},
    figures::{self, Figure, percentile_ms},
    usage,
};
use crate::demo::Store;

/// Options of `bench sse`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of subscribers of the platform's events. The limit per address is 256 connections.
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=240))]
    subscribers: u16,
    /// Number of consecutive writes with, and without, subscribers.
    #[arg(long, default_value_t = 200, value_name = "N")]
    writes: usize,
    /// Cargo profile of the measured programs.
    #[arg(long, default_value = "dist")]
    profile: String,
    #[command(flatten)]
    chosen: Chosen,
}

/// Streams per token; stays below the limit.
const PER_TOKEN: usize = 50;
/// The event that a write produces.
const EVENT: &str = "project.created";
/// Longest wait for an event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Wait before reading memory, until it has settled.
const SETTLE: Duration = Duration::from_secs(2);

/// Runs the benchmark.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let programs = options.chosen.programs(&options.profile)?;
    let mut columns = Vec::new();
    for store in options.chosen.stores() {
        columns.push((store, super::block_on(measured(options, &programs, store))?));
    }
    println!(
        "A write is POST /api/v1/projects, which commits one event `{EVENT}`; the next is sent when every subscriber has received it. Each subscriber"
    );
    println!("has its own connection. {SETTINGS}");
    figures::side_by_side(
        &format!("sse, profile {}, {} subscribers, {} writes", options.profile, options.subscribers, options.writes),
        &columns,
    );
    Ok(())
}

async fn measured(options: &Options, programs: &Utf8Path, store: Store) -> anyhow::Result<Vec<Figure>> {
    let place = Place::fresh(store).await?;
    let plane = ControlPlane::start(programs, &place, 0).await?;
    let client = plane.client()?;
    let (sender, mut arrivals) = unbounded_channel();
    // Warm up connections, caches and the program's pages.
    written(&client, "warm", 20, (0, &mut arrivals)).await?;
    let mut figures = Vec::new();
    let without = used(&plane, &client, ("alone", options.writes), (0, &mut arrivals)).await?;
    figures.extend(without.into_iter().map(|figure| figure.of("0 subscribers")));

    let count = usize::from(options.subscribers);
    let before = resident(&plane).await?;
    let tasks = subscribe(&plane, &client, count, &sender).await?;
    let after = resident(&plane).await?;
    let followed = used(&plane, &client, ("followed", options.writes), (count, &mut arrivals)).await?;
    let in_use = resident(&plane).await?;
    figures.extend(followed.into_iter().map(|figure| figure.of(&format!("{count} subscribers"))));
    let each_kb = |bytes: f64| (bytes - before) / count as f64 / 1e3;
    figures.push(Figure::new("memory per subscriber, before the first event", "kB", each_kb(after)));
    figures.push(Figure::new("memory per subscriber, after the last event", "kB", each_kb(in_use)));
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    plane.stop();
    Ok(figures)
}

async fn resident(plane: &ControlPlane) -> anyhow::Result<f64> {
    tokio::time::sleep(SETTLE).await;
    usage::resident_bytes(plane.pid()?)
}

/// Starts subscribers that report each event; returns once all streams are open.
async fn subscribe(
    plane: &ControlPlane,
    admin: &Client,
    count: usize,
    arrived: &UnboundedSender<Instant>,
) -> anyhow::Result<Vec<tokio::task::JoinHandle<()>>> {
    let (mut tasks, mut client) = (Vec::new(), None);
    for number in 0..count {
        if number % PER_TOKEN == 0 {
            let name = format!("subscribers-{number}");
            let role = "platform-admin".to_owned();
            let request = CreateToken { name, role, project: None, ttl_seconds: Some(3_600) };
            client = Some(plane.client_with(&admin.create_token(&request).await?.secret)?);
        }
        let client = client.as_ref().context("no client was created")?;
        let (mut events, arrived) = (Box::pin(client.follow_new_events(None).await?), arrived.clone());
        tasks.push(tokio::spawn(async move {
            while let Some(Ok(event)) = events.next().await {
                if event.kind == EVENT && arrived.send(Instant::now()).is_err() {
                    return;
                }
            }
        }));
    }
    Ok(tasks)
}

/// Performs writes and returns the figures per write.
async fn used(
    plane: &ControlPlane,
    client: &Client,
    (name, writes): (&str, usize),
    (subscribers, arrivals): (usize, &mut UnboundedReceiver<Instant>),
) -> anyhow::Result<Vec<Figure>> {
    let before = plane.begin().await?;
    let mut took = written(client, name, writes, (subscribers, arrivals)).await?;
    let used = plane.used_since(before).await?;
    let mut figures: Vec<Figure> = used.figures(writes).into_iter().map(|figure| figure.of("per write")).collect();
    figures.push(Figure::new("write answered, p50", "ms", percentile_ms(&mut took.answered, 50)));
    if subscribers > 0 {
        figures.push(Figure::new(
            "from the request to the last subscriber, p50",
            "ms",
            percentile_ms(&mut took.last, 50),
        ));
        figures.push(Figure::new(
            "from the request to the last subscriber, p99",
            "ms",
            percentile_ms(&mut took.last, 99),
        ));
    }
    Ok(figures)
}

/// Durations of writes.
#[derive(Default)]
struct Took {
    answered: Vec<Duration>,
    /// Time until the last subscriber received the event.
    last: Vec<Duration>,
}

async fn written(
    client: &Client,
    name: &str,
    writes: usize,
    (subscribers, arrivals): (usize, &mut UnboundedReceiver<Instant>),
) -> anyhow::Result<Took> {
    let mut took = Took::default();
    for number in 0..writes {
        let began = Instant::now();
        client.create_project(&CreateProject { name: format!("{name}-{number}") }).await?;
        took.answered.push(began.elapsed());
        let mut last = began;
        for arrived in 0..subscribers {
            let next = tokio::time::timeout(EVENT_TIMEOUT, arrivals.recv()).await;
            let next = next
                .with_context(|| format!("only {arrived} of {subscribers} subscribers received the event in time"))?;
            last = last.max(next.context("all subscribers have ended")?);
        }
        took.last.push(last.duration_since(began));
    }
    ensure!(arrivals.try_recv().is_err(), "a subscriber received an event twice");
    Ok(took)
}

//! `cargo xtask bench soak`: a control plane under mixed load for a long time, to see whether the resources that it holds stay constant.

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use camino::Utf8Path;
use futures::{FutureExt, StreamExt, future::BoxFuture};
use gpuaas_api_types::{CreateToken, EnrollNode, RegisterNode};
use gpuaas_client::{AuditQuery, Client};

use super::{
    Chosen,
    control_plane::{ControlPlane, Place, SETTINGS},
    figures, usage,
};
use crate::demo::Store;

/// Options of `bench soak`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Minutes of load.
    #[arg(long, default_value_t = 30, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_440))]
    minutes: u16,
    /// Number of sandbox nodes.
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=200))]
    nodes: u8,
    /// Cargo profile of the measured programs.
    #[arg(long, default_value = "dist")]
    profile: String,
    #[command(flatten)]
    chosen: Chosen,
}

/// Retention of everything that expires: rows are created and deleted many times during the run.
const RETENTION: &str = "60s";
/// The variables that set it.
const RETENTION_VARIABLES: [&str; 6] = [
    "GPUAAS_KEEP_OPERATIONS",
    "GPUAAS_KEEP_EVENTS",
    "GPUAAS_KEEP_AUDIT",
    "GPUAAS_KEEP_IDEMPOTENCY_KEYS",
    "GPUAAS_KEEP_ENROLLMENTS",
    "GPUAAS_KEEP_ENDED_CREDENTIALS",
];
/// Interval of samples: slightly more than the control plane's own interval for measuring tables, so that each sample shows a new
/// measurement.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(61);
/// Name of a node that is never enrolled.
const SPARE: &str = "soak-spare";
/// Number of events after which a subscriber reconnects.
const EVENTS_PER_SUBSCRIBER: usize = 50;
/// Number of connections per kind of load.
const PINGERS: usize = 8;
const READERS: usize = 2;
const SUBSCRIBERS: usize = 20;

/// Runs the benchmark.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let programs = options.chosen.programs(&options.profile)?;
    println!(
        "{PINGERS} connections ping nodes, one creates and revokes tokens with idempotency keys, one issues enrollment strings, {READERS} read lists,"
    );
    println!(
        "{SUBSCRIBERS} follow {EVENTS_PER_SUBSCRIBER} events each and reconnect. History, keys and ended credentials are kept for {RETENTION}. {SETTINGS}"
    );
    println!("Rows and bytes of the tables lag behind the other values by one line.");
    for store in options.chosen.stores() {
        super::block_on(measured(options, &programs, store))?;
    }
    Ok(())
}

async fn measured(options: &Options, programs: &Utf8Path, store: Store) -> anyhow::Result<()> {
    let place = Place::fresh(store).await?.with_settings(RETENTION_VARIABLES.map(|setting| (setting, RETENTION)));
    let plane = Arc::new(ControlPlane::start(programs, &place, options.nodes).await?);
    println!("soak, profile {}, {} nodes, {}", options.profile, options.nodes, figures::name(store));
    println!(
        "{:>8}{:>12}{:>12}{:>14}{:>12}{:>16}{:>14}{:>12}{:>12}{:>10}",
        "minute",
        "server MB",
        "agents MB",
        "descriptors",
        "threads",
        "rows",
        "in tables MB",
        "free MB",
        "requests/s",
        "failed"
    );
    let spare = RegisterNode { name: SPARE.to_owned(), region: None, labels: BTreeMap::new() };
    plane.client()?.register_node(&spare).await.context("registering a node")?;
    let load = Load::start(&plane)?;
    let began = Instant::now();
    let mut done = 0;
    for minute in 0..=options.minutes {
        let until = began + SAMPLE_INTERVAL * u32::from(minute);
        tokio::time::sleep_until(until.into()).await;
        let now = load.done.load(Ordering::Relaxed);
        let a_second = (now - done) as f64 / SAMPLE_INTERVAL.as_secs_f64();
        done = now;
        let resources = Resources::of(&plane, programs).await?;
        println!(
            "{minute:>8}{:>12}{:>12}{:>14}{:>12}{:>16}{:>14}{:>12}{:>12}{:>10}",
            figures::format_value(resources.server / 1e6),
            figures::format_value(resources.agents / 1e6),
            resources.descriptors,
            resources.threads,
            resources.rows,
            figures::format_value(resources.table_bytes / 1e6),
            figures::format_value(resources.free_bytes / 1e6),
            figures::format_value(a_second),
            load.failed.load(Ordering::Relaxed),
        );
    }
    Ok(())
}

/// Resources held at one moment.
struct Resources {
    server: f64,
    agents: f64,
    descriptors: usize,
    threads: usize,
    rows: f64,
    table_bytes: f64,
    free_bytes: f64,
}

impl Resources {
    async fn of(plane: &ControlPlane, programs: &Utf8Path) -> anyhow::Result<Self> {
        let pid = plane.pid()?;
        let entries = |name: &str| anyhow::Ok(fs::read_dir(format!("/proc/{pid}/{name}"))?.count());
        let metrics = plane.client()?.read_text("/metrics").await?;
        Ok(Self {
            server: usage::resident_bytes(pid)?,
            agents: usage::resident_bytes_of(&programs.join("gpuaas-agent"))?,
            descriptors: entries("fd")?,
            threads: entries("task")?,
            rows: sum(&metrics, "gpuaas_store_table_rows"),
            table_bytes: sum(&metrics, "gpuaas_store_table_bytes"),
            free_bytes: sum(&metrics, "gpuaas_store_free_bytes"),
        })
    }
}

/// Sum of a metric over its labels; 0 if the metric is missing.
fn sum(metrics: &str, name: &str) -> f64 {
    let values = metrics.lines().filter_map(|line| {
        let (of, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
        (of.is_empty() || of.starts_with('{')).then(|| value.parse::<f64>().ok())?
    });
    values.sum()
}

/// The tasks that send requests; they end when this is dropped.
struct Load {
    done: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

/// One or more requests, sent repeatedly; the argument is the number of the repetition.
type Step = Box<dyn Fn(u64) -> BoxFuture<'static, anyhow::Result<()>> + Send>;

impl Load {
    fn start(plane: &ControlPlane) -> anyhow::Result<Self> {
        let mut load = Self { done: Arc::default(), failed: Arc::default(), tasks: Vec::new() };
        let nodes = plane.nodes();
        for first in 0..PINGERS {
            let own: Vec<String> = nodes.iter().skip(first % nodes.len()).step_by(PINGERS).cloned().collect();
            load.repeat(pings(plane.client()?, own));
        }
        load.repeat(tokens(plane.client()?));
        load.repeat(enrollments(plane.client()?));
        for _ in 0..READERS {
            load.repeat(pages(plane.client()?));
        }
        for _ in 0..SUBSCRIBERS {
            load.repeat(events(plane.client()?));
        }
        Ok(load)
    }

    fn repeat(&mut self, step: Step) {
        let (done, failed) = (self.done.clone(), self.failed.clone());
        self.tasks.push(tokio::spawn(async move {
            for number in 0.. {
                match step(number).await {
                    Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => {
                        failed.fetch_add(1, Ordering::Relaxed);
                        eprintln!("    {error:#}");
                        // Do not flood the terminal with errors.
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
            }
        }));
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

fn pings(client: Client, nodes: Vec<String>) -> Step {
    Box::new(move |number| {
        let (client, node) = (client.clone(), nodes[number as usize % nodes.len()].clone());
        async move { client.ping_node(&node).await.map(drop).context("pinging a node") }.boxed()
    })
}

fn tokens(client: Client) -> Step {
    Box::new(move |number| {
        let client = client.clone();
        async move {
            let keyed = client.clone().with_idempotency_key(format!("bench-soak-{number}"));
            let role = "platform-metrics".to_owned();
            let request = CreateToken { name: "soak".to_owned(), role, project: None, ttl_seconds: Some(3_600) };
            let made = keyed.create_token(&request).await.context("creating a token")?;
            client.revoke_token(&made.token.id).await.map(drop).context("revoking a token")
        }
        .boxed()
    })
}

/// Issues further enrollment strings for the spare node; none is ever used.
fn enrollments(client: Client) -> Step {
    Box::new(move |_| {
        let client = client.clone();
        async move {
            client.issue_enrollment(SPARE, &EnrollNode::default()).await.map(drop).context("issuing an enrollment")?;
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(())
        }
        .boxed()
    })
}

fn pages(client: Client) -> Step {
    Box::new(move |number| {
        let client = client.clone();
        async move {
            match number % 4 {
                0 => client.list_nodes(None, None).await.map(drop),
                1 => client.list_tasks(None, None).await.map(drop),
                2 => client.list_audit(&AuditQuery { newest: Some(100), ..AuditQuery::default() }).await.map(drop),
                _ => client.list_operations(None, None, None).await.map(drop),
            }
            .context("reading a list")
        }
        .boxed()
    })
}

fn events(client: Client) -> Step {
    Box::new(move |_| {
        let client = client.clone();
        async move {
            let mut events = Box::pin(client.follow_new_events(None).await.context("following events")?);
            for _ in 0..EVENTS_PER_SUBSCRIBER {
                events.next().await.context("the event stream ended")?.context("reading an event")?;
            }
            Ok(())
        }
        .boxed()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_is_summed_over_its_labels_only() {
        let text = "# TYPE a_rows gauge\na_rows{table=\"x\"} 4\na_rows{table=\"y\"} 5\na_rows_of_others 7\na_rows 1\n";
        assert_eq!((sum(text, "a_rows"), sum(text, "another")), (10.0, 0.0));
    }
}

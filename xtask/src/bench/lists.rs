//! `cargo xtask bench lists`: list pages of a control plane with many rows.

mod fill;

use std::time::{Duration, Instant};

use anyhow::Context;
use camino::Utf8Path;
use gpuaas_api_types::{CreateProject, CreateServiceAccount, CreateToken};
use gpuaas_client::Client;
use serde::{Deserialize, de::IgnoredAny};

use super::{
    Chosen,
    control_plane::{ControlPlane, Place, SETTINGS},
    figures::{self, format_value, percentile_ms},
};
use crate::demo::Store;

/// Options of `bench lists`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of nodes. Other rows are in proportion: one workload per five nodes.
    #[arg(long, default_value_t = 5_000, value_name = "N", value_parser = clap::value_parser!(u32).range(20..=100_000))]
    nodes: u32,
    /// Seconds per measurement.
    #[arg(long, default_value_t = 3, value_name = "N")]
    seconds: u64,
    /// Cargo profile of the measured programs.
    #[arg(long, default_value = "dist")]
    profile: String,
    #[command(flatten)]
    chosen: Chosen,
}

/// Page sizes. The maximum for events is 200.
const SIZES: [u32; 2] = [1_000, 50];
/// Number of tokens, and of service accounts, created through the API: the maximum of a project.
const CREDENTIALS: u32 = 100;
/// Minimum number of requests per measurement, however long they take.
const REQUESTS_MIN: usize = 20;

/// A list: its path with required parameters, and its cursor parameter.
struct List {
    path: &'static str,
    cursor: &'static str,
}

/// Lists that grow. All others have few rows: apps, artifacts, replicas, signing keys, authorities, members of a workload.
const LISTS: [List; 12] = [
    List { path: "nodes?", cursor: "cursor" },
    List { path: "allocations?", cursor: "cursor" },
    List { path: "apps/rke2/placement-options?project=bench-0", cursor: "cursor" },
    List { path: "workloads?", cursor: "cursor" },
    List { path: "workloads?section=active", cursor: "cursor" },
    List { path: "operations?", cursor: "cursor" },
    List { path: "tasks?", cursor: "cursor" },
    List { path: "events?project=bench-0", cursor: "after" },
    List { path: "audit?", cursor: "after" },
    List { path: "projects?", cursor: "cursor" },
    List { path: "tokens?", cursor: "cursor" },
    List { path: "service-accounts?project=bench-0", cursor: "cursor" },
];

/// Runs the benchmark.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let programs = options.chosen.programs(&options.profile)?;
    let mut tables = Vec::new();
    for store in options.chosen.stores() {
        tables.push((store, super::block_on(measured(options, &programs, store))?));
    }
    println!(
        "One client on a persistent connection reads the pages of each list, and starts again at its end. Most rows were written by the store's"
    );
    println!("own API: nodes and tasks are copies of a real node and of a real no-op task. {SETTINGS}");
    for (store, (filled, rows)) in tables {
        println!("lists, profile {}, {}: {filled}", options.profile, figures::name(store));
        println!(
            "  {:<52}{:>8}{:>12}{:>10}{:>14}{:>16}{:>14}",
            "list, limit", "items", "requests/s", "p50 ms", "server CPU ms", "database CPU ms", "statements"
        );
        rows.iter().for_each(Row::print);
    }
    Ok(())
}

async fn measured(options: &Options, programs: &Utf8Path, store: Store) -> anyhow::Result<(String, Vec<Row>)> {
    let place = Place::fresh(store).await?;
    let plane = ControlPlane::start(programs, &place, 1).await?;
    credentials(&plane.client()?, options.nodes.min(CREDENTIALS)).await?;
    plane.client()?.ping_node(plane.nodes().first().context("the control plane has no node")?).await?;
    plane.stop();
    let filled = Box::pin(fill::fill(&place.url()?, options.nodes)).await?;
    let plane = ControlPlane::start(programs, &place, 1).await?;
    let filled = format!("{filled}; gpuaas dev ready again after {:.1} s", plane.ready_after.as_secs_f64());
    let (client, mut rows) = (plane.client()?, Vec::new());
    for list in &LISTS {
        for limit in SIZES {
            eprintln!("    {}: {} by {limit}", figures::name(store), list.path);
            rows.push(measure_list(&plane, &client, list, limit, Duration::from_secs(options.seconds)).await?);
        }
    }
    plane.stop();
    Ok((filled, rows))
}

/// Creates credentials through the API, because their rows carry a code that only the control plane can compute.
async fn credentials(client: &Client, count: u32) -> anyhow::Result<()> {
    let (project, role) = (Some(fill::project(0)), "viewer".to_owned());
    for number in 0..fill::PROJECTS {
        client.create_project(&CreateProject { name: fill::project(number) }).await?;
    }
    for number in 0..count {
        let (project, role) = (project.clone(), role.clone());
        let request = CreateServiceAccount {
            name: format!("program-{number}"),
            role: role.clone(),
            workload: None,
            project: project.clone(),
        };
        client.create_service_account(&request).await?;
        client
            .create_token(&CreateToken { name: format!("person-{number}"), role, project, ttl_seconds: None })
            .await?;
    }
    Ok(())
}

/// The fields of a page that the benchmark reads.
#[derive(Deserialize)]
struct Page {
    items: Vec<IgnoredAny>,
    #[serde(default)]
    next_cursor: Option<String>,
}

/// Measurements of a list.
struct Row {
    what: String,
    items: f64,
    per_second: f64,
    p50_ms: f64,
    server_ms: f64,
    database_ms: f64,
    statements: f64,
}

impl Row {
    fn print(&self) {
        println!(
            "  {:<52}{:>8}{:>12}{:>10}{:>14}{:>16}{:>14}",
            self.what,
            format_value(self.items),
            format_value(self.per_second),
            format_value(self.p50_ms),
            format_value(self.server_ms),
            format_value(self.database_ms),
            format_value(self.statements)
        );
    }
}

async fn measure_list(
    plane: &ControlPlane,
    client: &Client,
    list: &List,
    limit: u32,
    time: Duration,
) -> anyhow::Result<Row> {
    page(client, list, limit, None).await?;
    let (mut took, mut items, mut cursor) = (Vec::new(), 0, None);
    let before = plane.begin().await?;
    let began = Instant::now();
    while began.elapsed() < time || took.len() < REQUESTS_MIN {
        let (page, of_page) = page(client, list, limit, cursor.as_deref()).await?;
        took.push(of_page);
        items += page.items.len();
        cursor = page.next_cursor;
    }
    let used = plane.used_since(before).await?;
    let (count, total) = (took.len() as f64, took.iter().sum::<Duration>());
    Ok(Row {
        what: format!("{}, {limit}", list.path.trim_end_matches('?')),
        items: items as f64 / count,
        per_second: count / total.as_secs_f64(),
        p50_ms: percentile_ms(&mut took, 50),
        server_ms: (used.server.user_ms + used.server.system_ms) / count,
        database_ms: (used.database.user_ms + used.database.system_ms) / count,
        statements: used.counts.statements / count,
    })
}

/// Fetches a page; returns it with the time until its last byte arrived.
async fn page(client: &Client, list: &List, limit: u32, cursor: Option<&str>) -> anyhow::Result<(Page, Duration)> {
    let List { path, cursor: name } = list;
    // A page of events has at most 200.
    let limit = if path.starts_with("events") { limit.min(200) } else { limit };
    let cursor_parameter = cursor.map(|cursor| format!("&{name}={cursor}")).unwrap_or_default();
    let path = format!("/api/v1/{path}&limit={limit}{cursor_parameter}").replace("?&", "?");
    let began = Instant::now();
    let text = client.read_text(&path).await.with_context(|| path.clone())?;
    let took = began.elapsed();
    Ok((serde_json::from_str(&text).with_context(|| path)?, took))
}

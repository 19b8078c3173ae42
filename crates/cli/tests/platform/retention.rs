//! History moves from the database to archives while nodes work. Nothing is lost, even if the control plane dies in between.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use gpuaas_client::{AuditQuery, Client};
use gpuaas_crash_points::Point;
use gpuaas_model::Code;
use serde_json::Value;

use crate::{
    fleet::Fleet,
    world::{Platform, eventually},
};

/// The shortest retention that can be set.
const SHORT: [(&str, &str); 3] =
    [("GPUAAS_KEEP_OPERATIONS", "10s"), ("GPUAAS_KEEP_EVENTS", "10s"), ("GPUAAS_KEEP_AUDIT", "10s")];
/// After this time about as many records leave the database as are added.
const SETTLED: Duration = Duration::from_secs(20);

/// Pings the node for this long. Returns the number of pings.
async fn work(client: &Client, long: Duration) -> u64 {
    let (began, mut pings) = (Instant::now(), 0);
    while began.elapsed() < long {
        client.ping_node("gpu-1").await.expect("it answers");
        pings += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    pings
}

fn rows(fleet: &Fleet, table: &str) -> u64 {
    let store = rusqlite::Connection::open(fleet.data_dir().join("gpuaas.db")).expect("the file opens");
    let count = store.query_row(&format!("select count(*) from {table}"), [], |row| row.get::<_, i64>(0));
    u64::try_from(count.expect("it is counted")).expect("a count")
}

/// Returns the lines of all archives of one kind, in order.
async fn archived(client: &Client, kind: &str) -> Vec<Value> {
    let mut lines = Vec::new();
    for archive in client.list_archives(Some(kind.to_owned())).await.expect("listed").items {
        let file = client.read_archive(&archive.id).await.expect("read");
        let shown = client.get_archive(&archive.id).await.expect("shown");
        assert_eq!((gpuaas_trust::sha256_hex(&file), shown.size_bytes), (archive.sha256, file.len() as u64));
        let text = zstd::decode_all(&file[..]).expect("it opens");
        let of_archive = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.extend(of_archive.map(|line| serde_json::from_slice::<Value>(line).expect("a line of JSON")));
    }
    lines
}

/// Asserts that every audit record is in one archive or still in the database, and that none is in two archives.
async fn assert_audit_complete(client: &Client) {
    // Read before the archives: records that leave the database meanwhile are in an archive.
    let left = client.list_audit(&AuditQuery::default()).await.expect("listed").items;
    let lines = archived(client, "audit").await;
    let numbers = lines.iter().filter_map(|line| line["audit"]["sequence"].as_u64());
    let numbers: Vec<u64> = numbers.collect();
    let last = u64::try_from(numbers.len()).expect("a count");
    assert_eq!(numbers, (1..=last).collect::<Vec<_>>(), "each is archived once, in order");
    assert!(left.first().is_some_and(|record| record.sequence <= last + 1), "the database has what follows {last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn archiving_limits_the_rows_and_removed_events_are_gone() {
    let fleet = Fleet::start_with_settings(1, &SHORT).await;
    let client = fleet.client();
    let mut pings = work(&client, SETTLED).await;
    let tables = ["tasks", "events", "audit"];
    let settled: BTreeMap<_, _> = tables.map(|table| (table, rows(&fleet, table))).into();
    pings += work(&client, SETTLED).await;
    for (table, before) in settled {
        let now = rows(&fleet, table);
        assert!(now < before + before / 2, "{table} grew from {before} to {now} rows");
        assert!(table != "tasks" || now < pings, "{now} tasks are left of {pings}");
    }
    for refused in [client.list_events(None, 1).await.map(drop), client.follow_events(None, 1).await.map(drop)] {
        assert_eq!(refused.expect_err("they were removed").code(), Code::EventsArchived);
    }
    let first = client.list_events(None, 0).await.expect("from what there is").items.remove(0);
    assert!(first.sequence > 1);
    drop(client.follow_events(None, first.sequence).await.expect("its successor is kept"));
    let tasks = archived(&client, "tasks").await;
    assert!(tasks.iter().any(|line| line["task"]["task_type"] == "host.noop" && line["task"]["envelope"].is_string()));
    assert_audit_complete(&client).await;
    let archives = client.list_archives(None).await.expect("listed").items.len();
    let file = fleet.path("backup.tar").to_string_lossy().into_owned();
    let backup = fleet.server_verb(&["backup", &file, "-o", "json"]);
    let manifest: Value = serde_json::from_slice(&backup.stdout).expect("JSON on stdout");
    assert!(manifest["artifacts"].as_u64().is_some_and(|count| count >= archives as u64), "{manifest}: {archives}");
}

#[tokio::test(flavor = "multi_thread")]
async fn control_plane_killed_while_archiving_loses_and_repeats_nothing() {
    let mut fleet = Fleet::start_with_settings(1, &SHORT).await;
    for point in [Point::ArchiveWritten, Point::ArchiveRecorded] {
        let name = point.to_string();
        work(&fleet.client(), Duration::from_secs(2)).await;
        fleet.arm(None, &name);
        eventually("nothing is archived", async || fleet.is_stopped_at(None, &name)).await;
        fleet.kill_server();
        fleet.start_server();
        let client = fleet.client();
        work(&client, Duration::from_secs(1)).await;
        let before = client.list_archives(None).await.expect("listed").items.len();
        eventually("archiving does not continue", async || {
            client.list_archives(None).await.is_ok_and(|list| list.items.len() > before + 2)
        })
        .await;
        assert_audit_complete(&client).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operation_that_is_not_archived_is_named_with_its_place() {
    let platform = Platform::with_release(1, &[]).await;
    let ask = platform.deployment("train", &[]).await;
    let id = platform.client().deploy_workload(&ask).await.expect("accepted").operation.id;
    let searched = |id: &str| {
        let output = platform.gpuaas(&["archive", "get", "--operation", id]);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    let words = searched(&id);
    assert!(words.contains("is in the database") && words.contains(&format!("gpuaas operation show {id}")), "{words}");
    let words = searched("019c0000-0000-7000-8000-000000000000");
    assert!(words.contains("neither in an archive nor in the database"), "{words}");
}

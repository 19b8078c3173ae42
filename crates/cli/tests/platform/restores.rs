//! A refused or failed restore leaves nothing behind. A killed one succeeds when it is run again.

use gpuaas_client::AuditQuery;
use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use gpuaas_crash_points::{Point, RestoreStage};
use gpuaas_postgres_server::Server;
use gpuaas_trust::sha256_hex;
use sqlx::{Connection, PgConnection, Row};

use crate::{
    backups::{altered_tar, assert_refused},
    fleet::Fleet,
    world::{import_request, release},
};

/// Arguments of a control plane that starts and ends at once, because `--lifeline` ends it when its standard input closes.
const SERVE: [&str; 7] =
    ["--lifeline", "--listen", "127.0.0.1:0", "--channel-listen", "127.0.0.1:0", "--replica-listen", "127.0.0.1:0"];

/// A fleet that has lost its control plane, with the backup of it.
struct Lost {
    fleet: Fleet,
    backup: String,
    /// The database to restore into; absent for SQLite.
    url: Option<String>,
    _server: Option<Server>,
    artifacts: usize,
}

impl Lost {
    async fn prepare(is_shared: bool) -> Self {
        let mut fleet = Fleet::start(0).await;
        let client = fleet.client();
        client.import_artifacts(&import_request(release())).await.expect("imported");
        let artifacts = client.list_artifacts().await.expect("listed").items.len();
        let backup = fleet.path("backup.tar").to_string_lossy().into_owned();
        assert!(fleet.server_verb(&["backup", &backup]).status.success());
        fleet.kill_server();
        std::fs::rename(fleet.data_dir(), fleet.path("lost")).expect("moved");
        let (mut server, mut url) = (None, None);
        if is_shared {
            let started = tokio::task::block_in_place(|| Server::start(&[], &[]));
            let fresh = started.fresh_database().await;
            fleet.move_to(fresh.clone());
            (server, url) = (Some(started), Some(fresh));
        }
        Self { fleet, backup, url, _server: server, artifacts }
    }

    /// Returns the names of everything that a restore may have left.
    async fn leftovers(&self) -> Vec<String> {
        let names = |folder: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        };
        let mut left = names(&self.fleet.data_dir());
        left.retain(|name| name != "lock");
        if let Some(url) = &self.url {
            left.extend(names(&self.fleet.path("artifacts")));
            let mut database = PgConnection::connect(url).await.expect("the database");
            let tables = "select cast(table_name as text) from information_schema.tables where table_schema = 'public'";
            let tables = sqlx::query(tables).fetch_all(&mut database).await.expect("tables");
            left.extend(tables.iter().map(|row| row.get::<String, _>(0)));
            database.close().await.expect("closed");
        }
        left
    }

    fn restore(&self, file: &str) -> std::process::Output {
        self.fleet.server_verb(&["restore", file])
    }

    /// Writes a changed copy of the backup and returns its path.
    fn altered(&self, change: impl Fn(&str, Vec<u8>) -> Option<(String, Vec<u8>)>) -> String {
        static ALTERED: AtomicUsize = AtomicUsize::new(0);
        let file = self.fleet.path(&format!("altered-{}.tar", ALTERED.fetch_add(1, Ordering::Relaxed)));
        let whole = std::fs::read(&self.backup).expect("a backup");
        std::fs::write(&file, altered_tar(&whole, change)).expect("written");
        file.to_string_lossy().into_owned()
    }

    /// Writes a copy with changed rows and a matching digest, and returns its path.
    fn with_rows(&self, change: impl Fn(String) -> String) -> String {
        let whole = std::fs::read(&self.backup).expect("a backup");
        let mut digests = None;
        altered_tar(&whole, |name, bytes| {
            if name == "rows.jsonl" {
                let before = sha256_hex(&bytes);
                let rows = String::from_utf8(bytes.clone()).expect("text");
                let changed = change(rows.clone());
                assert_ne!(rows, changed, "nothing was changed");
                digests = Some((before, sha256_hex(changed.as_bytes())));
            }
            Some((name.to_owned(), bytes))
        });
        let (before, after) = digests.expect("rows");
        self.altered(|name, bytes| match name {
            "rows.jsonl" => Some((name.to_owned(), change(String::from_utf8(bytes).expect("text")).into_bytes())),
            "backup.json" => {
                let text = String::from_utf8(bytes).expect("text").replace(&before, &after);
                Some((name.to_owned(), text.into_bytes()))
            }
            _ => Some((name.to_owned(), bytes)),
        })
    }

    /// Restores the backup and serves from it.
    async fn restore_and_serve(self) {
        let restored = self.restore(&self.backup);
        assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
        assert!(String::from_utf8_lossy(&restored.stdout).contains("gpuaas bootstrap"));
        self.assert_serves().await;
    }

    /// Starts the control plane on the restored data.
    async fn assert_serves(mut self) {
        assert!(!self.fleet.data_dir().join("restore.unfinished").exists());
        assert_refused(&self.restore(&self.backup), "store_not_empty");
        self.fleet.start_server();
        self.fleet.exchange_one_time_admin().await;
        let artifacts = self.fleet.client().list_artifacts().await.expect("listed").items;
        assert_eq!(artifacts.len(), self.artifacts);
        let audit = self.fleet.client().list_audit(&AuditQuery::default()).await.expect("listed").items;
        assert_eq!(audit.iter().filter(|record| record.action == "server.credentials_end").count(), 1);
    }
}

async fn refused_restores_leave_nothing(is_shared: bool) {
    let lost = Lost::prepare(is_shared).await;
    let whole = std::fs::read(&lost.backup).expect("a backup");
    let torn = lost.fleet.path("torn.tar");
    std::fs::write(&torn, &whole[..whole.len() / 2]).expect("written");
    let files = [
        torn.to_string_lossy().into_owned(),
        lost.with_rows(|rows| rows.replacen("\"platform\",", "7,", 1)),
        lost.with_rows(|rows| rows.replacen("\\\"imported_at\\\"", "\\\"imported_on\\\"", 1)),
        lost.with_rows(|rows| without_a_row(&rows)),
        // The rows name artifacts, but `backup.json` counts none.
        lost.altered(|name, bytes| match name {
            "backup.json" => {
                let mut manifest: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
                manifest["artifacts"] = 0.into();
                Some((name.to_owned(), manifest.to_string().into_bytes()))
            }
            _ => (!name.starts_with("artifacts/")).then(|| (name.to_owned(), bytes)),
        }),
    ];
    for file in files {
        assert_refused(&lost.restore(&file), "backup_invalid");
        assert_eq!(lost.leftovers().await, [""; 0], "{file}");
    }
    let key = lost.fleet.path("sealing.key");
    if is_shared {
        let right = std::fs::read(&key).expect("a key");
        std::fs::write(&key, [8; 32]).expect("written");
        assert_refused(&lost.restore(&lost.backup), "sealing_key_mismatch");
        std::fs::write(&key, right).expect("written");
    } else {
        let other = lost.altered(|name, bytes| match name {
            "sealing.key" => Some((name.to_owned(), vec![8; 32])),
            _ => Some((name.to_owned(), bytes)),
        });
        assert_refused(&lost.restore(&other), "sealing_key_mismatch");
        let in_the_way = lost.fleet.data_dir().join("sealing.key");
        std::fs::write(&in_the_way, [9; 32]).expect("written");
        assert_refused(&lost.restore(&lost.backup), "state_conflict");
        assert_eq!(std::fs::read(&in_the_way).expect("a key"), [9; 32]);
        std::fs::remove_file(&in_the_way).expect("removed");
    }
    assert_eq!(lost.leftovers().await, [""; 0]);
    lost.restore_and_serve().await;
}

/// Returns the rows without the first one, a setting, so that the number of rows in the last line is wrong.
fn without_a_row(rows: &str) -> String {
    let line = rows.lines().find(|line| line.starts_with("{\"row\":")).expect("a row");
    rows.replacen(&format!("{line}\n"), "", 1)
}

async fn killed_restores_run_again(is_shared: bool) {
    let lost = Lost::prepare(is_shared).await;
    let torn = lost.fleet.path("torn.tar");
    let whole = std::fs::read(&lost.backup).expect("a backup");
    std::fs::write(&torn, &whole[..whole.len() / 2]).expect("written");
    for stage in RestoreStage::ALL {
        let point = Point::Restore(stage).to_string();
        lost.fleet.kill_server_verb(&["restore", &lost.backup], &point);
        println!("    killed at {point}: {:?}", lost.leftovers().await);
        let new = lost.fleet.path("new.tar");
        for verb in [&SERVE[..], &["recover-admin"], &["backup", &new.to_string_lossy()]] {
            assert_refused(&lost.fleet.server_verb(verb), "restore_unfinished");
        }
        if stage != RestoreStage::InPlace {
            // A second restore fails and removes what the killed one left.
            assert_refused(&lost.restore(&torn.to_string_lossy()), "backup_invalid");
            assert_eq!(lost.leftovers().await, [""; 0], "{point}");
            lost.fleet.kill_server_verb(&["restore", &lost.backup], &point);
        }
    }
    let again = lost.restore(&lost.backup);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    lost.assert_serves().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_restore_leaves_nothing_in_the_data_directory() {
    refused_restores_leave_nothing(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_restore_leaves_nothing_in_postgresql() {
    refused_restores_leave_nothing(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_restore_can_be_repeated() {
    killed_restores_run_again(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_restore_into_postgresql_can_be_repeated() {
    killed_restores_run_again(true).await;
}

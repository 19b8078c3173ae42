//! Starts a control plane on data directories in which one file is missing or damaged in every way a disk or a person may cause.
//! A start serves all that was acknowledged or refuses with a code. The table also lists the findings of `gpuaas server verify`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use gpuaas_api_types::CreateProject;
use gpuaas_client::AuditQuery;

use crate::{
    single_server::{SingleServer, Start},
    world::{build_programs, import_request, release, show},
};

/// How a file of the data directory is damaged or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Missing,
    Empty,
    /// Cut to its first half.
    Cut,
    /// One bit differs. In the database it is at the start of the middle page, because SQLite keeps no checksum of row contents.
    Flipped,
    /// Replaced by its content at an earlier moment.
    Older,
    /// Replaced by the file of another control plane; `lock` gets other text.
    Swapped,
    /// Database only: a schema version that the program does not know.
    Newer,
}

/// The required outcome of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Serves all that was acknowledged.
    Serves,
    /// Serves all that was acknowledged, and the log names the artifact.
    ServesAndNames,
    /// Refuses with this code.
    Refuses(&'static str),
}

use Expected::{Refuses, Serves, ServesAndNames};
use State::{Cut, Empty, Flipped, Missing, Newer, Older, Swapped};

/// The rows are intact but from an earlier moment.
const HISTORY_WENT_BACK: Expected = Refuses("history_rolled_back");
/// Nothing proves from which moment the rows are.
const HISTORY_UNPROVEN: Expected = Refuses("history_unverified");

/// The kinds of findings, joined by commas in alphabetical order, or the code with which `verify` itself refuses.
type Found = &'static str;
const NOTHING: Found = "nothing";

/// The states to test for one file.
type States = &'static [(State, Found, Expected)];

/// A file that a start creates again, or does without, in whatever state it is.
const REPLACEABLE: States = &[
    (Missing, NOTHING, Serves),
    (Empty, NOTHING, Serves),
    (Cut, NOTHING, Serves),
    (Flipped, NOTHING, Serves),
    (Older, NOTHING, Serves),
    (Swapped, NOTHING, Serves),
];

/// The whole table: for each file and state, the findings of `verify` and the outcome of a start.
const CELLS: &[(&str, States)] = &[
    (
        "gpuaas.db",
        &[
            (Missing, "store_missing", Refuses("store_missing")),
            (Empty, "store_missing", Refuses("store_missing")),
            (Cut, "database", Refuses("store_damaged")),
            (Flipped, "database", Refuses("store_damaged")),
            (Older, "history", HISTORY_WENT_BACK),
            (Newer, "store_too_new", Refuses("store_too_new")),
            (Swapped, "history,key", Refuses("sealing_key_mismatch")),
        ],
    ),
    (
        "gpuaas.db-wal",
        &[
            (Missing, "history", HISTORY_WENT_BACK),
            (Empty, "history", HISTORY_WENT_BACK),
            (Cut, "history", HISTORY_WENT_BACK),
            (Flipped, "history", HISTORY_WENT_BACK),
            (Older, "history", HISTORY_WENT_BACK),
            // The pages of the foreign log replace pages of this database.
            (Swapped, "database", Refuses("store_damaged")),
        ],
    ),
    // An earlier mark is still valid, and one of its two entries is enough.
    (
        "history.mark",
        &[
            (Missing, "history", HISTORY_UNPROVEN),
            (Empty, "history", HISTORY_UNPROVEN),
            (Cut, "history", HISTORY_UNPROVEN),
            (Flipped, NOTHING, Serves),
            (Older, NOTHING, Serves),
            (Swapped, "history", HISTORY_UNPROVEN),
        ],
    ),
    (
        "sealing.key",
        &[
            (Missing, "key", Refuses("sealing_key_missing")),
            (Empty, "key", Refuses("sealing_key_invalid")),
            (Cut, "key", Refuses("sealing_key_invalid")),
            (Flipped, "key", Refuses("sealing_key_mismatch")),
            (Older, NOTHING, Serves),
            (Swapped, "key", Refuses("sealing_key_mismatch")),
        ],
    ),
    // No rotation is under way: nothing is sealed with the next key.
    (
        "sealing-next.key",
        &[
            (Missing, NOTHING, Serves),
            (Empty, "key", Refuses("sealing_key_invalid")),
            (Cut, "key", Refuses("sealing_key_invalid")),
            (Flipped, NOTHING, Serves),
            (Older, NOTHING, Serves),
            (Swapped, NOTHING, Serves),
        ],
    ),
    ("replica.id", REPLACEABLE),
    ("ca.pem", REPLACEABLE),
    ("admin.token", REPLACEABLE),
    // Digests are compared by `verify` and when an artifact is laid out; a start compares lengths only.
    (
        "artifacts/*",
        &[
            (Missing, "artifact", ServesAndNames),
            (Empty, "artifact", ServesAndNames),
            (Cut, "artifact", ServesAndNames),
            (Flipped, "artifact", Serves),
            (Older, NOTHING, Serves),
        ],
    ),
    ("lock", &[(Missing, NOTHING, Serves), (Empty, NOTHING, Serves), (Swapped, NOTHING, Serves)]),
];

/// The data directories from which the cells are copied.
struct Fixture {
    _folder: tempfile::TempDir,
    root: PathBuf,
    token: String,
    artifact: String,
}

/// The state that a client has seen acknowledged.
#[derive(Debug, PartialEq, Eq)]
struct Acknowledged {
    projects: BTreeSet<String>,
    artifacts: usize,
    audit: usize,
}

async fn acknowledged(served: &SingleServer, token: &str) -> Option<Acknowledged> {
    let client = served.client(token);
    let projects = client.list_projects().await.ok()?.items;
    let audit = client.list_audit(&AuditQuery::default()).await.ok()?.items;
    Some(Acknowledged {
        projects: projects.into_iter().map(|project| project.name).collect(),
        artifacts: client.list_artifacts().await.ok()?.items.len(),
        // Counts project creations only: starts and other requests add audit records.
        audit: audit.iter().filter(|record| record.action == "project.create").count(),
    })
}

async fn make(served: &SingleServer, token: &str, name: &str) {
    served.client(token).create_project(&CreateProject { name: name.to_owned() }).await.expect("made");
}

impl Fixture {
    /// Prepares a control plane that was shut down in order twice and killed once, copies of its files from earlier moments,
    /// and the files of another control plane.
    async fn made() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().to_owned();
        let (data, start) = (root.join("data"), Start::default());
        let served = start.on(&data).expect("it serves");
        let token = served.first_admin().await;
        let client = served.client(&token);
        client.import_artifacts(&import_request(release())).await.expect("imported");
        make(&served, &token, "first").await;
        served.end();
        for verb in ["recover-admin", "next-sealing-key"] {
            let made = start.verb(&data, &[verb]);
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        }
        copy(&data, &root.join("older"));
        let served = start.on(&data).expect("it serves");
        for number in 0..40 {
            make(&served, &token, &format!("second-{number}")).await;
        }
        served.end();
        let served = start.on(&data).expect("it serves");
        make(&served, &token, "third").await;
        fs::copy(data.join("gpuaas.db-wal"), root.join("older/gpuaas.db-wal")).expect("copied");
        make(&served, &token, "fourth").await;
        drop(served);
        let foreign = root.join("foreign");
        let served = start.on(&foreign).expect("it serves");
        let other = served.first_admin().await;
        served.end();
        for verb in ["recover-admin", "next-sealing-key"] {
            assert!(start.verb(&foreign, &[verb]).status.success());
        }
        let served = start.on(&foreign).expect("it serves");
        make(&served, &other, "foreign").await;
        drop(served);
        let entries = fs::read_dir(data.join("artifacts")).expect("a folder").flatten();
        let mut artifacts: Vec<_> = entries.map(|entry| entry.file_name().into_string().expect("a text")).collect();
        artifacts.sort();
        Self { _folder: folder, root, token, artifact: artifacts.remove(0) }
    }

    /// Returns the database with its log written back: a page in the log would hide damage to the same page of the database.
    fn written_back(&self) -> Vec<u8> {
        let folder = self.root.join("written-back");
        copy(&self.root.join("data"), &folder);
        let path = folder.join("gpuaas.db");
        let database = rusqlite::Connection::open(&path).expect("a database");
        database.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(())).expect("written back");
        drop(database);
        fs::read(path).expect("read")
    }

    /// Makes a data directory in which `file` is in `state`.
    fn cell(&self, file: &str, state: State) -> PathBuf {
        let file = file.replace('*', &self.artifact);
        let cell = self.root.join(format!("{}-{state:?}", file.replace(['/', '.'], "-")));
        copy(&self.root.join("data"), &cell);
        let path = cell.join(&file);
        let bytes = fs::read(&path).unwrap_or_default();
        // Artifacts are hard links that the cells share: unlink this one before writing.
        fs::remove_file(&path).expect("it was there");
        match state {
            Missing => {}
            Empty => fs::write(&path, "").expect("written"),
            Cut => fs::write(&path, &bytes[..bytes.len() / 2]).expect("written"),
            Flipped => {
                let is_database = file == "gpuaas.db";
                let mut bytes = if is_database { self.written_back() } else { bytes };
                let middle = bytes.len() / 2;
                let at = if is_database { middle / 4_096 * 4_096 } else { middle };
                bytes[at] ^= 1;
                fs::write(&path, bytes).expect("written");
            }
            Older => drop(fs::copy(self.root.join("older").join(&file), &path).expect("copied")),
            Swapped if file == "lock" => fs::write(&path, "another process").expect("written"),
            Swapped => drop(fs::copy(self.root.join("foreign").join(&file), &path).expect("copied")),
            Newer => {
                fs::write(&path, bytes).expect("written");
                let rows = rusqlite::Connection::open(&path).expect("a database");
                rows.execute_batch("insert into schema_versions (version, checksum) values (4711, 'x')")
                    .expect("written");
            }
        }
        // Without its log, which belongs to the undamaged database.
        if file == "gpuaas.db" && matches!(state, Flipped | Older | Swapped | Newer) {
            let _ = fs::remove_file(cell.join("gpuaas.db-wal"));
        }
        cell
    }
}

/// Copies a data directory; artifacts become hard links.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("artifacts")).expect("made");
    for entry in fs::read_dir(from).expect("a folder").flatten().filter(|entry| entry.path().is_file()) {
        // SQLite rebuilds the index of its log when it opens the database.
        if entry.file_name() != "gpuaas.db-shm" {
            fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
        }
    }
    for entry in fs::read_dir(from.join("artifacts")).into_iter().flatten().flatten() {
        fs::hard_link(entry.path(), to.join("artifacts").join(entry.file_name())).expect("linked");
    }
}

fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files =
        fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path()).filter(|path| path.is_file());
    let of_a_refusal = |path: &PathBuf| !path.ends_with("lock") && !path.ends_with("gpuaas.db-shm");
    let mut files: Vec<_> =
        files.filter(of_a_refusal).map(|path| (path.clone(), fs::read(path).expect("read"))).collect();
    files.sort();
    files
}

/// A file, its state, the findings of `verify`, and the required outcome of a start.
type Cell = (&'static str, State, Found, Expected);

/// Runs one cell. Returns its line of the table, and whether `verify` and the start did as required without changing the files.
async fn run_cell(given: &Fixture, all: &Acknowledged, (file, state, finds, expected): Cell) -> (String, bool) {
    let cell = given.cell(file, state);
    let before = contents(&cell);
    let verified = Start::default().verb(&cell, &["verify", "-o", "json"]);
    let found = match serde_json::from_slice::<serde_json::Value>(&verified.stdout) {
        Ok(reported) => {
            let findings = reported["findings"].as_array().expect("a list");
            let kinds: BTreeSet<&str> = findings.iter().filter_map(|finding| finding["kind"].as_str()).collect();
            let is_told = verified.status.code() == Some(i32::from(!findings.is_empty()));
            assert!(is_told, "{:?}: {reported}", verified.status);
            kinds.into_iter().collect::<Vec<_>>().join(",")
        }
        Err(_) => serde_json::from_slice::<serde_json::Value>(&verified.stderr).expect("an error as JSON")["code"]
            .as_str()
            .expect("a code")
            .to_owned(),
    };
    let is_unchanged = contents(&cell) == before;
    let started = tokio::task::block_in_place(|| Start::default().on(&cell));
    let (did, is_right) = match &started {
        Err(refusal) => {
            let nothing_written = contents(&cell) == before;
            let is_right = expected == Refuses(Box::leak(refusal.code.clone().into_boxed_str())) && nothing_written;
            let line = refusal.stderr.lines().find(|line| line.starts_with("error:")).unwrap_or_default();
            let written = if nothing_written { "" } else { "; AND IT HAS WRITTEN" };
            (format!("refuses: {}{written}", line.replace(&*cell.to_string_lossy(), "…")), is_right)
        }
        Ok(served) => {
            let now = acknowledged(served, &given.token).await;
            let is_whole = now.as_ref() == Some(all);
            let names = served.log().contains(&given.artifact);
            let is_right = match expected {
                Serves => is_whole,
                ServesAndNames => is_whole && names,
                Refuses(_) => false,
            };
            let what = if is_whole { "all".to_owned() } else { format!("LESS: {now:?}") };
            (format!("serves {what}{}", if names { ", and names the artifact" } else { "" }), is_right)
        }
    };
    let note = if is_unchanged { "" } else { "   VERIFY HAS CHANGED IT" };
    let verify = if found.is_empty() { NOTHING } else { &found };
    let other = if verify == finds { String::new() } else { format!("   IT MUST FIND {finds}") };
    let line = format!("{file:<18}{:<9}verify: {verify:<28}start {did}{note}{other}", format!("{state:?}"));
    drop(started);
    let _ = fs::remove_dir_all(cell);
    (line, is_right && is_unchanged && verify == finds)
}

#[tokio::test(flavor = "multi_thread")]
async fn start_serves_all_acknowledged_changes_or_refuses_with_a_code() {
    tokio::task::block_in_place(build_programs);
    let given = Fixture::made().await;
    let untouched = given.root.join("untouched");
    copy(&given.root.join("data"), &untouched);
    let served = Start::default().on(&untouched).expect("it serves");
    let all = acknowledged(&served, &given.token).await.expect("answered");
    drop(served);
    assert!(all.projects.contains("fourth") && all.artifacts > 0 && all.audit == 43, "{all:?}");
    let (given, all, mut wrong) = (&given, &all, Vec::new());
    let of_file = |(file, states): &'static (&'static str, States)| {
        states.iter().map(move |&(state, finds, expected)| (*file, state, finds, expected))
    };
    let cells: Vec<Cell> = CELLS.iter().flat_map(of_file).collect();
    // Runs four cells at a time, because each process mostly waits for its disk.
    for group in cells.chunks(4) {
        let judged = group.iter().map(|&cell| run_cell(given, all, cell));
        for (line, is_right) in futures::future::join_all(judged).await {
            show(&line);
            if !is_right {
                wrong.push(line);
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} cells:\n{}", wrong.len(), cells.len(), wrong.join("\n"));
}

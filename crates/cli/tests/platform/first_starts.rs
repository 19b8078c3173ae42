//! A first start that dies at any stage can be repeated; a store that is missing later is refused.

use std::path::Path;

use gpuaas_api_types::CreateProject;
use gpuaas_crash_points::{Point, StartStage};
use gpuaas_postgres_server::Server;

use crate::{
    raw::read_open,
    single_server::{Start, text},
    world::{build_programs, eventually},
};

fn shared(folder: &Path, url: &str) -> Start<'static> {
    let key = folder.join("named.key");
    std::fs::write(&key, [7; 32]).expect("written");
    let environment = vec![
        ("GPUAAS_STORE_URL", url.to_owned()),
        ("GPUAAS_SEALING_KEY_FILE", text(&key)),
        ("GPUAAS_ARTIFACTS_DIR", text(&folder.join("artifacts"))),
    ];
    Start { environment, ..Start::default() }
}

/// Kills first starts at every stage, each on a fresh data directory, then at every stage in turn on one data directory.
async fn kill_at_every_stage(folder: &Path, fresh: impl AsyncFn() -> Start<'static>) {
    for stage in StartStage::ALL {
        let (data, start) = (folder.join(format!("{stage:?}")), fresh().await);
        start.killed_at(&data, &Point::Start(stage).to_string());
        let served = start.on(&data).unwrap_or_else(|refusal| panic!("{stage:?}: {refusal:?}"));
        let token = served.first_admin().await;
        assert_eq!(served.client(&token).whoami().await.expect("the token works").role, "platform-admin", "{stage:?}");
        assert!(!data.join("first-start").exists(), "{stage:?}");
    }
    let (data, start) = (folder.join("all"), fresh().await);
    for stage in StartStage::ALL {
        start.killed_at(&data, &Point::Start(stage).to_string());
    }
    start.on(&data).expect("it serves").first_admin().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_start_killed_at_any_stage_can_be_repeated() {
    tokio::task::block_in_place(build_programs);
    let folder = tempfile::tempdir().expect("a folder");
    kill_at_every_stage(folder.path(), async || Start::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_start_on_postgresql_killed_at_any_stage_can_be_repeated() {
    tokio::task::block_in_place(build_programs);
    let server = tokio::task::block_in_place(|| Server::start(&[], &[]));
    let folder = tempfile::tempdir().expect("a folder");
    kill_at_every_stage(folder.path(), async || shared(folder.path(), &server.fresh_database().await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_database_under_a_used_data_directory_is_refused_without_reinitialize() {
    tokio::task::block_in_place(build_programs);
    let server = tokio::task::block_in_place(|| Server::start(&[], &[]));
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let filled = shared(folder.path(), &server.fresh_database().await);
    let served = filled.on(&data).expect("it serves");
    let token = served.first_admin().await;
    let other = filled.on(&folder.path().join("other")).expect("a new replica with an empty data directory serves");
    assert_eq!(other.client(&token).whoami().await.expect("the token works").role, "platform-admin");
    drop((served, other));

    let empty = shared(folder.path(), &server.fresh_database().await);
    let kept = ["ca.pem", "replica.id"].map(|name| std::fs::read(data.join(name)).expect("kept"));
    let refusal = empty.on(&data).err().expect("refused");
    assert_eq!((refusal.code.as_str(), refusal.status), ("store_missing", Some(1)), "{}", refusal.stderr);
    assert!(
        refusal.stderr.contains("the PostgreSQL database store_") && refusal.stderr.contains("ca.pem"),
        "{}",
        refusal.stderr
    );
    assert!(
        refusal.stderr.contains("gpuaas server restore FILE") && refusal.stderr.contains("--reinitialize"),
        "{}",
        refusal.stderr
    );
    assert_eq!(["ca.pem", "replica.id"].map(|name| std::fs::read(data.join(name)).expect("kept")), kept);
    let recovery = empty.verb(&data, &["recover-admin"]);
    assert!(String::from_utf8_lossy(&recovery.stderr).contains("store_missing"), "recover-admin creates no platform");

    let reinitializing = Start { arguments: &["--reinitialize"], ..empty.clone() };
    let served = reinitializing.on(&data).expect("it serves");
    served.first_admin().await;
    let moved = std::fs::read_dir(&data).expect("a folder").flatten().map(|entry| entry.path());
    let moved = moved.into_iter().find(|path| text(path).contains("before-")).expect("a folder with the earlier files");
    assert_eq!(["ca.pem", "replica.id"].map(|name| std::fs::read(moved.join(name)).expect("moved")), kept);
    drop(served);
    let again = reinitializing.on(&data).err().expect("the flag is refused at a second start");
    assert_eq!(again.code, "state_conflict", "{}", again.stderr);
    empty.on(&data).expect("it serves without the flag");
}

#[test]
fn empty_address_of_the_database_does_not_start_a_new_control_plane() {
    build_programs();
    let folder = tempfile::tempdir().expect("a folder");
    let (data, file) = (folder.path().join("data"), folder.path().join("store-url"));
    std::fs::write(&file, "\n").expect("written");
    for (name, value) in
        [("GPUAAS_STORE_URL", ""), ("GPUAAS_STORE_URL_FILE", ""), ("GPUAAS_STORE_URL_FILE", &*text(&file))]
    {
        let environment = vec![(name, value.to_owned())];
        let refusal = Start { environment, ..Start::default() }.on(&data).err().expect("refused");
        let empty = if value.is_empty() { name } else { value };
        assert!(refusal.stderr.contains(&format!("error: {empty} is empty: ")), "{}", refusal.stderr);
        assert_eq!(refusal.status, Some(2));
        assert!(!data.exists(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn running_control_plane_reports_a_damaged_database() {
    tokio::task::block_in_place(build_programs);
    let folder = tempfile::tempdir().expect("a folder");
    let (data, start) = (folder.path().join("data"), Start::default());
    let served = start.on(&data).expect("it serves");
    let token = served.first_admin().await;
    served.client(&token).create_project(&CreateProject { name: "lab".into() }).await.expect("made");
    served.end();
    let served = start.on(&data).expect("it serves");
    let file = data.join("gpuaas.db");
    let length = usize::try_from(file.metadata().expect("a file").len()).expect("it fits");
    let mut bytes = std::fs::read(&file).expect("read");
    bytes[4_096..].fill(0xa5);
    let mut database = std::fs::File::options().write(true).open(&file).expect("opened");
    std::io::Write::write_all(&mut database, &bytes[..length]).expect("written");
    let client = served.client(&token);
    eventually("the damage is not reported", async || {
        let _ = client.create_project(&CreateProject { name: "another".into() }).await;
        let ready = read_open(&served.ready, "/readyz?verbose").await;
        ready.status == 503 && ready.body.as_str().is_some_and(|text| text.contains("store_damaged"))
    })
    .await;
    let log = served.log();
    assert!(log.contains("gpuaas.db is damaged") && log.contains("restore a backup"), "{log}");
    drop(served);
    let refusal = start.on(&data).err().expect("refused");
    assert_eq!(refusal.code, "store_damaged", "{}", refusal.stderr);
    assert!(
        refusal.stderr.contains("gpuaas.db") && refusal.stderr.contains("gpuaas server restore"),
        "{}",
        refusal.stderr
    );
}

use super::*;
use crate::ports;

/// Runs the checks of a start on that folder, up to the sealing keys.
async fn start(folder: &Path, reinitialize: bool) -> Result<StartKind, ServerError> {
    let ports = ports::system();
    let options = ServerOptions { reinitialize, ..ServerOptions::local(folder.to_owned()) };
    let data = DataDir::open(folder)?;
    let beginning = start_kind(&data, &options, &*ports.clock).await?;
    beginning.sealing_keys(&data, &options, &*ports.entropy).map(|_| beginning)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn start_after_a_crash_before_the_first_rows_is_the_first_start() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(start(folder.path(), false).await.unwrap(), StartKind::First);
    let key = fs::read(folder.path().join("sealing.key")).unwrap();
    for file in ["", "a file that was not written", "an empty database"] {
        match file {
            "" => {}
            "an empty database" => {
                let ports = ports::system();
                let options = ServerOptions::local(folder.path().to_owned());
                let store = gpuaas_store::Store::open(&options.store(), ports.clock).await.unwrap();
                store.close().await;
            }
            _ => fs::write(folder.path().join("gpuaas.db"), "").unwrap(),
        }
        assert_eq!(start(folder.path(), false).await.unwrap(), StartKind::First, "{file}");
    }
    assert_eq!(fs::read(folder.path().join("sealing.key")).unwrap(), key, "only one key is created");
}

#[tokio::test]
async fn each_file_of_a_platform_without_its_store_is_reported_as_store_missing() {
    for name in
        ["replica.id", "ca.pem", "admin.token", "sealing.key", "sealing-next.key", "artifacts/a", "gpuaas.db-wal"]
    {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, [7; 32]).unwrap();
        for store in [None, Some("")] {
            if let Some(bytes) = store {
                fs::write(folder.path().join("gpuaas.db"), bytes).unwrap();
            }
            let before = names(folder.path());
            let refused = start(folder.path(), false).await.unwrap_err();
            assert!(matches!(refused, ServerError::StoreMissing { .. }), "{name}: {refused}");
            assert!(refused.to_string().contains(name.split('/').next().unwrap()), "{refused}");
            let mut after = names(folder.path());
            after.retain(|name| name != "lock" || before.contains(name));
            assert_eq!(after, before, "{name}");
            assert_eq!(fs::read(&path).unwrap(), [7; 32]);
        }
    }
}

#[tokio::test]
async fn configured_key_does_not_count_as_prior_use() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("sealing.key");
    fs::write(&key, [7; 32]).unwrap();
    let options = ServerOptions { sealing_key_file: Some(key), ..ServerOptions::local(folder.path().to_owned()) };
    let data = DataDir::open(folder.path()).unwrap();
    assert_eq!(start_kind(&data, &options, &*ports::system().clock).await.unwrap(), StartKind::First);
}

#[tokio::test]
async fn reinitialize_moves_old_files_and_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in
        [("replica.id", "r"), ("ca.pem", "c"), ("admin.token", "a"), ("gpuaas.db", ""), ("gpuaas.db-wal", "w")]
    {
        fs::write(folder.path().join(name), text).unwrap();
    }
    fs::write(folder.path().join("sealing.key"), [7; 32]).unwrap();
    assert_eq!(start(folder.path(), true).await.unwrap(), StartKind::First);
    let moved = names(folder.path()).into_iter().find(|name| name.starts_with(MOVED)).unwrap();
    let moved = folder.path().join(moved);
    assert_eq!(names(&moved), ["admin.token", "ca.pem", "gpuaas.db", "gpuaas.db-wal", "replica.id", "sealing.key"]);
    assert_eq!(fs::read(moved.join("sealing.key")).unwrap(), [7; 32]);
    assert_eq!(fs::read(moved.join("gpuaas.db-wal")).unwrap(), b"w");
    assert_ne!(fs::read(folder.path().join("sealing.key")).unwrap(), [7; 32], "the new platform has its own key");
    assert_eq!(start(folder.path(), false).await.unwrap(), StartKind::First, "no file of the old platform remains");
}

#[tokio::test]
async fn no_sealing_key_is_created_if_rows_exist() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(start(folder.path(), false).await.unwrap(), StartKind::First);
    let (ports, options) = (ports::system(), ServerOptions::local(folder.path().to_owned()));
    let store = gpuaas_store::Store::open(&options.store(), ports.clock.clone()).await.unwrap();
    let sealing = KeyFiles::of(&options).unwrap().keys().unwrap();
    crate::bootstrap::keys(&store, sealing, &ports).await.unwrap();
    store.close().await;
    assert_eq!(start(folder.path(), false).await.unwrap(), StartKind::Later);
    let refused = start(folder.path(), true).await.unwrap_err();
    assert!(matches!(refused, ServerError::PlatformExists { .. }), "{refused}");
    for is_marked in [true, false] {
        let _ = fs::remove_file(folder.path().join("sealing.key"));
        if !is_marked {
            finish_first_start(&DataDir::open(folder.path()).unwrap()).unwrap();
        }
        let refused = start(folder.path(), false).await.unwrap_err();
        assert!(matches!(refused, ServerError::SealingKeyMissing { .. }), "{refused}");
        assert!(!folder.path().join("sealing.key").exists());
    }
}

use super::*;

const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

fn stream(parts: &[&'static str]) -> BoxStream<'static, io::Result<Bytes>> {
    let parts: Vec<_> = parts.iter().map(|part| Ok(Bytes::from_static(part.as_bytes()))).collect();
    futures::stream::iter(parts).boxed()
}

async fn text(store: &ArtifactStore, offset: u64) -> String {
    let (_, bytes) = store.get(HELLO, offset).await.unwrap().unwrap();
    String::from_utf8(bytes.try_collect::<Vec<_>>().await.unwrap().concat()).unwrap()
}

fn files(folder: &Path) -> Vec<String> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn stored_artifact_is_read_from_any_offset() {
    let folder = tempfile::tempdir().unwrap();
    let store = ArtifactStore::open(folder.path(), Writers::One).unwrap();
    assert!(!store.has(HELLO).await.unwrap() && store.get(HELLO, 0).await.unwrap().is_none());
    assert_eq!(store.put_verified("a", HELLO, stream(&["he", "llo"])).await.unwrap(), 5);
    assert_eq!((text(&store, 0).await, text(&store, 3).await), ("hello".into(), "lo".into()));
    assert_eq!((text(&store, 5).await, text(&store, 99).await), (String::new(), String::new()));
    assert_eq!(store.verify(HELLO).await.unwrap(), 5);
}

#[tokio::test]
async fn artifact_is_removed_idempotently() {
    let folder = tempfile::tempdir().unwrap();
    let store = ArtifactStore::open(folder.path(), Writers::One).unwrap();
    store.put_verified("a", HELLO, stream(&["hello"])).await.unwrap();
    for _ in 0..2 {
        store.remove(HELLO).await.unwrap();
        assert!(!store.has(HELLO).await.unwrap());
    }
    assert_eq!(files(folder.path()), [""; 0]);
}

#[tokio::test]
async fn bytes_with_a_wrong_digest_are_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let store = ArtifactStore::open(folder.path(), Writers::One).unwrap();
    let wrong = store.put_verified("a", HELLO, stream(&["hallo"])).await;
    assert!(matches!(wrong, Err(ArtifactError::DigestMismatch { .. })), "{wrong:?}");
    let broken = futures::stream::iter([Ok(Bytes::from_static(b"hello")), Err(io::Error::other("lost"))]);
    assert!(store.put_verified("a", HELLO, broken).await.is_err());
    assert!(!store.has(HELLO).await.unwrap());
    assert_eq!(files(folder.path()), [""; 0]);
}

#[tokio::test]
async fn unfinished_upload_is_invisible_and_removed_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let store = ArtifactStore::open(folder.path(), Writers::One).unwrap();
    let upload = store.objects.put_multipart(&key(HELLO).unwrap()).await.unwrap();
    // Simulates a crash, which runs no destructor.
    std::mem::forget(upload);
    assert_eq!(files(folder.path()).len(), 1);
    assert!(!store.has(HELLO).await.unwrap());
    ArtifactStore::open(folder.path(), Writers::Several).unwrap();
    assert_ne!(files(folder.path()), [""; 0], "another process may be writing it");
    ArtifactStore::open(folder.path(), Writers::One).unwrap();
    assert_eq!(files(folder.path()), [""; 0]);
}

#[tokio::test]
async fn intact_artifact_is_kept_and_corrupted_one_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let store = ArtifactStore::open(folder.path(), Writers::One).unwrap();
    store.put_verified("a", HELLO, stream(&["hello"])).await.unwrap();
    let must_not_be_read = futures::stream::iter([Err(io::Error::other("must not be read"))]);
    assert_eq!(store.put_verified("a", HELLO, must_not_be_read).await.unwrap(), 5);
    for corrupted in ["jello", "hell", ""] {
        std::fs::write(folder.path().join(HELLO), corrupted).unwrap();
        let found = store.verify(HELLO).await;
        assert!(matches!(found, Err(ArtifactError::DigestMismatch { .. })), "{found:?}");
        store.put_verified("a", HELLO, stream(&["hello"])).await.unwrap();
        assert_eq!(text(&store, 0).await, "hello");
    }
}

#[tokio::test]
async fn key_must_be_a_digest() {
    let folder = tempfile::tempdir().unwrap();
    let store = ArtifactStore::open(folder.path(), Writers::One).unwrap();
    for bad in ["", "../etc/passwd", &HELLO.to_uppercase(), &HELLO[1..]] {
        assert!(matches!(store.get(bad, 0).await, Err(ArtifactError::InvalidDigest(_))), "{bad}");
    }
}

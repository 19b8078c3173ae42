use futures::future::BoxFuture;
use gpuaas_engine::record_proof;
use gpuaas_model::{Clock, Coded, Role, Runtime, SessionProof};
use gpuaas_store::{BrowserSessionRecord, StoreOptions, TokenRecord};
use gpuaas_test_support::{DatabaseFile, SeededEntropy};
use gpuaas_trust::SealingKey;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

use super::*;

const BEGIN: Timestamp = Timestamp::from_millis(1_000_000);

/// A clock that the test advances, and that reports the deadlines of sleepers.
struct ManualClock {
    now: watch::Sender<Timestamp>,
    waits: mpsc::UnboundedSender<u64>,
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.now.borrow()
    }
}

impl Runtime for ManualClock {
    fn spawn(&self, _: &'static str, _: BoxFuture<'static, ()>) {}

    fn elapsed(&self) -> Duration {
        self.now().since(BEGIN)
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        self.waits.send(at.since(BEGIN).as_secs()).unwrap();
        let mut now = self.now.subscribe();
        Box::pin(async move {
            let _ = now.wait_for(|now| *now >= at).await;
        })
    }
}

/// A stream of a token, in a store that two processes have open. Neither receives the other's notifications.
struct OpenStream {
    time: Arc<ManualClock>,
    waits: mpsc::UnboundedReceiver<u64>,
    token: TokenId,
    store: Store,
    other: Store,
    stream: JoinHandle<()>,
    _database: DatabaseFile,
}

impl OpenStream {
    async fn with_token_ttl_seconds(seconds: u64) -> Self {
        Self::open(seconds, None).await
    }

    /// Opens a stream of a browser whose session ends after this time without use.
    async fn of_session_idle_after_seconds(seconds: u64) -> Self {
        let ends_at = BEGIN.plus(Duration::from_secs(seconds));
        let session = BrowserSessionRecord {
            id: BrowserSessionId::from_uuid(uuid::Uuid::from_u128(2)),
            sha256: "1".repeat(64),
            token: TokenId::from_uuid(uuid::Uuid::from_u128(1)),
            proof: SessionProof::Token,
            user_agent: None,
            created_at: BEGIN,
            last_used_at: BEGIN,
            idle_expires_at: ends_at,
            expires_at: ends_at.plus(Duration::from_secs(3_600)),
        };
        Self::open(3_600, Some(session)).await
    }

    async fn open(seconds: u64, session: Option<BrowserSessionRecord>) -> Self {
        let database = DatabaseFile::new();
        let options = StoreOptions { url: database.url() };
        let (send, waits) = mpsc::unbounded_channel();
        let time = Arc::new(ManualClock { now: watch::Sender::new(BEGIN), waits: send });
        let store = Store::open(&options, time.clone()).await.unwrap();
        let other = Store::open(&options, time.clone()).await.unwrap();
        let proof = record_proof(SealingKey::new(&[7; 32]).unwrap().into());
        [&store, &other].into_iter().for_each(|store| store.set_record_proof(proof.clone()));
        let token = TokenId::from_uuid(uuid::Uuid::from_u128(1));
        let record = TokenRecord {
            id: token,
            name: "robot".to_owned(),
            sha256: "0".repeat(64),
            role: Role::PlatformOperator,
            project: None,
            service_account: None,
            workload: None,
            created_at: BEGIN,
            expires_at: Some(BEGIN.plus(Duration::from_secs(seconds))),
            revoked_at: None,
            is_bootstrap: false,
        };
        let mut tx = store.begin().await.unwrap();
        tx.insert_token(&record).await.unwrap();
        if let Some(session) = &session {
            tx.insert_browser_session(session).await.unwrap();
        }
        tx.commit().await.unwrap();
        let session_id = session.map(|session| session.id);
        let ports = Ports { clock: time.clone(), entropy: Arc::new(SeededEntropy::of_seed(7)), runtime: time.clone() };
        let watching = store.clone();
        let stream = tokio::spawn(async move { until_token_ends(&watching, &ports, token, session_id).await });
        Self { time, waits, token, store, other, stream, _database: database }
    }

    /// Returns the deadline, in seconds, for which the stream waits after its look-up.
    async fn waits(&mut self) -> u64 {
        self.waits.recv().await.unwrap()
    }

    fn advance(&self, seconds: u64) {
        self.time.now.send_modify(|now| *now = now.plus(Duration::from_secs(seconds)));
    }

    async fn revoke(&self, through: &Store) {
        let mut tx = through.begin().await.unwrap();
        tx.revoke_token(self.token, self.time.now()).await.unwrap();
        tx.commit().await.unwrap();
    }
}

#[tokio::test]
async fn stream_ends_when_its_token_is_revoked() {
    let mut open = OpenStream::with_token_ttl_seconds(3_600).await;
    assert_eq!(open.waits().await, 30);
    open.revoke(&open.store).await;
    tokio::time::timeout(Duration::from_secs(20), open.stream).await.expect("it ends immediately").unwrap();
}

#[tokio::test]
async fn stream_without_notification_ends_within_thirty_seconds() {
    let mut open = OpenStream::with_token_ttl_seconds(3_600).await;
    assert_eq!(open.waits().await, 30);
    open.revoke(&open.other).await;
    open.advance(30);
    tokio::time::timeout(Duration::from_secs(20), open.stream).await.expect("it looked again").unwrap();
}

#[tokio::test]
async fn stream_ends_when_its_token_expires() {
    let mut open = OpenStream::with_token_ttl_seconds(40).await;
    assert_eq!(open.waits().await, 30);
    open.advance(30);
    assert_eq!(open.waits().await, 40, "it continues for the remaining time");
    open.advance(10);
    tokio::time::timeout(Duration::from_secs(20), open.stream).await.expect("it ends with its token").unwrap();
}

#[tokio::test]
async fn stream_of_a_browser_ends_when_its_session_is_revoked() {
    let mut open = OpenStream::of_session_idle_after_seconds(1_800).await;
    assert_eq!(open.waits().await, 30);
    let mut tx = open.store.begin().await.unwrap();
    let session = tx.browser_sessions_of(open.token).await.unwrap().remove(0);
    tx.delete_browser_session(&session).await.unwrap();
    tx.commit().await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), open.stream).await.expect("it ends immediately").unwrap();
}

#[tokio::test]
async fn stream_of_a_browser_ends_with_its_session() {
    let mut open = OpenStream::of_session_idle_after_seconds(40).await;
    assert_eq!(open.waits().await, 30);
    open.advance(30);
    assert_eq!(open.waits().await, 40, "it continues for the remaining time");
    open.advance(10);
    tokio::time::timeout(Duration::from_secs(20), open.stream).await.expect("it ends with its session").unwrap();
}

#[test]
fn streams_per_token_are_limited() {
    let streams = Arc::new(Streams::default());
    let (ada, bob) = (TokenId::from_uuid(uuid::Uuid::from_u128(1)), TokenId::from_uuid(uuid::Uuid::from_u128(2)));
    let mut held: Vec<StreamPermit> = (0..PER_TOKEN_MAX).map(|_| streams.take(ada).expect("a permit")).collect();
    assert_eq!(streams.take(ada).err().expect("no permit").cause().code(), Code::RateLimited);
    assert!(streams.take(bob).is_ok());
    held.pop();
    held.push(streams.take(ada).expect("a permit is free"));
    held.clear();
    assert!(streams.0.lock().unwrap().is_empty(), "tokens without a stream are dropped");
}

//! Engines over a store of their own, with an accelerated clock.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures::{FutureExt, future::BoxFuture};
use gpuaas_engine::{
    AppEntry, Caller, Catalog, Endpoints, Engine, EngineParts, KeepFor, Keys, Retention, commands,
    effects::Tunnel,
    ownership::NodeAccess,
    port::{ArchiveFile, ArchiveFiles, ArchiveReadError, NodeTunnels, Ports, ReimageHook},
    stored_authority,
};
use gpuaas_model::{
    AuditAction, Clock, Connectivity, CorrelationId, KeyState, NodeId, NodeState, Principal, ReplicaId, Role, Runtime,
    Timestamp, TokenId,
};
use gpuaas_store::{AuditFilter, Gate, NodeKeyRecord, SessionRecord, Store, StoreOptions};
pub(crate) use gpuaas_test_support::eventually;
use gpuaas_test_support::{DatabaseFile, SeededEntropy};
use gpuaas_trust::{Authority, SealingKey, TokenKey};
use uuid::Uuid;

use crate::{kit::Kit, nodes::Scripted};

/// Speed of the test clock relative to real time.
const SPEED: u32 = 20;
/// Speed of the test clock for tests with timeouts of a few seconds, part of which a busy machine may consume.
const LOW_SPEED: u32 = 3;

/// A clock that starts `offset` after a fixed time and runs `speed` times as fast as real time; also the engine's runtime.
struct FastClock {
    began: Instant,
    offset: Duration,
    speed: u32,
    /// Seconds by which a test has advanced it.
    advanced: Arc<AtomicU64>,
}

impl Clock for FastClock {
    fn now(&self) -> Timestamp {
        let advanced = Duration::from_secs(self.advanced.load(Ordering::Relaxed));
        Timestamp::from_millis(1_800_000_000_000).plus(self.offset).plus(self.elapsed()).plus(advanced)
    }
}

impl Runtime for FastClock {
    fn spawn(&self, _: &'static str, future: BoxFuture<'static, ()>) {
        tokio::spawn(future);
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed() * self.speed
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        tokio::time::sleep(at.since(self.now()) / self.speed).boxed()
    }
}

struct NoTunnels;

#[async_trait]
impl NodeTunnels for NoTunnels {
    async fn open(&self, _: &NodeAccess, _: u16) -> std::io::Result<Box<dyn Tunnel>> {
        Err(std::io::Error::other("there are no tunnels here"))
    }
}

/// Archive files, keyed by SHA-256 digest.
#[derive(Default)]
pub(crate) struct Files {
    pub(crate) kept: Mutex<BTreeMap<String, String>>,
    /// Makes every write fail.
    pub(crate) is_full: AtomicBool,
    /// Makes every read fail.
    pub(crate) is_unreadable: AtomicBool,
    /// Writes the next file but reports an error, as if the process had died before it recorded the file.
    pub(crate) dies_after: AtomicBool,
}

#[async_trait]
impl ArchiveFiles for Files {
    async fn store(&self, lines: Vec<u8>) -> Result<ArchiveFile, String> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err("the disk is full".to_owned());
        }
        let (sha256, size_bytes) = (gpuaas_trust::sha256_hex(&lines), lines.len() as u64);
        self.kept.lock().unwrap().insert(sha256.clone(), String::from_utf8(lines).unwrap());
        if self.dies_after.swap(false, Ordering::Relaxed) {
            return Err("it died".to_owned());
        }
        Ok(ArchiveFile { sha256, size_bytes })
    }

    async fn read(&self, sha256: &str) -> Result<Vec<u8>, ArchiveReadError> {
        if self.is_unreadable.load(Ordering::Relaxed) {
            return Err(ArchiveReadError::Failed("the disk does not respond".to_owned()));
        }
        let kept = self.kept.lock().unwrap().get(sha256).cloned();
        kept.map(String::into_bytes).ok_or(ArchiveReadError::Missing)
    }
}

/// Engines that share one store.
pub(crate) struct Engines {
    pub(crate) nodes: Arc<Scripted>,
    pub(crate) kit: Arc<Kit>,
    pub(crate) files: Arc<Files>,
    pub(crate) engine: Arc<Engine>,
    /// Seconds by which the clock of `engine` was advanced.
    advanced: Arc<AtomicU64>,
    database: DatabaseFile,
}

impl Engines {
    /// Creates one engine with an active signing key and certificate authority.
    pub(crate) async fn new() -> Self {
        Self::at_speed(SPEED).await
    }

    /// Creates the same engines with a clock that runs at [`LOW_SPEED`].
    pub(crate) async fn with_low_speed() -> Self {
        Self::at_speed(LOW_SPEED).await
    }

    async fn at_speed(speed: u32) -> Self {
        let (nodes, database) = (Arc::new(Scripted::default()), DatabaseFile::new());
        let (kit, files) = (Arc::new(Kit::new()), Arc::new(Files::default()));
        let advanced = Arc::new(AtomicU64::new(0));
        let start = Start { speed, advanced: advanced.clone(), ..Start::of(1) };
        let engine = engine(&database, (&nodes, &kit, &files), start).await;
        let now = engine.ports().clock.now();
        let made = engine.keys().generate_signing_key(KeyState::Active, 1, now, &*engine.ports().entropy).unwrap();
        let mut tx = engine.store().begin().await.unwrap();
        tx.insert_signing_key(&made).await.unwrap();
        // Uses the database's clock, as later authorities do.
        let (keys, now) = (engine.keys(), tx.database_now().await.unwrap());
        let authority = stored_authority(keys.sealing(), &keys.authority(), KeyState::Active, 1, now).unwrap();
        tx.insert_authority(&authority).await.unwrap();
        tx.commit().await.unwrap();
        Self { nodes, kit, files, engine, advanced, database }
    }

    /// Advances the clock of the first engine. Timers that run already are not affected.
    pub(crate) fn advance(&self, by: Duration) {
        self.advanced.fetch_add(by.as_secs(), Ordering::Relaxed);
    }

    /// Starts another engine over the same rows, with a clock one hour behind the first engine's.
    pub(crate) async fn one_hour_behind(&self) -> Arc<Engine> {
        self.another(Start { offset: Duration::ZERO, ..Start::of(2) }).await
    }

    /// Starts another engine over the same rows, like a process that starts after the first one.
    pub(crate) async fn successor(&self) -> Arc<Engine> {
        self.another(Start::of(2)).await
    }

    /// Starts the same engine as [`Self::successor`], with `gate` awaited before every change and every reader of the database.
    pub(crate) async fn successor_behind(&self, gate: Gate) -> Arc<Engine> {
        self.another(Start { gate: Some(gate), ..Start::of(2) }).await
    }

    /// Starts another engine over the same rows, with a clock two hours ahead of the first engine's.
    pub(crate) async fn later(&self) -> Arc<Engine> {
        self.another(Start { offset: Duration::from_secs(3 * 3_600), ..Start::of(2) }).await
    }

    /// Starts another engine over the same rows, with a reimage hook.
    pub(crate) async fn with_reimage_hook(&self, hook: Arc<dyn ReimageHook>) -> Arc<Engine> {
        // Each engine gets its own number, hence its own random bytes and ids.
        static STARTED: AtomicU64 = AtomicU64::new(3);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        self.another(Start { reimage_hook: Some(hook), ..Start::of(number) }).await
    }

    async fn another(&self, start: Start) -> Arc<Engine> {
        engine(&self.database, (&self.nodes, &self.kit, &self.files), start).await
    }

    pub(crate) fn store(&self) -> &Store {
        self.engine.store()
    }

    /// Runs SQL without the store, as a person with access to the database could.
    pub(crate) fn execute_sql(&self, sql: &str) {
        let connection = rusqlite::Connection::open(self.database.path()).unwrap();
        connection.execute_batch(sql).unwrap();
    }

    /// Creates an active, connected node that does not yet hold the current keys.
    pub(crate) async fn node(&self, name: &str) -> NodeId {
        let named = name.parse().unwrap();
        let registered = commands::node::register(&self.engine, &admin(), named, None, BTreeMap::new()).await;
        let node = registered.unwrap().0.id;
        let session = SessionRecord {
            node,
            connection: Uuid::from_u128(node.as_uuid().as_u128() ^ 1),
            instance: name.to_owned(),
            replica: self.engine.replica(),
            address: None,
            since: self.engine.ports().clock.now(),
            key_set_version: 0,
            keys_given_at: None,
        };
        let mut tx = self.store().begin().await.unwrap();
        tx.put_session(&session).await.unwrap();
        let mut record = tx.node(node).await.unwrap();
        (record.state, record.connectivity) = (NodeState::Active, Connectivity::Connected);
        tx.update_node(&record).await.unwrap();
        let (sha256, created_at) = (format!("{:064x}", node.as_uuid().as_u128()), self.engine.ports().clock.now());
        tx.insert_node_key(&NodeKeyRecord { sha256, node, epoch: record.epoch, created_at }).await.unwrap();
        tx.expire_enrollments(node, self.engine.ports().clock.now()).await.unwrap();
        tx.commit().await.unwrap();
        node
    }

    /// Returns the recorded version of the key set that a connected node holds.
    pub(crate) async fn key_set_version_of(&self, node: NodeId) -> u64 {
        self.store().read().await.unwrap().session(node).await.unwrap().expect("it is connected").key_set_version
    }

    /// Returns the states of all signing keys, sorted by name.
    pub(crate) async fn states(&self) -> Vec<KeyState> {
        let keys = self.store().read().await.unwrap().signing_keys().await.unwrap();
        let mut states: Vec<KeyState> = keys.into_iter().map(|stored| stored.key.state).collect();
        states.sort_by_key(|state| state.as_str());
        states
    }

    /// Counts the audit records of an action.
    pub(crate) async fn recorded(&self, action: AuditAction) -> usize {
        let filter = AuditFilter { action: Some(action), ..AuditFilter::default() };
        self.store().read().await.unwrap().audits(&filter).await.unwrap().len()
    }

    /// Runs the engine's key rotation loop in the background.
    pub(crate) fn run_key_rotation(&self) {
        let engine = self.engine.clone();
        tokio::spawn(async move { engine.run_key_rotation().await });
    }
}

/// Settings in which one engine differs from another.
struct Start {
    /// Unique per engine; determines its replica id and seeds its entropy.
    number: u64,
    offset: Duration,
    speed: u32,
    reimage_hook: Option<Arc<dyn ReimageHook>>,
    gate: Option<Gate>,
    advanced: Arc<AtomicU64>,
}

impl Start {
    fn of(number: u64) -> Self {
        let (offset, advanced) = (Duration::from_secs(3_600), Arc::default());
        Self { number, offset, speed: SPEED, reimage_hook: None, gate: None, advanced }
    }
}

async fn engine(
    database: &DatabaseFile,
    (nodes, kit, files): (&Arc<Scripted>, &Arc<Kit>, &Arc<Files>),
    Start { number, offset, speed, reimage_hook, gate, advanced }: Start,
) -> Arc<Engine> {
    let options = StoreOptions { url: database.url() };
    let time = Arc::new(FastClock { began: Instant::now(), offset, speed, advanced });
    let ports = Ports { clock: time.clone(), entropy: Arc::new(SeededEntropy::of_seed(number)), runtime: time };
    let mut store = Store::open(&options, ports.clock.clone()).await.unwrap();
    if let Some(gate) = gate {
        store = store.with_gate(gate);
    }
    let authority = Authority::generate("cp", ports.clock.now()).unwrap();
    Engine::new(EngineParts {
        replica: ReplicaId::from_uuid(Uuid::from_u128(u128::from(number))),
        store,
        ports,
        catalog: Catalog::default().with(AppEntry { app: kit.clone(), effects: kit.clone() }),
        keys: Keys::new("cp".to_owned(), authority, SealingKey::new(&[7; 32]).unwrap(), TokenKey::new(&[7; 32])),
        nodes: nodes.clone(),
        tunnels: Arc::new(NoTunnels),
        endpoints: Endpoints { api_url: String::new(), channel: String::new(), replica: None },
        reimage_hook,
        archives: files.clone(),
        retention: Retention {
            operations: KeepFor::Duration(Duration::from_secs(600)),
            events: KeepFor::Duration(Duration::from_secs(600)),
            audit: KeepFor::Duration(Duration::from_secs(600)),
            ..Retention::DEFAULT
        },
    })
}

/// Returns a platform admin as the caller.
pub(crate) fn admin() -> Caller {
    Caller {
        principal: Principal {
            token: TokenId::from_uuid(Uuid::from_u128(7)),
            name: "ada".to_owned(),
            role: Role::PlatformAdmin,
            project: None,
            service_account: None,
            workload: None,
        },
        correlation: CorrelationId::from_uuid(Uuid::from_u128(8)),
        is_dry_run: false,
        expected_plan: None,
        session: None,
    }
}

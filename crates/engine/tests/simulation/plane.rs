//! A simulated control plane: the real engine with the real app, started as the server starts them.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{Arc, OnceLock, Weak},
    task::{Context, Poll},
    time::Duration,
};

use gpuaas_app_rke2::Rke2;
use gpuaas_engine::{
    AppEntry, Catalog, Endpoints, Engine, EngineParts, KeepFor, Keys, Retention,
    effects::Tunnel,
    ownership::NodeAccess,
    port::{ArchiveFile, ArchiveFiles, ArchiveReadError, NodeTunnels, Ports},
};
use gpuaas_model::{KeyState, ReplicaId, Timestamp};
use gpuaas_store::{Eviction, StoreError};
use gpuaas_trust::{Authority, SealingKey, SigningKeySet, TaskSigner, TokenKey};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    cluster::Cluster,
    network::Network,
    node::Link,
    oracles::{self, Effect, Oracle},
    scheduler::{Process, ProcessRuntime, SimulatedClock},
    simulation::{Scenario, Simulation},
};
use gpuaas_test_support::SeededEntropy;

/// The control plane's id, in certificates and node identities.
pub(crate) const CONTROL_PLANE: &str = "simulated";
const SIGNING_SEED: [u8; 32] = [7; 32];
const SEALING_KEY: [u8; 32] = [9; 32];

/// A running control-plane process that serves requests.
#[derive(Clone)]
pub(crate) struct Plane {
    pub(crate) slot: usize,
    pub(crate) name: String,
    pub(crate) process: Process,
    pub(crate) engine: Arc<Engine>,
}

/// Returns the signer that every control plane uses.
pub(crate) fn signer() -> &'static TaskSigner {
    static SIGNER: OnceLock<TaskSigner> = OnceLock::new();
    SIGNER.get_or_init(|| TaskSigner::from_seed(&SIGNING_SEED))
}

/// Returns the key set with which agents verify tasks.
pub(crate) fn signing_keys() -> &'static SigningKeySet {
    static KEYS: OnceLock<SigningKeySet> = OnceLock::new();
    KEYS.get_or_init(|| SigningKeySet {
        version: 1,
        keys: vec![signer().public(KeyState::Active)],
        expires_at: Timestamp::from_millis(i64::MAX),
        authorities: Vec::new(),
    })
}

/// Returns the keys of a control plane. All simulations share one certificate authority, because certificates are not simulated.
fn keys() -> Keys {
    static AUTHORITY: OnceLock<(String, String)> = OnceLock::new();
    let (certificate, key) = AUTHORITY.get_or_init(|| {
        let made = Authority::generate(CONTROL_PLANE, Simulation::START).expect("an authority is made");
        (made.certificate_pem().to_owned(), made.key_pem().to_string())
    });
    let authority = Authority::from_pem(certificate, key).expect("it is what was made");
    let sealing = SealingKey::new(&SEALING_KEY).expect("it has 32 bytes");
    Keys::new(CONTROL_PLANE.to_owned(), authority, sealing, TokenKey::new(&[7; 32]))
}

/// Returns the proof that authenticates records, the same for every control plane.
pub(crate) fn proof() -> Arc<dyn gpuaas_store::RecordProof> {
    keys().proof()
}

/// Starts a control plane as the server does: it evicts the replica of its predecessor, joins, and continues open operations.
pub(crate) fn start(simulation: &Arc<Simulation>, slot: usize, predecessor: Option<ReplicaId>) {
    let process = simulation.scheduler.process();
    let within = simulation.clone();
    simulation.expect_plane(slot, process);
    simulation.scheduler.spawn(process, async move {
        if let Err(error) = serve(&within, slot, process, predecessor).await {
            within.report_violation(Oracle::Run, format!("a control plane ended: {error}"));
        }
    });
}

async fn serve(
    simulation: &Arc<Simulation>,
    slot: usize,
    process: Process,
    predecessor: Option<ReplicaId>,
) -> Result<(), StoreError> {
    let scheduler = &simulation.scheduler;
    let ports = Ports {
        clock: Arc::new(SimulatedClock(scheduler.clone())),
        entropy: Arc::new(SeededEntropy::new(simulation.fork())),
        runtime: Arc::new(ProcessRuntime { scheduler: scheduler.clone(), process }),
    };
    let replica = ReplicaId::generate(&*ports.clock, &*ports.entropy);
    if let Some(predecessor) = predecessor {
        simulation.store.evict_replica(predecessor, Eviction::Unconditional).await?;
        oracles::check_eviction(simulation, predecessor).await?;
    }
    let keys = keys();
    ensure_signing_key(simulation, &keys).await?;
    let cluster = Cluster { simulation: Arc::downgrade(simulation), plane: process };
    let app = AppEntry { app: Arc::new(Rke2::default()), effects: Arc::new(cluster) };
    let engine = Engine::new(EngineParts {
        replica,
        store: simulation.store.clone().with_gate(simulation.gate(process)),
        ports,
        catalog: Catalog::default().with(app),
        keys,
        nodes: Arc::new(Network { simulation: Arc::downgrade(simulation), plane: process }),
        tunnels: Arc::new(EchoTunnels { simulation: Arc::downgrade(simulation) }),
        endpoints: Endpoints {
            api_url: format!("https://cp-{slot}:7443"),
            channel: format!("cp-{slot}:7444"),
            replica: Some(format!("cp-{slot}:7445")),
        },
        reimage_hook: None,
        archives: Arc::new(Archives { simulation: Arc::downgrade(simulation) }),
        retention: Retention { operations: HISTORY, events: HISTORY, audit: HISTORY, ..Retention::DEFAULT },
    });
    engine.join().await?;
    let name = format!("cp-{slot}");
    simulation.log(&format!("{name} serves as {replica}"));
    simulation.plane_serves(Plane { slot, name, process, engine: engine.clone() });
    let alive = engine.clone();
    simulation.scheduler.spawn(process, async move { alive.keep_alive().await });
    let watching = engine.clone();
    simulation.scheduler.spawn(process, async move { watching.watch_access().await });
    if simulation.faults().follows_clusters {
        let following = engine.clone();
        simulation.scheduler.spawn(process, async move { following.watch_clusters().await });
    }
    if simulation.scenario == Scenario::TwoTenants {
        let keeping = engine.clone();
        simulation.scheduler.spawn(process, async move { keeping.run_retention().await });
        let sealing = engine.clone();
        simulation.scheduler.spawn(process, async move { sealing.run_audit_sealer().await });
    }
    engine.run().await;
    Ok(())
}

/// Records the signing key if none is stored yet.
async fn ensure_signing_key(simulation: &Arc<Simulation>, keys: &Keys) -> Result<(), StoreError> {
    simulation.store.set_record_proof(keys.proof());
    let mut tx = simulation.store.begin().await?;
    if tx.signing_keys().await?.is_empty() {
        let stored =
            keys.stored_signing_key(signer(), KeyState::Active, 1, Simulation::START).expect("a seed can be sealed");
        tx.insert_signing_key(&stored).await?;
        tx.commit().await?;
    }
    Ok(())
}

/// Retention of all history. Only the scenario with two tenants runs it: the oracles of the others read all history.
const HISTORY: KeepFor = KeepFor::Duration(Duration::from_secs(60));

/// Stores archive files in the simulation, so that they survive control planes.
struct Archives {
    simulation: Weak<Simulation>,
}

#[async_trait::async_trait]
impl ArchiveFiles for Archives {
    async fn store(&self, lines: Vec<u8>) -> Result<ArchiveFile, String> {
        let simulation = self.simulation.upgrade().ok_or("the simulation is over")?;
        // Waits as long as a disk write; other tasks run, and the process may be killed.
        simulation.scheduler.sleep(Duration::from_millis(simulation.between(1, 200))).await;
        let (sha256, size_bytes) = (gpuaas_trust::sha256_hex(&lines), lines.len() as u64);
        simulation.keep_archive(&sha256, lines);
        Ok(ArchiveFile { sha256, size_bytes })
    }

    async fn read(&self, sha256: &str) -> Result<Vec<u8>, ArchiveReadError> {
        let over = || ArchiveReadError::Failed("the simulation is over".to_owned());
        let simulation = self.simulation.upgrade().ok_or_else(over)?;
        simulation.scheduler.sleep(Duration::from_millis(simulation.between(1, 50))).await;
        simulation.archive_file(sha256).ok_or(ArchiveReadError::Missing)
    }
}

/// Opens tunnels that echo every byte while the node's connection is up.
struct EchoTunnels {
    simulation: Weak<Simulation>,
}

struct EchoTunnel {
    simulation: Weak<Simulation>,
    access: NodeAccess,
    link: Link,
    echo: VecDeque<u8>,
}

#[async_trait::async_trait]
impl NodeTunnels for EchoTunnels {
    async fn open(&self, access: &NodeAccess, _port: u16) -> io::Result<Box<dyn Tunnel>> {
        let broken = || io::Error::other("the node has no channel");
        let simulation = self.simulation.upgrade().ok_or_else(broken)?;
        let link = simulation.node(access.node().node).link().filter(|link| link.enrolled == access.node());
        let link = link.ok_or_else(broken)?;
        Ok(Box::new(EchoTunnel {
            simulation: self.simulation.clone(),
            access: access.clone(),
            link,
            echo: VecDeque::new(),
        }))
    }
}

impl EchoTunnel {
    fn check(&self) -> io::Result<()> {
        if self.link.ended.is_cancelled() { Err(io::Error::other("the node's channel ended")) } else { Ok(()) }
    }
}

impl AsyncRead for EchoTunnel {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        if let Some(byte) = self.echo.pop_front() {
            into.put_slice(&[byte]);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for EchoTunnel {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        if let Some(simulation) = self.simulation.upgrade() {
            let project = self.access.holding().map(|holding| holding.project);
            oracles::check_effect(&simulation, Effect::Tunnel(self.access.node(), project));
            simulation.count("tunnel bytes");
        }
        self.echo.extend(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Simulation {
    /// The simulated time at which every seed starts.
    pub(crate) const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
}

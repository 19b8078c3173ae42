//! Runs the control plane as one process: opens its files and database, connects the parts, listens, and shuts down in order.
//!
//! Deliberately absent: decisions. `planner` and `engine` make them; this crate only wires.

mod archives;
mod backend;
mod backup;
mod bootstrap;
mod certificates;
mod channel_nodes;
mod data_dir;
mod error;
mod first_admin;
mod history;
mod https;
mod journals;
mod option_problems;
mod options;
pub mod ports;
mod prior_use;
mod progress;
mod recording;
mod reimage;
mod replicas;
mod responses;
mod sealing_key;
mod sockets;
mod verify;

pub use backup::{Manifest, Restored, backup, restore};
pub use bootstrap::api_document;
pub use data_dir::{CA_FILE, write_private};
pub use error::{BackupError, ServerError};
pub use first_admin::{OneTimeAdmin, recover_admin};
pub use gpuaas_api::{Rates, SUMS_FILE};
pub use gpuaas_app_rke2::Deadlines;
pub use gpuaas_artifacts::{Network, SYSTEM_CA_BUNDLE, TrustedKey};
pub use gpuaas_engine::{KeepFor, Retention, RevokedCredentials, RevokedNode};
pub use gpuaas_store::{Finding, FindingKind};
pub use history::{AcceptedHistory, accept_history, preview_accept_history};
pub use options::ServerOptions;
pub use sealing_key::{NextSealingKey, next_sealing_key};
pub use verify::{Verified, verify};

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use futures::FutureExt;
use gpuaas_api::{ApiOptions, ApiState, Install};
use gpuaas_artifacts::Importer;
use gpuaas_channel::{Channel, ChannelOptions};
use gpuaas_crash_points::{Point, StartStage, reach};
use gpuaas_engine::{Endpoints, Engine, EngineParts};
use gpuaas_model::ReplicaId;
use gpuaas_store::{Eviction, Store};
use gpuaas_trust::{ReplicaIdentity, api_server_config, channel_server_config};
use tokio::{net::TcpListener, sync::Notify};
use tokio_util::sync::CancellationToken;

use crate::{
    archives::Archives,
    backend::Backend,
    certificates::Certificates,
    channel_nodes::{ChannelNodes, ChannelTunnels},
    data_dir::DataDir,
    history::HistoryCheck,
    journals::ChannelJournals,
    prior_use::StartKind,
    reimage::HookProgram,
    replicas::{ReplicaListener, Sessions},
    sealing_key::KeyFiles,
};

/// Longest time to record the last audit entries at shutdown, so that an unreachable store does not delay the exit.
const LAST_AUDIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A running control plane.
pub struct ControlPlane {
    /// URL of the API, for example `https://127.0.0.1:7443`.
    pub url: String,
    /// PEM file with the authorities' certificates, for clients. Rewritten when the authority is rotated.
    pub ca_file: PathBuf,
    /// File of a one-time token that can be exchanged for a platform admin's token, if there is one.
    pub one_time_admin: Option<PathBuf>,
    /// When notified, the control plane loads the next sealing key from its file.
    pub reload: Arc<Notify>,
    stop: CancellationToken,
    running: tokio::task::JoinSet<()>,
    state: ApiState,
    store: Store,
    /// Holds the lock of the data directory.
    _data: DataDir,
}

/// Starts a control plane. It serves when this returns.
pub async fn start(options: &ServerOptions) -> Result<ControlPlane, ServerError> {
    // Boxed to keep the callers' futures small.
    Box::pin(start_parts(options)).await.map_err(|error| error.with_place(options.store().place()))
}

async fn start_parts(options: &ServerOptions) -> Result<ControlPlane, ServerError> {
    let ports = ports::system();
    let data = DataDir::open(&options.data_dir)?;
    data_dir::refuse_unfinished_restore(data.path())?;
    let api_listener = bind("the API", options.listen).await?;
    let url = options
        .public_url
        .clone()
        .unwrap_or_else(|| format!("https://{}", bound_address(&api_listener, options.listen)));
    if options.store_url.is_some() || options.sealing_key_file.is_some() {
        // A named or required key is checked before any access to the database.
        KeyFiles::of(options)?.keys()?;
    }
    let start_kind = prior_use::start_kind(&data, options, &*ports.clock).await?;
    let sealing = start_kind.sealing_keys(&data, options, &*ports.entropy)?;
    reach(Point::Start(StartStage::KeyKept));
    let history_check = match start_kind {
        // No rows exist that could contradict the key or the mark.
        StartKind::First => HistoryCheck::NewMark(None),
        StartKind::Later => {
            bootstrap::check_keys(&options.store(), &sealing).await?;
            Box::pin(history::check(options, &ports)).await?
        }
    };
    let store = Store::open(&options.store(), ports.clock.clone()).await?;
    reach(Point::Start(StartStage::StoreOpened));
    // The first write after opening: with a wrong sealing key nothing may be written.
    let keys = bootstrap::keys(&store, sealing, &ports).await?;
    reach(Point::Start(StartStage::RowsKept));
    // From here on files may be written that mark the data directory as used.
    history::use_mark(&store, &data, history_check, keys.control_plane(), &ports).await?;
    prior_use::finish_first_start(&data)?;
    let replica = ReplicaId::generate(&*ports.clock, &*ports.entropy);
    // The lock of the data directory proves that its previous user is dead, so its leases end.
    if let Some(predecessor) = data.predecessor() {
        store.evict_replica(predecessor, Eviction::Unconditional).await?;
    }
    data.record_user(replica)?;
    reach(Point::Start(StartStage::UseKept));
    if let Some(ended) = bootstrap::finish_restore(&store, &keys, &ports).await? {
        tracing::warn!(
            ?ended,
            "completed an interrupted restore: all credentials of the backup are revoked; run `gpuaas server recover-admin`"
        );
    }
    let one_time_admin = first_admin::at_start(&store, &keys, data.path(), &ports).await?;
    reach(Point::Start(StartStage::AdminKept));
    let trust = |error: &dyn std::fmt::Display| ServerError::Trust(error.to_string());
    let identity = ReplicaIdentity { control_plane: keys.control_plane().to_owned(), replica };
    let api_key = bootstrap::api_key(&store, &keys).await?;
    let api_pin = api_key.pin();
    let authorities = keys.authorities();
    let (authority, now) = ((&**authorities.active(), &*authorities.trusted()), ports.clock.now());
    let certificates = Certificates::issue(authority, api_key, options.names(&url), identity.clone(), now);
    let certificates = Arc::new(certificates.map_err(|error| trust(&error))?);
    let api_tls = api_server_config(certificates.api.clone(), options.tls_min_version);
    let api_tls = Arc::new(api_tls.map_err(|error| trust(&error))?);
    let channel_tls = channel_server_config(certificates.channel.clone(), &certificates.trusted);
    let channel_tls = Arc::new(channel_tls.map_err(|error| trust(&error))?);
    let ca_file = data.join(CA_FILE);
    certificates::write_ca_file(ca_file.clone(), authorities.pem()).await?;
    reach(Point::Start(StartStage::CaKept));

    let channel_listener = bind("the node channel", options.channel_listen).await?;
    let channel_address = bound_address(&channel_listener, options.channel_listen);
    let peers = match store.is_shared() {
        true => {
            let sessions = Sessions { store: store.clone(), own: replica };
            Some(ReplicaListener::open(options, &keys, &certificates, sessions).await?)
        }
        false => None,
    };
    let channel_options = ChannelOptions {
        unreachable_after: ChannelOptions::UNREACHABLE_AFTER,
        peers: peers.as_ref().map(|peers| peers.dial.clone()),
        proxies: options.proxies(),
        clock: ports.clock.clone(),
    };
    let (channel, service) = Channel::new(channel_listener, &channel_options, channel_tls);
    let artifacts = options.artifacts()?;
    let engine = Engine::new(EngineParts {
        store: store.clone(),
        replica,
        ports: ports.clone(),
        catalog: bootstrap::catalog(options.rke2_deadlines),
        keys,
        nodes: Arc::new(ChannelNodes(channel.clone())),
        tunnels: Arc::new(ChannelTunnels(channel.clone())),
        endpoints: Endpoints {
            api_url: url.clone(),
            channel: options.channel_endpoint(channel_address),
            replica: peers.as_ref().map(|peers| peers.address.clone()),
        },
        reimage_hook: options.reimage_hook.clone().map(|program| Arc::new(HookProgram(program)) as Arc<_>),
        archives: Arc::new(Archives(artifacts.clone())),
        retention: options.retention,
    });
    verify::log_missing_artifacts(&store, &artifacts).await?;
    let downloads = data.join("downloads");
    let backend = Arc::new(Backend { engine: engine.clone(), artifacts: artifacts.clone() });
    engine.join().await?;

    let stop = CancellationToken::new();
    let mut running = tokio::task::JoinSet::new();
    if let Some(peers) = peers {
        running.spawn(peers.service(channel.clone(), identity).run(stop.clone()));
    }
    running.spawn(service.run(backend, stop.clone()));
    let importer = Importer { store: artifacts, scratch: downloads, sources: options.sources() };
    if options.allow_unverified_releases {
        tracing::warn!("releases are imported without verification (allow-unverified-releases)");
    }
    let install = Install { api_pin, packages: options.packages_dir.clone() };
    let api = ApiOptions {
        rates: options.rates,
        install,
        metrics_over_loopback: options.metrics_over_loopback,
        certificates: certificates.expiry.clone(),
    };
    let state = ApiState::new(engine.clone(), importer, Arc::new(ChannelJournals(channel)), api);
    let api = https::Api::new(api_tls, gpuaas_api::router(state.clone()), options.proxies());
    running.spawn(api.serve(api_listener, stop.clone()));
    let (renewal, stopped) = (certificates.maintain(engine.clone(), ca_file.clone()), stop.clone());
    running.spawn(async move { stopped.run_until_cancelled(renewal).await.unwrap_or_default() });
    let reload = Arc::new(Notify::new());
    let maintenance = sealing_key::maintain(KeyFiles::of(options)?, engine.clone(), reload.clone());
    running.spawn(stop.clone().run_until_cancelled_owned(maintenance).map(drop));
    running.spawn(drive(engine, stop.clone()));
    running.spawn(stop.clone().run_until_cancelled_owned(history::sync(store.clone())).map(drop));
    let removing = first_admin::remove_when_spent(store.clone(), data.path().to_owned(), ports);
    running.spawn(stop.clone().run_until_cancelled_owned(removing).map(drop));
    Ok(ControlPlane { url, ca_file, one_time_admin, reload, stop, running, state, store, _data: data })
}

impl ControlPlane {
    /// Serves until `until` completes, or until a part ends, which happens only by a defect. Then shuts down in order.
    pub async fn serve(mut self, until: impl Future<Output = ()>) {
        tokio::select! {
            () = until => {}
            _ = self.running.join_next() => tracing::error!("a task of the control plane ended unexpectedly"),
        }
        self.stop.cancel();
        while self.running.join_next().await.is_some() {}
        if tokio::time::timeout(LAST_AUDIT_TIMEOUT, self.state.summarise_refusals()).await.is_err() {
            tracing::error!("the summaries of refused requests could not be recorded in time");
        }
        // Closed last: requests in progress need the store.
        self.store.close().await;
    }
}

/// Runs the engine until `stop`, then hands its leases over to the other replicas.
async fn drive(engine: Arc<Engine>, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => engine.stop(),
        () = async {
            tokio::join!(engine.keep_alive(), engine.run_key_rotation(), engine.watch_access(), engine.watch_clusters(), engine.report_forged_rows(), engine.run_sealing_rotation(), engine.run_retention(), engine.run_audit_sealer());
            std::future::pending().await
        } => {}
        () = engine.run() => {}
    }
    if let Err(error) = engine.leave().await {
        tracing::warn!(%error, "the other replicas could not be notified; they will notice");
    }
}

async fn bind(what: &'static str, address: SocketAddr) -> Result<TcpListener, ServerError> {
    TcpListener::bind(address).await.map_err(|source| ServerError::Listen { what, address, source })
}

/// Returns the listener's actual address; port 0 requests any free port.
fn bound_address(listener: &TcpListener, configured: SocketAddr) -> SocketAddr {
    listener.local_addr().unwrap_or(configured)
}

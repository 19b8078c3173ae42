//! `rke2 server`: writes its files, then starts etcd and the apiserver, the other components, and the server's own KubeNode.
//!
//! `READY=1` is sent after the apiserver answers `/readyz` to a client certificate and etcd is healthy. Port 6443 opens
//! before that, and the KubeNode becomes Ready after it. An open port therefore does not prove a ready server, as with RKE2.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use camino::Utf8Path;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api_client::Client;
use crate::control_plane::{self, ControlPlane};
use crate::faults::{Faults, Stage};
use crate::identity::Identity;
use crate::join::wait_to_retrieve;
use crate::kubenode::KubeNode;
use crate::node_password::{self, Outcome};
use crate::paths::DEFAULT_DATA_DIR;
use crate::pki::Subject;
use crate::server_files::{self, ServerFiles};
use crate::server_nodes::{self, OwnNode};
use crate::settings::{APISERVER_PORT, SUPERVISOR_PORT, Settings};
use crate::supervisor::{self, Supervisor};
use crate::version::{COMMIT, RELEASE};
use crate::{counters, kubelet_api, log, notify, pods, runtime, tls};

/// Interval between probes of a starting component; `/readyz` cannot be watched.
const PROBE_EVERY: Duration = Duration::from_millis(50);
/// Interval between log lines that name the awaited component; also the timeout of an etcd health probe.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// Limit of etcd's health response, which is one line.
const HEALTH_BYTES_MAX: u64 = 4096;

/// Runs on a sandbox node until the process is stopped by a signal; an error is fatal.
pub(crate) async fn run(settings: Settings, faults: Arc<Faults>) -> anyhow::Result<()> {
    let bin = runtime::install(&settings.paths)?;
    let server = ServerContext::open(&settings).await?;
    hold_before_core(&faults).await;
    let plane = control_plane::layout(&settings, &bin);
    start_core(&settings, &faults, &server, &plane).await?;
    server.core_ready.send_replace(true);
    join_own_cluster(settings, faults, &server, plane, &bin).await
}

/// Never returns if a fault keeps the agent part of the server from running.
pub(crate) async fn hold_before_core(faults: &Faults) {
    for stage in [Stage::Retrieve, Stage::Joined] {
        faults.hold_at(stage).await;
    }
}

/// Checks faults and options and writes the first files, before any component starts.
pub(crate) fn begin(settings: &Settings) -> anyhow::Result<Arc<Faults>> {
    let faults = Faults::read(settings)?;
    log::info!("Starting rke2 {RELEASE} ({COMMIT})");
    faults.exit_at_start()?;
    refuse_second_server(settings)?;
    server_files::write_pod_security(&settings.paths)?;
    server_files::write_audit_policy(&settings.paths)?;
    Ok(Arc::new(faults))
}

/// A server whose files are written and whose supervisor accepts connections.
pub(crate) struct ServerContext {
    pub(crate) files: Arc<ServerFiles>,
    /// Client of the local apiserver as the cluster's administrator.
    pub(crate) admin: Arc<Client>,
    /// Set to true when the apiserver is ready and nodes may join.
    pub(crate) core_ready: watch::Sender<bool>,
}

impl ServerContext {
    /// Binds the supervisor's port first, so that a port in use is reported before anything else is done.
    pub(crate) async fn open(settings: &Settings) -> anyhow::Result<Self> {
        let listeners = kubelet_api::listen_on(&settings.supervisor_listens_on()?, SUPERVISOR_PORT).await?;
        let files = Arc::new(server_files::prepare(settings)?);
        let admin_tls = tls::client_config(&files.server_ca.pem, Some(&files.admin))?;
        let admin = Arc::new(Client::new(&settings.local().to_string(), APISERVER_PORT, admin_tls, Vec::new()));
        let (core_ready, core_ready_seen) = watch::channel(false);
        let supervisor = Arc::new(Supervisor {
            files: files.clone(),
            admin: admin.clone(),
            core_ready: core_ready_seen,
            address: settings.address.to_string(),
            cluster: cluster_facts(settings),
        });
        let supervisor_tls = tls::server_config(&files.supervisor, &files.client_ca.pem)?;
        let routes = supervisor::routes(supervisor);
        for listener in listeners {
            tokio::spawn(tls::serve(listener, supervisor_tls.clone(), routes.clone()));
        }
        Ok(Self { files, admin, core_ready })
    }
}

/// Refuses to join another server, because a stand-in cluster has one. As in RKE2, `server` is ignored if a database exists.
fn refuse_second_server(settings: &Settings) -> anyhow::Result<()> {
    let joins = settings.server_url.as_deref().filter(|_| !settings.paths.data("server/db/etcd/member").exists());
    match joins {
        Some(url) => {
            anyhow::bail!("starting kubernetes: preparing server: the stand-in cannot join {url} as a second server")
        }
        None => Ok(()),
    }
}

async fn start_core(
    settings: &Settings,
    faults: &Faults,
    server: &ServerContext,
    plane: &ControlPlane,
) -> anyhow::Result<()> {
    log::info!("Managed etcd cluster initializing");
    faults.hold_at(Stage::ControlPlane).await;
    for component in [&plane.etcd, &plane.apiserver] {
        control_plane::write_manifest(settings, component)?;
        component.clone().run().await?;
    }
    log_join_commands(settings);
    server_files::write_kubeconfig(settings, &server.files)?;
    wait_until("Waiting for API server to become available", || async { server.admin.get("/readyz").await.is_ok() })
        .await;
    log::info!("Kube API server is now running");
    wait_until("Waiting for etcd server to become available", || etcd_healthy(settings)).await;
    log::info!("ETCD server is now running");
    Ok(())
}

/// Logs the token's file and the commands that join a server or an agent.
pub(crate) fn log_join_commands(settings: &Settings) {
    let shown = settings.options.value("data-dir").unwrap_or(DEFAULT_DATA_DIR);
    let url = format!("https://{}", SocketAddr::new(settings.address, SUPERVISOR_PORT));
    log::info!("Server node token is available at {shown}/server/token");
    log::info!("To join server node to cluster: rke2 server -s {url} -t ${{SERVER_NODE_TOKEN}}");
    log::info!("To join agent node to cluster: rke2 agent -s {url} -t ${{AGENT_NODE_TOKEN}}");
}

async fn join_own_cluster(
    settings: Settings,
    faults: Arc<Faults>,
    server: &ServerContext,
    plane: ControlPlane,
    bin: &Utf8Path,
) -> anyhow::Result<()> {
    for component in [plane.controller_manager, plane.scheduler] {
        control_plane::write_manifest(&settings, &component)?;
        component.run().await?;
    }
    check_own_password(&settings, server).await?;
    let identity = own_identity(&settings, &server.files)?;
    identity.write(&settings.paths)?;
    kubelet_api::start(&identity).await?;
    tokio::spawn(server_nodes::follow(server.admin.clone(), OwnNode::new(&settings)));
    report_ready(&settings, &faults)?;
    let node = KubeNode::new(&settings, &identity)?;
    node.register().await;
    pods::start(&settings, &identity, bin)?;
    node.keep_alive(faults.readiness()).await;
    Ok(())
}

/// Checks the password of the server's own node, as for every other node, until it is accepted: the server's agent part waits as an agent.
pub(crate) async fn check_own_password(settings: &Settings, server: &ServerContext) -> anyhow::Result<()> {
    let password = node_password::load_or_create(&settings.paths)?;
    loop {
        match node_password::check(&server.admin, &settings.node_name, &password).await {
            Ok(Outcome::Accepted) => return Ok(()),
            Ok(Outcome::Rejected) => wait_to_retrieve(node_password::REJECTED).await,
            Err(error) => wait_to_retrieve(&format!("{error:#}")).await,
        }
    }
}

/// Reports the server as ready to the journal, the service manager and the counters, unless a fault prevents it.
pub(crate) fn report_ready(settings: &Settings, faults: &Arc<Faults>) -> anyhow::Result<()> {
    if faults.strike_at(Stage::Silent) {
        return Ok(());
    }
    log::info!("rke2 is up and running");
    notify::ready().context("NOTIFY_SOCKET")?;
    counters::record(&settings.paths, settings.role.name(), "ready");
    faults.follow_readiness();
    Ok(())
}

/// Issues the certificates of the server's own node.
pub(crate) fn own_identity(settings: &Settings, files: &ServerFiles) -> anyhow::Result<Identity> {
    let (name, address) = (&settings.node_name, settings.address.to_string());
    let own = files.client_ca.issue(&Subject::client(&format!("system:node:{name}"), Some("system:nodes")))?;
    let names = vec![name.clone(), "localhost".to_owned(), "127.0.0.1".to_owned(), address];
    let serving = files.server_ca.issue(&Subject::server(name, names))?;
    let cas = (files.server_ca.pem.clone(), files.client_ca.pem.clone());
    Ok(Identity::new(settings, settings.local().to_string(), cas, (own, serving)))
}

/// The response of `/v1-rke2/config`, which joining nodes use. Contains no secret.
fn cluster_facts(settings: &Settings) -> serde_json::Value {
    json!({
        "ClusterIPRange": settings.cluster_cidr,
        "ServiceIPRange": settings.service_cidr,
        "ClusterDomain": settings.cluster_domain,
        "ClusterDNS": settings.cluster_dns,
        "SupervisorPort": SUPERVISOR_PORT,
        "HTTPSPort": APISERVER_PORT,
    })
}

/// Probes every [`PROBE_EVERY`] until `done` returns true; logs `what` at the start and every [`LOG_EVERY`].
pub(crate) async fn wait_until<F: Future<Output = bool>>(what: &str, done: impl Fn() -> F) {
    log::info!("{what}");
    let mut logged_at = Instant::now();
    while !done().await {
        tokio::time::sleep(PROBE_EVERY).await;
        if logged_at.elapsed() >= LOG_EVERY {
            log::info!("{what}");
            logged_at = Instant::now();
        }
    }
}

/// Whether etcd's metrics port, which is plain HTTP, reports it as healthy.
pub(crate) async fn etcd_healthy(settings: &Settings) -> bool {
    let check = async {
        let mut stream = TcpStream::connect((settings.local(), 2381)).await?;
        stream.write_all(b"GET /health?serializable=false HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.take(HEALTH_BYTES_MAX).read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer.contains("\"health\":\"true\""))
    };
    tokio::time::timeout(LOG_EVERY, check).await.is_ok_and(|answer| answer.unwrap_or(false))
}

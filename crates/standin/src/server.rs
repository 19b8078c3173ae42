//! `rke2 server`: files, then etcd and the apiserver, then the other components, then the server's own KubeNode.
//!
//! READY=1 goes out once the apiserver answers `/readyz` to a client certificate and etcd is healthy; 6443 opens before
//! that, and the KubeNode is Ready after it. Whoever only looks whether the port is open looks at the wrong thing, here as
//! there.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api_client::Client;
use crate::control_plane::{self, ControlPlane};
use crate::faults::{Fault, Faults};
use crate::identity::Identity;
use crate::kubenode::{KubeNode, Readiness};
use crate::node_password::{self, Verdict};
use crate::paths::DEFAULT_DATA_DIR;
use crate::pki::Subject;
use crate::server_files::{self, ServerFiles};
use crate::server_nodes::{self, OwnNode};
use crate::settings::{APISERVER_PORT, SUPERVISOR_PORT, Settings};
use crate::supervisor::{self, Supervisor};
use crate::version::{COMMIT, RELEASE};
use crate::{agent, counters, kubelet_api, log, notify, runtime, tls};

/// Between two looks at a component that is starting. `/readyz` cannot be watched.
const PROBE_EVERY: Duration = Duration::from_millis(50);
/// Between two lines that say what is waited for.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// etcd's health answer is a line.
const HEALTH_BYTES_MAX: u64 = 4096;

/// Runs until the process is told to stop; an error is fatal.
pub(crate) async fn run(settings: Settings) -> anyhow::Result<()> {
    let faults = Faults::read(&settings.paths)?;
    log::info!("Starting rke2 {RELEASE} ({COMMIT})");
    if let Some(text) = faults.fatal_text(&settings.node_name, &settings.address.to_string()) {
        anyhow::bail!(text);
    }
    refuse_second_server(&settings)?;
    server_files::write_pod_security(&settings.paths)?;
    server_files::write_audit_policy(&settings.paths)?;
    let bin = runtime::install(&settings.paths)?;
    let listener = kubelet_api::listen(settings.address, SUPERVISOR_PORT).await?;
    let files = Arc::new(server_files::prepare(&settings)?);
    if faults.has(Fault::KubeletExited) {
        agent::kubelet_exits_for_ever().await;
    }
    let plane = control_plane::layout(&settings, &bin);
    let admin_tls = tls::client_config(&files.server_ca.pem, Some(&files.admin))?;
    let admin = Arc::new(Client::new(&settings.address.to_string(), APISERVER_PORT, admin_tls, Vec::new()));
    let (core_ready, core_ready_seen) = watch::channel(false);
    let supervisor = Arc::new(Supervisor {
        files: files.clone(),
        admin: admin.clone(),
        core_ready: core_ready_seen,
        address: settings.address.to_string(),
        cluster: cluster_facts(&settings),
    });
    let supervisor_tls = tls::server_config(&files.supervisor, &files.client_ca.pem)?;
    tokio::spawn(tls::serve(listener, supervisor_tls, supervisor::routes(supervisor)));
    start_core(&settings, &faults, &files, &plane, &admin).await?;
    core_ready.send_replace(true);
    join_own_cluster(settings, faults, &files, plane, admin).await
}

/// A cluster of the stand-in has one server. An existing database wins over `server`, as with the real program.
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
    files: &ServerFiles,
    plane: &ControlPlane,
    admin: &Client,
) -> anyhow::Result<()> {
    log::info!("Managed etcd cluster initializing");
    if faults.has(Fault::EtcdNeverReady) {
        loop {
            log::info!("Waiting for etcd server to become available");
            tokio::time::sleep(SAY_EVERY).await;
        }
    }
    for component in [&plane.etcd, &plane.apiserver] {
        control_plane::write_manifest(settings, component)?;
        component.clone().run().await?;
    }
    let shown = settings.options.value("data-dir").unwrap_or(DEFAULT_DATA_DIR);
    log::info!("Server node token is available at {shown}/server/token");
    log::info!(
        "To join server node to cluster: rke2 server -s https://{}:{SUPERVISOR_PORT} -t ${{SERVER_NODE_TOKEN}}",
        settings.address
    );
    log::info!(
        "To join agent node to cluster: rke2 agent -s https://{}:{SUPERVISOR_PORT} -t ${{AGENT_NODE_TOKEN}}",
        settings.address
    );
    server_files::write_kubeconfig(settings, files)?;
    until("Waiting for API server to become available", || async { admin.get("/readyz").await.is_ok() }).await;
    log::info!("Kube API server is now running");
    until("Waiting for etcd server to become available", || etcd_healthy(settings)).await;
    log::info!("ETCD server is now running");
    Ok(())
}

async fn join_own_cluster(
    settings: Settings,
    faults: Faults,
    files: &ServerFiles,
    plane: ControlPlane,
    admin: Arc<Client>,
) -> anyhow::Result<()> {
    for component in [plane.controller_manager, plane.scheduler] {
        control_plane::write_manifest(&settings, &component)?;
        component.run().await?;
    }
    let password = node_password::of_this_node(&settings.paths)?;
    if node_password::check(&admin, &settings.node_name, &password).await? == Verdict::Rejected {
        anyhow::bail!("starting kubernetes: {}", node_password::REJECTED);
    }
    let identity = own_identity(&settings, files)?;
    identity.write(&settings.paths)?;
    kubelet_api::start(&identity).await?;
    tokio::spawn(server_nodes::follow(admin, OwnNode::new(&settings)));
    if !faults.has(Fault::NeverReady) {
        log::info!("rke2 is up and running");
        notify::ready().context("NOTIFY_SOCKET")?;
        counters::record(&settings.paths, settings.role.name(), "ready");
    }
    let node = KubeNode::new(&settings, &identity)?;
    node.register().await;
    let readiness = if faults.has(Fault::CniNotInitialized) { Readiness::NoCni } else { Readiness::Ready };
    node.keep_alive(readiness).await;
    Ok(())
}

fn own_identity(settings: &Settings, files: &ServerFiles) -> anyhow::Result<Identity> {
    let (name, address) = (&settings.node_name, settings.address.to_string());
    let own = files.client_ca.issue(&Subject::client(&format!("system:node:{name}"), Some("system:nodes")))?;
    let names = vec![name.clone(), "localhost".to_owned(), "127.0.0.1".to_owned(), address.clone()];
    let serving = files.server_ca.issue(&Subject::server(name, names))?;
    let cas = (files.server_ca.pem.clone(), files.client_ca.pem.clone());
    Ok(Identity::new(settings, address, cas, (own, serving)))
}

/// What joining nodes must agree on; no secret is among it.
fn cluster_facts(settings: &Settings) -> serde_json::Value {
    json!({
        "ClusterIPRange": settings.cluster_cidr,
        "ServiceIPRange": settings.service_cidr,
        "ClusterDomain": settings.cluster_domain,
        "SupervisorPort": SUPERVISOR_PORT,
        "HTTPSPort": APISERVER_PORT,
    })
}

/// Probes until `done`, saying every now and then what for.
async fn until<F: Future<Output = bool>>(what: &str, done: impl Fn() -> F) {
    log::info!("{what}");
    let mut said = Instant::now();
    while !done().await {
        tokio::time::sleep(PROBE_EVERY).await;
        if said.elapsed() >= SAY_EVERY {
            log::info!("{what}");
            said = Instant::now();
        }
    }
}

/// Whether etcd's metrics port, which is plain HTTP, calls it healthy.
async fn etcd_healthy(settings: &Settings) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect((settings.address, 2381)).await?;
        stream.write_all(b"GET /health?serializable=false HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.take(HEALTH_BYTES_MAX).read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer.contains("\"health\":\"true\""))
    };
    tokio::time::timeout(SAY_EVERY, ask).await.is_ok_and(|answer| answer.unwrap_or(false))
}

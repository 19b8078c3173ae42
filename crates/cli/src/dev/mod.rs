//! Runs `gpuaas dev`: a control plane and sandbox nodes on one machine. This process only starts the others. Each of them exits when this
//! process ends for any reason.

mod addresses;
mod processes;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use camino::{Utf8Path, Utf8PathBuf};
use futures::StreamExt;
use gpuaas_api_types::{Bootstrap, EnrollNode, RegisterNode};
use gpuaas_client::Client;
use gpuaas_model::Entropy as _;
use gpuaas_server::{ServerOptions, ports::SystemEntropy, write_private};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    cli::Dev,
    commands::server::store_url,
    connection::{ReadyFile, ReadyNode},
};
use addresses::AddressBlock;
use processes::{Processes, SharedStore};

/// Longest wait for the control plane to serve, and then for every node to become active.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Most sandbox nodes: one address block has no more node addresses.
pub(crate) const NODES_MAX: u8 = 200;
/// Name of the ready file in the data directory, if no other was named.
const READY_FILE: &str = "ready.json";
/// Port of a replica's node channel, at the replica's own address of the block. Used when the API listens on loopback.
const CHANNEL_PORT: u16 = 7_441;

/// Starts everything, reports when it is ready, and stops everything on SIGTERM, Ctrl-C or the first unexpected exit.
pub(crate) async fn run(options: Dev) -> anyhow::Result<()> {
    fs::create_dir_all(&options.data_dir).with_context(|| format!("creating {}", options.data_dir.display()))?;
    let data_dir = Utf8PathBuf::from_path_buf(fs::canonicalize(&options.data_dir)?)
        .map_err(|path: PathBuf| anyhow::anyhow!("the path {} is not valid UTF-8", path.display()))?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut processes = Processes::new()?;
    let ended = tokio::select! {
        ended = serve(&options, &data_dir, &mut processes) => ended,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    processes.stop_all().await;
    ended
}

/// Starts everything, then waits for the first process that exits. None exits unless it fails, so this returns only errors.
async fn serve(options: &Dev, data_dir: &Utf8Path, processes: &mut Processes) -> anyhow::Result<()> {
    let began = std::time::Instant::now();
    let block = AddressBlock::take(&data_dir.join("addresses"))?;
    let shared = shared_store(options, data_dir)?;
    let mut server = start_replica(options, data_dir, processes, (shared.as_ref(), &block), 1).await?;
    for number in 2..=options.replicas {
        let further = start_replica(options, data_dir, processes, (shared.as_ref(), &block), number).await?;
        server.replicas.extend(further.replicas);
    }
    let authority = fs::read(&server.ca_file).context("reading the authority's certificate")?;
    let token = admin_token(options, data_dir, shared.as_ref(), &server.url, &authority).await?;
    let client = Client::new(&server.url, &authority, &token)?;
    let mut nodes = Vec::new();
    for number in 1..=options.nodes {
        let (name, address) = (format!("demo-{number}"), block.address(number));
        let root = data_dir.join("nodes").join(&name);
        prepare_node(&client, &name, &root).await?;
        processes.start_node(&root, &name, address)?;
        nodes.push(ReadyNode { name, address: address.to_string() });
    }
    tokio::select! {
        active = await_active_nodes(&client, &nodes) => active?,
        exited = processes.wait_first_exit() => return Err(exited.into()),
    }
    if nodes.is_empty() {
        eprintln!("nodes           none");
    } else {
        eprintln!("nodes           {} enrolled   (sandboxes under {data_dir}, no root needed)", names(&nodes));
    }
    let path = options.ready_file.clone().unwrap_or_else(|| options.data_dir.join(READY_FILE));
    eprintln!("catalog         {}", describe_catalog(&client, &path).await?);
    let ready = ReadyFile { nodes, token: Some(token), ..server };
    write_private(&std::path::absolute(&path)?, &serde_json::to_vec_pretty(&ready)?)
        .context("writing the ready file")?;
    eprintln!("use it          gpuaas node list --ready-file {}", path.display());
    eprintln!("ready           in {} ms; Ctrl-C stops everything", began.elapsed().as_millis());
    Err(processes.wait_first_exit().await.into())
}

/// Returns the settings that replicas share with PostgreSQL; `None` with SQLite.
fn shared_store(options: &Dev, data_dir: &Utf8Path) -> anyhow::Result<Option<SharedStore>> {
    if store_url(options.store_url_file.as_deref())?.is_none() {
        let is_single = options.replicas == 1;
        anyhow::ensure!(
            is_single,
            "several replicas need a PostgreSQL database: set GPUAAS_STORE_URL or --store-url-file"
        );
        return Ok(None);
    }
    let sealing_key = data_dir.join("sealing.key");
    if !sealing_key.exists() {
        let mut key = [0_u8; 32];
        SystemEntropy.fill(&mut key);
        write_private(sealing_key.as_std_path(), &key).context("writing the sealing key")?;
    }
    let absolute = |path: &PathBuf| Utf8PathBuf::from_path_buf(std::path::absolute(path).ok()?).ok();
    let url_file = options.store_url_file.as_ref().and_then(absolute);
    Ok(Some(SharedStore { sealing_key, artifacts: data_dir.join("artifacts"), url_file }))
}

/// Starts replica `number` and returns its ready file once it serves. Only the first listens at the requested port.
async fn start_replica(
    options: &Dev,
    data_dir: &Utf8Path,
    processes: &mut Processes,
    (shared, block): (Option<&SharedStore>, &AddressBlock),
    number: u8,
) -> anyhow::Result<ReadyFile> {
    let first = number == 1;
    let name = if first { "server".to_owned() } else { format!("server-{number}") };
    let listen = if first { options.listen } else { SocketAddr::new(options.listen.ip(), 0) };
    let ready = data_dir.join(format!("{name}-ready.json"));
    let _ = fs::remove_file(&ready);
    let channel = match options.listen.ip() {
        // The same address as at the last start, so that the nodes reconnect.
        ip if ip.is_loopback() => SocketAddr::new(block.address(NODES_MAX + number), CHANNEL_PORT),
        ip => SocketAddr::new(ip, 0),
    };
    processes.start_server(&data_dir.join(name), (listen, channel), &ready, shared)?;
    tokio::select! {
        server = await_ready_file(&ready) => server,
        exited = processes.wait_first_exit() => Err(exited.into()),
    }
}

/// Returns an API token of `developer`, a platform admin: the stored one if it is still valid, otherwise a new one.
async fn admin_token(
    options: &Dev,
    data_dir: &Utf8Path,
    shared: Option<&SharedStore>,
    url: &str,
    authority: &[u8],
) -> anyhow::Result<String> {
    let kept = data_dir.join("developer.token");
    if let Ok(token) = fs::read_to_string(&kept)
        && Client::new(url, authority, &token)?.whoami().await.is_ok()
    {
        return Ok(token);
    }
    let exchanged = async |one_time: String| -> anyhow::Result<String> {
        let ask = Bootstrap { name: "developer".to_owned(), ttl_seconds: None };
        Ok(Client::new(url, authority, one_time.trim())?.bootstrap(&ask).await?.secret)
    };
    let server = data_dir.join("server");
    let first = match fs::read_to_string(server.join("admin.token")) {
        Ok(one_time) => exchanged(one_time).await.ok(),
        Err(_) => None,
    };
    let token = match first {
        Some(token) => token,
        // No separate authorization: this user owns the data directory.
        None => {
            let server = ServerOptions {
                store_url: store_url(options.store_url_file.as_deref())?,
                sealing_key_file: shared.map(|shared| shared.sealing_key.clone().into()),
                ..ServerOptions::local(server.into())
            };
            let made = gpuaas_server::recover_admin(&server).await?;
            exchanged(fs::read_to_string(&made.token_file).context("reading the one-time admin token")?).await?
        }
    };
    write_private(kept.as_std_path(), token.as_bytes()).context("storing the developer's token")?;
    Ok(token)
}

/// Lists the imported releases; without any, returns the command that imports one.
async fn describe_catalog(client: &Client, ready_file: &Path) -> anyhow::Result<String> {
    let apps = client.list_apps().await?.items;
    let releases: Vec<String> =
        apps.iter().flat_map(|app| app.versions.iter().map(|version| format!("{} {version}", app.slug))).collect();
    if !releases.is_empty() {
        return Ok(releases.join(", "));
    }
    let import = r#"gpuaas artifact import rke2 "$(cargo xtask release --sandboxes-only)""#;
    let fill = format!("{import} --ready-file {}", ready_file.display());
    Ok(format!("empty; fill it, in a checkout of the source: {fill}"))
}

fn names(nodes: &[ReadyNode]) -> String {
    nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Waits for the server's ready file with inotify and reads it.
async fn await_ready_file(path: &Utf8Path) -> anyhow::Result<ReadyFile> {
    let folder = path.parent().context("the ready file's path has no parent folder")?;
    let watch = processes::FolderWatch::new(folder)?;
    let deadline = tokio::time::Instant::now() + READY_TIMEOUT;
    while !path.exists() {
        tokio::time::timeout_at(deadline, watch.changed())
            .await
            .context("the control plane did not become ready in time")??;
    }
    ReadyFile::read(path.as_std_path())
}

/// Registers the node if it is new and writes the files that its init needs: the agent's unit and, before enrollment, the enrollment
/// string.
async fn prepare_node(client: &Client, name: &str, root: &Utf8Path) -> anyhow::Result<()> {
    let agent = processes::agent_program()?;
    let units = root.join("etc/systemd/system");
    let state = root.join("var/lib/gpuaas-agent");
    for folder in [&units, &state, &root.join(".sandbox")] {
        fs::create_dir_all(folder).with_context(|| format!("creating {folder}"))?;
    }
    let unit = format!(
        "[Unit]\nDescription=GPUaaS node agent\n\n[Service]\nType=notify\nExecStart={agent}\nRestart=always\nRestartSec=1s\n\
         TimeoutStartSec=0\n\n[Install]\nWantedBy=multi-user.target\n"
    );
    fs::write(units.join("gpuaas-agent.service"), unit)?;
    fs::write(root.join(".sandbox/enabled"), "gpuaas-agent.service")?;
    if state.join("identity.json").exists() {
        return Ok(());
    }
    let registered = match client.get_node(name).await {
        Ok(_) => client.issue_enrollment(name, &EnrollNode::default()).await?,
        Err(_) => client.register_node(&RegisterNode { name: name.to_owned(), ..RegisterNode::default() }).await?,
    };
    write_private(state.join("enroll").as_std_path(), registered.enrollment.string.as_bytes())?;
    Ok(())
}

/// Waits until every node is active and connected. Checks again after each node event.
async fn await_active_nodes(client: &Client, nodes: &[ReadyNode]) -> anyhow::Result<()> {
    let wait = async {
        let mut events = Box::pin(client.follow_events(None, 0).await?);
        loop {
            let known = client.list_nodes(Some("active".to_owned()), Some("connected".to_owned())).await?.items;
            if nodes.iter().all(|node| known.iter().any(|known| known.name == node.name)) {
                return anyhow::Ok(());
            }
            loop {
                let event = events.next().await.context("the event stream ended")??;
                if matches!(event.kind.as_str(), "node.activated" | "node.connectivity_changed") {
                    break;
                }
            }
        }
    };
    tokio::time::timeout(READY_TIMEOUT, wait).await.context("the nodes did not become active in time")?
}

//! Runs `gpuaas dev`: a control plane and sandbox nodes on one machine. This process only starts the others. Each of them exits when this
//! process ends for any reason.

mod addresses;
mod processes;
mod sandbox;

use std::{
    fs::{self, TryLockError},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context;
use camino::{Utf8Path, Utf8PathBuf};
use clap::Args;
use gpuaas_api_types::Bootstrap;
use gpuaas_client::{Client, ClientError};
use gpuaas_model::Entropy as _;
use gpuaas_server::{ServerError, ServerOptions, ports::SystemEntropy, write_private};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    connection::{ReadyFile, ReadyNode},
    environment, output,
    releases::versions,
};
use addresses::AddressBlock;
use processes::{Processes, SharedStore};
use sandbox::Prepared;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of sandbox nodes, at most 200
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(..=i64::from(NODES_MAX)))]
    pub(crate) nodes: u8,
    /// Directory for all state of the control plane and the sandbox nodes; the data directory of the control plane is its folder server
    #[arg(long, default_value = "gpuaas-dev")]
    pub(crate) data_dir: PathBuf,
    /// Address and port on which the API listens; further replicas use free ports of the same address
    #[arg(long, default_value = "127.0.0.1:7443", value_parser = crate::values::socket_address)]
    pub(crate) listen: SocketAddr,
    /// File with a postgres:// URL of the database; default: GPUAAS_STORE_URL, else SQLite in the data directory
    #[arg(long, env = "GPUAAS_STORE_URL_FILE", hide_env_values = true, value_name = "FILE")]
    pub(crate) store_url_file: Option<PathBuf>,
    /// Number of control plane replicas, 1 to 5; more than one need a PostgreSQL database
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(crate) replicas: u8,
    /// JSON file to write (0600, atomically) with url, ca_file, token, nodes and replicas when everything is ready; default: ready.json in
    /// the data directory
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
}

/// Longest wait for the control plane to serve, and then for every node to become active.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Most sandbox nodes: one address block has no more node addresses.
pub(crate) const NODES_MAX: u8 = 200;
/// Longest wait for an answer at the address that an existing ready file names.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Name of the ready file in the data directory, if no other was named.
const READY_FILE: &str = "ready.json";
/// Longest wait for an earlier `gpuaas dev` of the same data directory to stop, which usually takes less than two seconds, and the interval
/// of checking.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Port of a replica's node channel, at the replica's own address of the block. Used when the API listens on loopback.
const CHANNEL_PORT: u16 = 7_441;

/// Starts everything, reports when it is ready, and stops everything on SIGTERM, Ctrl-C or the first unexpected exit.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    fs::create_dir_all(&options.data_dir).with_context(|| format!("creating {}", options.data_dir.display()))?;
    let data_dir = Utf8PathBuf::from_path_buf(fs::canonicalize(&options.data_dir)?)
        .map_err(|path: PathBuf| anyhow::anyhow!("the path {} is not valid UTF-8", path.display()))?;
    let _lock = lock(&data_dir).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut processes = Processes::new()?;
    // Kept until every process has stopped: they use its addresses.
    let block = AddressBlock::take(&data_dir.join("addresses"))?;
    let ended = tokio::select! {
        ended = serve(&options, &data_dir, &block, &mut processes) => ended,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    processes.stop_all().await;
    ended
}

/// Locks the data directory until the file is dropped: a second `gpuaas dev` there would remove the ready file of the first. Waits for an
/// earlier one that is stopping.
async fn lock(data_dir: &Utf8Path) -> anyhow::Result<fs::File> {
    let folder = fs::File::open(data_dir)?;
    let deadline = Instant::now() + STOP_TIMEOUT;
    loop {
        match folder.try_lock() {
            Ok(()) => return Ok(folder),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => tokio::time::sleep(STOP_CHECK_INTERVAL).await,
            Err(TryLockError::WouldBlock) => {
                return Err(ServerError::DataDirInUse { path: data_dir.as_std_path().to_owned() }.into());
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(|| format!("locking {data_dir}")),
        }
    }
}

/// Starts everything, then waits for the first process that exits. None exits unless it fails, so this returns only errors.
async fn serve(
    options: &Options,
    data_dir: &Utf8Path,
    block: &AddressBlock,
    processes: &mut Processes,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let path = options.ready_file.clone().unwrap_or_else(|| options.data_dir.join(READY_FILE));
    remove_ready_file(&path, data_dir)?;
    let shared = shared_store(options, data_dir)?;
    let mut server = start_replica(options, data_dir, processes, (shared.as_ref(), block), 1).await?;
    for number in 2..=options.replicas {
        let further = start_replica(options, data_dir, processes, (shared.as_ref(), block), number).await?;
        server.replicas.extend(further.replicas);
    }
    let authority = fs::read(&server.ca_file).context("reading the authority's certificate")?;
    let token = admin_token(options, data_dir, shared.as_ref(), &server.url, &authority).await?;
    let client = Client::new(&server.url, &authority, &token)?;
    let mut nodes = Vec::new();
    for number in 1..=options.nodes {
        let (name, address) = (format!("demo-{number}"), block.address(number));
        let root = data_dir.join("nodes").join(&name);
        match sandbox::prepare(&client, &name, &root).await? {
            Prepared::Startable => {
                processes.start_node(&root, &name, address)?;
                nodes.push(ReadyNode { name, address: address.to_string() });
            }
            Prepared::Unusable(reason) => output::message(format_args!("nodes           {reason}")),
        }
    }
    tokio::select! {
        active = sandbox::await_connected(&client, &nodes) => active?,
        exited = processes.wait_first_exit() => return Err(exited.into()),
    }
    if nodes.is_empty() {
        output::message("nodes           none");
    } else {
        output::message(format_args!(
            "nodes           {} enrolled   (sandboxes under {data_dir}, no root needed)",
            names(&nodes)
        ));
    }
    output::message(format_args!("catalog         {}", describe_catalog(&client, &path).await?));
    let ready = ReadyFile { nodes, token: Some(token), ..server };
    write_private(&std::path::absolute(&path)?, &serde_json::to_vec_pretty(&ready)?)
        .context("writing the ready file")?;
    output::message(format_args!("use it          gpuaas node list --ready-file {}", path.display()));
    match client.create_sign_in_link().await {
        Ok(link) => output::message(format_args!("browser         {}   (once, within 10 minutes)", link.url)),
        // Everything else works, for example with a full disk.
        Err(error) => output::message(format_args!("browser         no sign-in link: {error}")),
    }
    output::message(format_args!("another link    gpuaas login --browser --ready-file {}", path.display()));
    output::message(format_args!("ready           all in {} ms; Ctrl-C stops everything", began.elapsed().as_millis()));
    Err(processes.wait_first_exit().await.into())
}

/// Removes the ready file of an earlier run: a script that waits for the file must not read it. Refuses that of a control plane with another
/// data directory that still serves: `GPUAAS_READY_FILE` can name it, and its users would lose it.
fn remove_ready_file(path: &Path, data_dir: &Utf8Path) -> Result<(), ClientError> {
    let other = ReadyFile::read(path).ok().filter(|of| !of.ca_file.starts_with(data_dir));
    let address: Option<SocketAddr> = other.and_then(|of| of.url.strip_prefix("https://")?.parse().ok());
    if let Some(address) = address.filter(|address| TcpStream::connect_timeout(address, CONNECT_TIMEOUT).is_ok()) {
        return Err(ClientError::InvalidSetting(format!(
            "the ready file {} is that of the control plane at {address}: stop that one, or name another file with --ready-file",
            path.display()
        )));
    }
    let _ = fs::remove_file(path);
    Ok(())
}

/// Returns the settings that replicas share with PostgreSQL; `None` with SQLite.
fn shared_store(options: &Options, data_dir: &Utf8Path) -> anyhow::Result<Option<SharedStore>> {
    if environment::store_url(options.store_url_file.as_deref())?.is_none() {
        if options.replicas > 1 {
            let refused = "several replicas need a PostgreSQL database: set GPUAAS_STORE_URL or --store-url-file";
            return Err(ClientError::InvalidSetting(refused.to_owned()).into());
        }
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
    options: &Options,
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
    options: &Options,
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
                store_url: environment::store_url(options.store_url_file.as_deref())?,
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
    let releases: Vec<String> = apps
        .iter()
        .flat_map(|app| versions(app).into_iter().map(|version| format!("{} {version}", app.slug)))
        .collect();
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
    Ok(ReadyFile::read(path.as_std_path())?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn ready_file_of_another_control_plane_is_kept_while_that_one_serves() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("dev.json");
        let data_dir = Utf8PathBuf::from_path_buf(folder.path().join("own")).expect("UTF-8");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let write = |ca_file: &Path| {
            let text = serde_json::json!({ "url": url, "ca_file": ca_file }).to_string();
            fs::write(&path, text).expect("written");
        };
        let other = Path::new("/other/server/ca.pem");
        write(other);
        let refused = remove_ready_file(&path, &data_dir).expect_err("it serves");
        assert!(refused.to_string().contains("--ready-file") && path.exists(), "{refused}");
        write(data_dir.join("server/ca.pem").as_std_path());
        remove_ready_file(&path, &data_dir).expect("that of an earlier run");
        assert!(!path.exists());
        drop(listener);
        write(other);
        remove_ready_file(&path, &data_dir).expect("nothing serves there");
        assert!(!path.exists());
    }
}

//! Derives the node's settings from the options: names, addresses, networks, paths.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use anyhow::Context as _;

use crate::config::{self, Options};
use crate::environment;
use crate::paths::{self, HostPaths};

/// The node's role in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Agent,
}

impl Role {
    /// The subcommand's name, which is also the unit's suffix.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Agent => "agent",
        }
    }
}

/// The node's settings, with defaults applied. Has no `Debug` because it contains the token.
pub(crate) struct Settings {
    pub(crate) role: Role,
    pub(crate) paths: HostPaths,
    pub(crate) options: Options,
    pub(crate) node_name: String,
    pub(crate) hostname: String,
    /// The node's address. On a sandbox node, all its servers listen on this address alone.
    pub(crate) address: IpAddr,
    /// `https://host:9345` of the server to join.
    pub(crate) server_url: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) agent_token: Option<String>,
    pub(crate) cluster_cidr: String,
    pub(crate) service_cidr: String,
    pub(crate) cluster_domain: String,
    pub(crate) cluster_dns: String,
}

/// RKE2's ports; not configurable.
pub(crate) const SUPERVISOR_PORT: u16 = 9345;
pub(crate) const APISERVER_PORT: u16 = 6443;
pub(crate) const KUBELET_PORT: u16 = 10250;

const CNIS: [&str; 6] = ["calico", "canal", "cilium", "flannel", "multus", "none"];

impl Settings {
    /// Reads the command line, the configuration files and the environment.
    pub(crate) fn load(role: Role, arguments: &[String]) -> anyhow::Result<Self> {
        let root = HostPaths::root_from_env();
        let given = config::parse_arguments(arguments)?;
        let host = HostPaths::new(root.clone(), paths::DEFAULT_DATA_DIR);
        let variable = |name: &str| std::env::var(name).ok();
        let named = variable(environment::CONFIG_FILE).filter(|path| !path.is_empty());
        let file = named.as_deref().or_else(|| given.value("config")).unwrap_or(config::DEFAULT_FILE);
        let options =
            config::read_files(&host.at(file))?.overlay(given).with_environment(environment::options(variable)?);
        let paths = HostPaths::new(root, options.value("data-dir").unwrap_or(paths::DEFAULT_DATA_DIR));
        Self::from_options(role, paths, options)
    }

    fn from_options(role: Role, paths: HostPaths, options: Options) -> anyhow::Result<Self> {
        check(&options)?;
        let hostname = hostname()?;
        let mut node_name = options.value("node-name").unwrap_or(&hostname).to_lowercase();
        if options.switch("with-node-id") {
            node_name = format!("{node_name}-{}", node_id(&paths)?);
        }
        let service_cidr = first(&options, "service-cidr", "10.43.0.0/16");
        let dns = nth_address(&service_cidr, DNS_ADDRESS)?.to_string();
        Ok(Self {
            role,
            address: address(&options)?,
            server_url: options.value("server").map(|url| url.trim_end_matches('/').to_owned()),
            token: secret(&paths, &options, "token")?,
            agent_token: secret(&paths, &options, "agent-token")?,
            cluster_cidr: first(&options, "cluster-cidr", "10.42.0.0/16"),
            cluster_dns: first(&options, "cluster-dns", &dns),
            cluster_domain: first(&options, "cluster-domain", "cluster.local"),
            service_cidr,
            node_name,
            hostname,
            paths,
            options,
        })
    }

    /// Settings of a booted server with only these options.
    #[cfg(test)]
    pub(crate) fn of_options(arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let options = config::parse_arguments(&arguments).unwrap();
        Self::from_options(Role::Server, HostPaths::new(None, paths::DEFAULT_DATA_DIR), options).unwrap()
    }

    /// The first address of the service network, which belongs to the service `kubernetes`.
    pub(crate) fn apiserver_service_address(&self) -> anyhow::Result<IpAddr> {
        nth_address(&self.service_cidr, 1)
    }

    /// The address at which this node's programs reach each other: loopback, or the node's address on a sandbox node, which shares a
    /// loopback with others.
    pub(crate) fn local(&self) -> IpAddr {
        if self.paths.in_sandbox() { self.address } else { Ipv4Addr::LOCALHOST.into() }
    }

    /// The apiserver's listen address: 0.0.0.0 regardless of `bind-address`, as in RKE2, or the node's address on a sandbox node.
    pub(crate) fn apiserver_listens_on(&self) -> IpAddr {
        if self.paths.in_sandbox() { self.address } else { Ipv4Addr::UNSPECIFIED.into() }
    }

    /// The supervisor's listen addresses; only the first is required. In addition to `bind-address` it listens on loopback, which RKE2's
    /// commands use. A sandbox node listens on its own address only, because it shares its machine's loopback.
    pub(crate) fn supervisor_listens_on(&self) -> anyhow::Result<Vec<IpAddr>> {
        let bound: IpAddr = match self.options.value("bind-address") {
            _ if self.paths.in_sandbox() => return Ok(vec![self.address]),
            Some(text) => text.parse().with_context(|| format!("invalid bind-address {text}"))?,
            None => Ipv4Addr::UNSPECIFIED.into(),
        };
        if bound.is_unspecified() {
            return Ok(vec![bound]);
        }
        let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        Ok(std::iter::once(bound).chain(loopback.into_iter().filter(|address| *address != bound)).collect())
    }
}

/// Index of the cluster DNS's default address in the service network.
const DNS_ADDRESS: u8 = 10;

/// The `n`th address of a network; 0 is the network's own address.
fn nth_address(cidr: &str, n: u8) -> anyhow::Result<IpAddr> {
    let network = cidr.split('/').next().unwrap_or_default();
    let base: IpAddr = network.parse().with_context(|| format!("invalid service-cidr {cidr}"))?;
    Ok(match base {
        IpAddr::V4(v4) => IpAddr::V4(v4.to_bits().saturating_add(n.into()).into()),
        IpAddr::V6(v6) => IpAddr::V6(v6.to_bits().saturating_add(n.into()).into()),
    })
}

/// The error for a cluster reset, which the stand-in does not implement. A server that started normally would look like one that was
/// reset.
const NO_RESET: &str = "the stand-in has no cluster reset: remove cluster-reset (on the command line, in config.yaml and as RKE2_CLUSTER_RESET) \
                        and start it normally, or restore with the real RKE2";

fn check(options: &Options) -> anyhow::Result<()> {
    if options.switch("cluster-reset") {
        anyhow::bail!(NO_RESET);
    }
    if options.value("cluster-reset-restore-path").is_some() {
        anyhow::bail!("invalid flag use; --cluster-reset required with --cluster-reset-restore-path");
    }
    for cni in options.list("cni") {
        if !CNIS.contains(&cni.as_str()) {
            anyhow::bail!("Invalid value {cni} for --cni flag: must be one of calico,canal,cilium,flannel");
        }
    }
    match options.value("profile") {
        None => crate::log::warning!("not running in CIS mode"),
        Some("cis" | "etcd") => {}
        Some(other) => anyhow::bail!("invalid value provided for --profile flag: {other}"),
    }
    Ok(())
}

fn first(options: &Options, name: &str, default: &str) -> String {
    options.list(name).into_iter().next().unwrap_or_else(|| default.to_owned())
}

/// Returns the content of the file in the option `<name>-file`, or else the value of `name`. The file takes precedence, as in RKE2.
fn secret(paths: &HostPaths, options: &Options, name: &str) -> anyhow::Result<Option<String>> {
    let Some(file) = options.value(&format!("{name}-file")) else { return Ok(options.value(name).map(str::to_owned)) };
    let text = std::fs::read_to_string(paths.at(file)).with_context(|| format!("failed to read {file}"))?;
    Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
}

/// Returns the first address other than 0.0.0.0 and :: in `node-ip`, `bind-address` and the sandbox's address, or else the source
/// address of the default route.
fn address(options: &Options) -> anyhow::Result<IpAddr> {
    let configured = options.list("node-ip").into_iter().chain(options.list("bind-address"));
    let sandbox = std::env::var("GPUAAS_SANDBOX_ADDRESS").ok();
    for text in configured.chain(sandbox).filter(|text| !text.is_empty()) {
        let address: IpAddr = text.parse().with_context(|| format!("invalid node-ip {text}"))?;
        if !address.is_unspecified() {
            return Ok(address);
        }
    }
    // Connecting a datagram socket sends nothing; the kernel only selects a source address.
    let probe = UdpSocket::bind("0.0.0.0:0")?;
    probe.connect("192.0.2.1:9").context("unable to select an IP from default routes")?;
    Ok(probe.local_addr()?.ip())
}

fn hostname() -> anyhow::Result<String> {
    if let Some(name) = std::env::var("GPUAAS_SANDBOX_HOSTNAME").ok().filter(|name| !name.is_empty()) {
        return Ok(name);
    }
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    anyhow::ensure!(!name.is_empty(), "the host has no name");
    Ok(name)
}

/// Returns the node's ID for `with-node-id`: eight hex characters, generated at the first call and then kept.
fn node_id(paths: &HostPaths) -> anyhow::Result<String> {
    let file = paths.at("/etc/rancher/node/id");
    if let Some(id) = paths::read_optional(&file)? {
        return Ok(id.trim().to_owned());
    }
    let id = crate::token::generate()?[..8].to_owned();
    paths::make_dir(&paths.at("/etc/rancher/node"), 0o755)?;
    paths::write_durable(&file, 0o600, format!("{id}\n"))?;
    Ok(id)
}

#[cfg(test)]
mod tests;

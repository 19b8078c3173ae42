//! Command line definition (clap). The doc comments of commands and arguments are the help texts.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use clap_complete::ArgValueCandidates;
use gpuaas_server::{KeepFor, Network, SYSTEM_CA_BUNDLE, TrustedKey};
use gpuaas_trust::OldestTls;

use crate::{commands, completion, dev, target::Target, traces::Collector};

/// Operate a GPU cloud's control plane
///
/// Data goes to stdout, messages to stderr.
#[derive(Debug, Parser)]
#[command(name = "gpuaas", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Manage nodes
    #[command(subcommand)]
    Node(commands::node::Verb),
    /// List the replicas of the control plane
    #[command(subcommand)]
    Replica(commands::replica::Verb),
    /// Manage projects
    #[command(subcommand)]
    Project(commands::project::Verb),
    /// Manage allocations of nodes to projects
    #[command(subcommand)]
    Allocation(commands::allocation::Verb),
    /// Exchange a control plane's one-time admin token for a platform admin's API token
    Bootstrap(commands::bootstrap::Bootstrap),
    /// Sign in to the workload shell in a browser, with the current token
    Login(commands::login::Login),
    /// Manage the browsers that are signed in with the current token
    #[command(subcommand)]
    Session(commands::session::Verb),
    /// Manage API tokens
    #[command(subcommand)]
    Token(commands::token::Verb),
    /// Manage service accounts
    #[command(subcommand)]
    ServiceAccount(commands::service_account::Verb),
    /// Manage the control plane's signing keys, sealing key and certificate authorities
    #[command(subcommand)]
    Keys(commands::keys::Verb),
    /// Inspect the app catalog
    #[command(subcommand)]
    App(commands::app::Verb),
    /// Import and list artifacts of app releases
    #[command(subcommand)]
    Artifact(commands::artifact::Verb),
    /// Deploy and manage workloads
    #[command(subcommand)]
    Workload(commands::workload::Verb),
    /// Start, inspect and cancel operations
    #[command(subcommand)]
    Operation(commands::operation::Verb),
    /// Inspect signed tasks
    #[command(subcommand)]
    Task(commands::task::Verb),
    /// List and follow events
    #[command(subcommand)]
    Event(commands::event::Verb),
    /// Query and verify audit records
    #[command(subcommand)]
    Audit(commands::audit::Verb),
    /// Read operations, events and audit records that were archived from the database
    #[command(subcommand)]
    Archive(commands::archive::Verb),
    /// Collect diagnostics
    #[command(subcommand)]
    Support(commands::support::Verb),
    /// Manage contexts: saved control planes, tokens and projects
    #[command(subcommand)]
    Context(commands::context::Verb),
    /// Show the name and role of the current token's holder
    Whoami,
    /// Print the version of this program and of the control plane, if one is configured
    Version,
    /// Explain an error code or a finding; without one, list all codes
    Explain {
        /// Error code or finding, for example rke2_residue or inotify_low
        #[arg(add = ArgValueCandidates::new(completion::explainable))]
        code: Option<String>,
    },
    /// Show the flags that every command accepts
    Flags,
    /// Run the control plane
    Server(Box<Server>),
    /// Run a control plane and sandbox nodes on this machine for development
    Dev(dev::Options),
    /// Print a script that makes a shell complete commands, flags and the names of objects
    ///
    /// The shell then asks this program, which asks the control plane for names; without an answer within a second it completes none.
    Completion {
        /// Shell that will read the script
        shell: clap_complete::Shell,
    },
    /// Write a manual page for every command
    Man {
        /// Directory to write to, for example /usr/local/share/man/man1
        folder: PathBuf,
    },
    /// Run the init process of a sandbox node
    #[command(hide = true)]
    SandboxInit(SandboxInit),
    /// Emulate systemctl in a sandbox node
    #[command(hide = true)]
    SandboxSystemctl {
        /// Arguments as systemctl takes them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

impl Command {
    /// Returns the format of the process's own log: `server` has a flag for it, every other command logs for people.
    pub(crate) fn log_format(&self) -> LogFormat {
        match self {
            Self::Server(server) => server.log_format,
            _ => LogFormat::Text,
        }
    }

    /// Returns the collector of the process's traces, if there is one. Only a serving control plane sends traces.
    pub(crate) fn collector(&self) -> Option<Collector> {
        match self {
            Self::Server(server) if server.verb.is_none() => server.collector(),
            _ => None,
        }
    }

    /// Reports whether a closed pipe ends the command. It must not end a process that others depend on.
    pub(crate) fn ends_on_closed_pipe(&self) -> bool {
        match self {
            Self::Server(server) => server.verb.is_some(),
            command => command.takes_timeout(),
        }
    }

    /// Reports whether `--timeout` can end the command. It must not interrupt a control plane or a change of its files.
    pub(crate) fn takes_timeout(&self) -> bool {
        !matches!(self, Self::Server(_) | Self::Dev(_) | Self::SandboxInit(_) | Self::SandboxSystemctl { .. })
    }

    /// Reports whether the command needs a multi-threaded runtime.
    pub(crate) fn needs_threads(&self) -> bool {
        matches!(self, Self::Server(_))
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Server {
    /// TOML file with settings; its keys are the long names of these flags without their dashes
    #[arg(long, global = true, env = "GPUAAS_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) verb: Option<ServerVerb>,
    /// Directory for the database, keys, artifacts and other state
    #[arg(
        long,
        global = true,
        env = "GPUAAS_DATA_DIR",
        hide_env_values = true,
        value_name = "DIR",
        default_value = "/var/lib/gpuaas"
    )]
    pub(crate) data_dir: PathBuf,
    /// Address and port on which the API listens
    #[arg(
        long,
        env = "GPUAAS_LISTEN",
        hide_env_values = true,
        default_value = "127.0.0.1:7443",
        value_parser = crate::values::socket_address
    )]
    pub(crate) listen: SocketAddr,
    /// Address and port on which the node channel listens
    #[arg(
        long,
        env = "GPUAAS_CHANNEL_LISTEN",
        hide_env_values = true,
        default_value = "127.0.0.1:7444",
        value_parser = crate::values::socket_address
    )]
    pub(crate) channel_listen: SocketAddr,
    /// Address and port on which other replicas reach this one; used only with a shared database
    #[arg(
        long,
        env = "GPUAAS_REPLICA_LISTEN",
        hide_env_values = true,
        default_value = "127.0.0.1:7445",
        value_parser = crate::values::socket_address
    )]
    pub(crate) replica_listen: SocketAddr,
    /// Address (host:port) that this replica announces to the others; default: the one from --replica-listen
    #[arg(long, env = "GPUAAS_REPLICA_ADDRESS", hide_env_values = true, value_name = "ADDRESS")]
    pub(crate) replica_address: Option<String>,
    /// Oldest TLS version that API clients may use: 1.2 or 1.3; nodes and replicas always use 1.3
    #[arg(long, env = "GPUAAS_TLS_MIN_VERSION", hide_env_values = true, value_name = "VERSION", default_value = "1.3")]
    pub(crate) tls_min_version: OldestTls,
    /// URL (https://HOST or https://HOST:PORT) by which clients and nodes reach the API; default: the listen address
    #[arg(long, env = "GPUAAS_PUBLIC_URL", hide_env_values = true, value_name = "URL", value_parser = crate::public_url::parse)]
    pub(crate) public_url: Option<String>,
    /// File with the postgres:// URL of the database that replicas share; default: GPUAAS_STORE_URL, else SQLite in the data directory
    #[arg(long, env = "GPUAAS_STORE_URL_FILE", hide_env_values = true, value_name = "FILE")]
    pub(crate) store_url_file: Option<PathBuf>,
    /// File with the 32-byte key that encrypts secrets in the database; required with a shared database; default: made in the data
    /// directory
    #[arg(long, env = "GPUAAS_SEALING_KEY_FILE", hide_env_values = true, value_name = "FILE")]
    pub(crate) sealing_key_file: Option<PathBuf>,
    /// Absolute path of the directory for artifacts; default: a folder in the data directory
    #[arg(
        long,
        env = "GPUAAS_ARTIFACTS_DIR",
        hide_env_values = true,
        value_name = "DIR",
        value_parser = crate::values::absolute_path
    )]
    pub(crate) artifacts_dir: Option<PathBuf>,
    /// Directory with the packages installed on new nodes, as `cargo xtask package` makes them; default: those shipped with this program
    #[arg(long, env = "GPUAAS_PACKAGES_DIR", hide_env_values = true, value_name = "DIR")]
    pub(crate) packages_dir: Option<PathBuf>,
    /// PEM file with the certificate authorities that release servers are verified against
    #[arg(
        long,
        env = "GPUAAS_RELEASE_CA_BUNDLE",
        hide_env_values = true,
        value_name = "FILE",
        default_value = SYSTEM_CA_BUNDLE
    )]
    pub(crate) release_ca_bundle: PathBuf,
    /// Program that reimages machines after a tenant leaves; if set, a machine must prove that it was reimaged
    #[arg(long, env = "GPUAAS_REIMAGE_HOOK", hide_env_values = true, value_name = "FILE")]
    pub(crate) reimage_hook: Option<PathBuf>,
    /// Absolute path of the directory below which releases may be imported from folders; default: folder imports are refused
    #[arg(long, env = "GPUAAS_RELEASE_IMPORT_DIR", hide_env_values = true, value_name = "DIR")]
    pub(crate) release_import_dir: Option<PathBuf>,
    /// Non-public networks from which releases may be fetched, for example 10.4.0.0/16; separated by commas; default: none
    #[arg(
        long,
        env = "GPUAAS_RELEASE_PRIVATE_NETWORKS",
        hide_env_values = true,
        value_name = "CIDR",
        value_delimiter = ','
    )]
    pub(crate) release_private_networks: Vec<Network>,
    /// Public minisign keys (RW…) trusted to sign the checksum files of releases; separated by commas; default: none
    #[arg(
        long,
        env = "GPUAAS_RELEASE_TRUSTED_KEYS",
        hide_env_values = true,
        value_name = "KEY",
        value_delimiter = ','
    )]
    pub(crate) release_trusted_keys: Vec<TrustedKey>,
    /// Allow imports of releases that neither a digest nor a trusted signature verifies
    #[arg(
        long,
        env = "GPUAAS_ALLOW_UNVERIFIED_RELEASES",
        hide_env_values = true,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    pub(crate) allow_unverified_releases: bool,
    /// Networks of load balancers, for example 10.0.0.0/28; separated by commas; default: none. API and node channel connections from there
    /// must begin with a PROXY protocol version 2 header, whose source address counts as the client's
    #[arg(
        long,
        env = "GPUAAS_PROXY_PROTOCOL_FROM",
        hide_env_values = true,
        value_name = "CIDR",
        value_delimiter = ','
    )]
    pub(crate) proxy_protocol_from: Vec<Network>,
    /// Serve /metrics without a token to direct loopback connections; all other requests need a token that may read metrics
    #[arg(
        long,
        env = "GPUAAS_METRICS_OVER_LOOPBACK",
        hide_env_values = true,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    pub(crate) metrics_over_loopback: bool,
    /// Requests per second allowed for one token; bursts of up to four times as many
    #[arg(long, env = "GPUAAS_REQUESTS_PER_TOKEN", hide_env_values = true, value_name = "N", default_value = "1000")]
    pub(crate) requests_per_token: NonZeroU32,
    /// Requests per second allowed for all tokens of one project together; bursts of up to four times as many
    #[arg(long, env = "GPUAAS_REQUESTS_PER_PROJECT", hide_env_values = true, value_name = "N", default_value = "2000")]
    pub(crate) requests_per_project: NonZeroU32,
    /// Requests per second allowed from one address without a valid token; bursts of up to four times as many
    #[arg(long, env = "GPUAAS_REQUESTS_PER_ADDRESS", hide_env_values = true, value_name = "N", default_value = "2000")]
    pub(crate) requests_per_address: NonZeroU32,
    /// How long ended operations with their steps and tasks stay in the database before they are archived, for example 90d, 36h or forever
    #[arg(long, env = "GPUAAS_KEEP_OPERATIONS", hide_env_values = true, value_name = "DURATION", default_value = "90d", value_parser = crate::duration::parse_retention)]
    pub(crate) keep_operations: KeepFor,
    /// How long events stay in the database before they are archived, for example 30d or forever
    #[arg(long, env = "GPUAAS_KEEP_EVENTS", hide_env_values = true, value_name = "DURATION", default_value = "30d", value_parser = crate::duration::parse_retention)]
    pub(crate) keep_events: KeepFor,
    /// How long audit records stay in the database before they are archived, for example 400d or forever
    #[arg(long, env = "GPUAAS_KEEP_AUDIT", hide_env_values = true, value_name = "DURATION", default_value = "400d", value_parser = crate::duration::parse_retention)]
    pub(crate) keep_audit: KeepFor,
    /// How long a request repeated with the same idempotency key gets the first response, for example 24h or forever
    #[arg(long, env = "GPUAAS_KEEP_IDEMPOTENCY_KEYS", hide_env_values = true, value_name = "DURATION", default_value = "24h", value_parser = crate::duration::parse_retention)]
    pub(crate) keep_idempotency_keys: KeepFor,
    /// How long used or expired enrollments are kept before they are deleted, for example 7d or forever
    #[arg(long, env = "GPUAAS_KEEP_ENROLLMENTS", hide_env_values = true, value_name = "DURATION", default_value = "7d", value_parser = crate::duration::parse_retention)]
    pub(crate) keep_enrollments: KeepFor,
    /// How long records of expired or revoked tokens and kubeconfigs are kept before they are deleted, for example 30d or forever
    #[arg(long, env = "GPUAAS_KEEP_ENDED_CREDENTIALS", hide_env_values = true, value_name = "DURATION", default_value = "30d", value_parser = crate::duration::parse_retention)]
    pub(crate) keep_ended_credentials: KeepFor,
    /// Longest time from starting RKE2 until it is ready, for example 10m; the time to import its images is added
    #[arg(long, env = "GPUAAS_RKE2_START_DEADLINE", hide_env_values = true, value_name = "DURATION", default_value = "10m", value_parser = crate::duration::parse)]
    pub(crate) rke2_start_deadline: Duration,
    /// Longest time from then until the Kubernetes node is Ready, for example 5m
    #[arg(long, env = "GPUAAS_RKE2_NODE_READY_DEADLINE", hide_env_values = true, value_name = "DURATION", default_value = "5m", value_parser = crate::duration::parse)]
    pub(crate) rke2_node_ready_deadline: Duration,
    /// Start a new control plane although this data directory was used and its database is missing; remains of the earlier control plane
    /// are moved into a new folder in the data directory
    #[arg(long)]
    pub(crate) reinitialize: bool,
    /// Write a JSON file (0600, atomically) with url, ca_file and replicas once the control plane serves
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
    /// Format of the log on standard error
    #[arg(long, env = "GPUAAS_LOG_FORMAT", hide_env_values = true, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// Send traces to this OpenTelemetry collector (OTLP over HTTP), for example http://127.0.0.1:4318; off without it
    #[arg(long, env = "GPUAAS_OTLP_ENDPOINT", hide_env_values = true, value_name = "URL", value_parser = crate::traces::parse_endpoint)]
    pub(crate) otlp_endpoint: Option<http::Uri>,
    /// PEM file with the certificate authorities that a collector with https is verified against
    #[arg(
        long,
        env = "GPUAAS_OTLP_CA_FILE",
        hide_env_values = true,
        value_name = "FILE",
        default_value = SYSTEM_CA_BUNDLE
    )]
    pub(crate) otlp_ca_file: PathBuf,
    /// Exit when standard input closes
    #[arg(long, hide = true)]
    pub(crate) lifeline: bool,
}

impl Server {
    /// Returns the collector that the settings name.
    pub(crate) fn collector(&self) -> Option<Collector> {
        let endpoint = self.otlp_endpoint.clone()?;
        Some(Collector { endpoint, ca_file: self.otlp_ca_file.clone() })
    }
}

/// Log formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines of text
    #[value(alias = "people")]
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ServerVerb {
    /// Accept a database that lacks or may lack acknowledged changes: revoke every credential, as a restore does; stop every replica first
    AcceptHistory {
        /// Confirm that nothing is lost although the high-water mark is missing or damaged; makes a new mark and revokes nothing
        #[arg(long)]
        keep_credentials: bool,
        #[command(flatten)]
        confirm: commands::confirm::Confirm,
    },
    /// Print the effective settings, where each comes from, and problems found; starts and changes nothing
    CheckConfig,
    /// Back up rows, artifacts and the sealing key of the data directory into one file; the control plane may be running
    Backup {
        /// File to write, with mode 0600; it appears only when it is complete
        file: PathBuf,
        #[command(flatten)]
        overwrite: commands::overwrite::Overwrite,
    },
    /// Make the next sealing key next to the present one; each running replica loads it on reload (SIGHUP)
    NextSealingKey {
        /// File with the next key that was made on another replica's machine; default: a fresh key
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
    },
    /// Make a one-time admin token on this machine, for gpuaas bootstrap; the control plane may be running
    RecoverAdmin,
    /// Read every row, sealed value and artifact and report problems; changes nothing, and the control plane may be running
    Verify,
    /// Restore a backup into an empty database; start the control plane as usual afterwards
    Restore {
        /// Backup file to read
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SandboxInit {
    /// Directory that is the root file system of the node
    #[arg(long)]
    pub(crate) root: camino::Utf8PathBuf,
    /// Host name of the node
    #[arg(long)]
    pub(crate) hostname: String,
    /// Loopback address of the node
    #[arg(long)]
    pub(crate) address: std::net::IpAddr,
    /// Exit when standard input closes
    #[arg(long)]
    pub(crate) lifeline: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn only_a_serving_control_plane_sends_traces() {
        for (verb, sends) in [(&[][..], true), (&["check-config"], false), (&["restore", "backup.tar"], false)] {
            let line = [&["gpuaas", "server", "--otlp-endpoint", "https://collector.example"][..], verb].concat();
            let command = Cli::try_parse_from(line).expect("a command line").command;
            assert_eq!(command.collector().is_some(), sends, "{verb:?}");
        }
    }
}

//! The command line, as its users see it.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use gpuaas_server::{KeepFor, Network, TrustedKey};
use gpuaas_trust::OldestTls;

use crate::commands;

/// The control plane of a GPU cloud, from the command line.
///
/// Data goes to stdout, words for people to stderr. Exit status: 0 done, 1 failed, 2 usage, 3 not found, 4 refused, 5 conflict,
/// 6 unauthorized, 7 unreachable, 8 timed out.
#[derive(Debug, Parser)]
#[command(name = "gpuaas", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which control plane, as whom, how to print, and how long to wait.
#[derive(Clone, Debug, Args)]
pub(crate) struct Target {
    /// The control plane, for example https://cp.example:7443
    #[arg(long, global = true, env = "GPUAAS_SERVER", value_name = "URL", hide_env_values = true)]
    pub(crate) url: Option<String>,
    /// A file with the certificate authority that the control plane proves itself by
    #[arg(long, global = true, env = "GPUAAS_CA_FILE", value_name = "FILE", hide_env_values = true)]
    pub(crate) ca_file: Option<PathBuf>,
    /// A file that `gpuaas dev --ready-file` wrote: names control plane, authority and token at once
    #[arg(long, global = true, env = "GPUAAS_READY_FILE", value_name = "FILE", hide_env_values = true)]
    pub(crate) ready_file: Option<PathBuf>,
    /// A context of the context file, instead of its current one
    #[arg(long, global = true, env = "GPUAAS_CONTEXT", value_name = "NAME", hide_env_values = true)]
    pub(crate) context: Option<String>,
    /// The project, by name or id
    #[arg(long, global = true, env = "GPUAAS_PROJECT", value_name = "PROJECT", hide_env_values = true)]
    pub(crate) project: Option<String>,
    /// How to print
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
    /// Wait until what was begun has ended; on a terminal, operations are followed without it
    #[arg(long, global = true)]
    pub(crate) wait: bool,
    /// Give up after this long, for example 90s or 10m; what was begun goes on
    #[arg(long, global = true, value_name = "DURATION", value_parser = crate::duration::parse)]
    pub(crate) timeout: Option<Duration>,
    /// Ask for a change under this key: however often it is asked for, it is made once
    #[arg(long, global = true, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
    /// Names or ids, one a line
    Name,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Machines
    #[command(subcommand)]
    Node(commands::node::Verb),
    /// The processes of the control plane
    #[command(subcommand)]
    Replica(commands::replica::Verb),
    /// Projects
    #[command(subcommand)]
    Project(commands::project::Verb),
    /// Nodes given to projects
    #[command(subcommand)]
    Allocation(commands::allocation::Verb),
    /// Exchange the one-time admin token of a control plane for a platform admin's token
    Bootstrap(commands::bootstrap::Bootstrap),
    /// API tokens
    #[command(subcommand)]
    Token(commands::token::Verb),
    /// Programs that act for a project
    #[command(subcommand)]
    ServiceAccount(commands::service_account::Verb),
    /// Keys of the control plane
    #[command(subcommand)]
    Keys(commands::keys::Verb),
    /// The catalog
    #[command(subcommand)]
    App(commands::app::Verb),
    /// Releases of apps
    #[command(subcommand)]
    Artifact(commands::artifact::Verb),
    /// Deployed apps
    #[command(subcommand)]
    Workload(commands::workload::Verb),
    /// What is being done with workloads
    #[command(subcommand)]
    Operation(commands::operation::Verb),
    /// Signed tasks
    #[command(subcommand)]
    Task(commands::task::Verb),
    /// What happens
    #[command(subcommand)]
    Event(commands::event::Verb),
    /// What was done, by whom
    #[command(subcommand)]
    Audit(commands::audit::Verb),
    /// Find history that left the database
    #[command(subcommand)]
    Archive(commands::archive::Verb),
    /// Help for those who help you
    #[command(subcommand)]
    Support(commands::support::Verb),
    /// Control planes that you work with
    #[command(subcommand)]
    Context(commands::context::Verb),
    /// Who the token's holder is
    Whoami,
    /// Print this program's version
    Version,
    /// Run the control plane
    Server(Box<Server>),
    /// Run a control plane and sandbox nodes on this machine
    Dev(Dev),
    /// Print a completion script for a shell
    Completion {
        /// For this shell
        shell: clap_complete::Shell,
    },
    /// Write a manual page of every command
    Man {
        /// The folder, for example /usr/local/share/man/man1
        folder: PathBuf,
    },
    /// The init of a sandbox node
    #[command(hide = true)]
    SandboxInit(SandboxInit),
    /// The systemctl of a sandbox node
    #[command(hide = true)]
    SandboxSystemctl {
        /// systemctl's own arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

impl Command {
    /// The form of its log.
    pub(crate) fn log_format(&self) -> LogFormat {
        match self {
            Self::Server(server) => server.log_format,
            _ => LogFormat::People,
        }
    }

    /// Whether it serves many at once.
    pub(crate) fn needs_threads(&self) -> bool {
        matches!(self, Self::Server(_))
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Server {
    /// A TOML file of settings; its keys are these flags without their dashes
    #[arg(long, global = true, env = "GPUAAS_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) verb: Option<ServerVerb>,
    /// Where everything is kept
    #[arg(
        long,
        global = true,
        env = "GPUAAS_DATA_DIR",
        hide_env_values = true,
        value_name = "DIR",
        default_value = "/var/lib/gpuaas"
    )]
    pub(crate) data_dir: PathBuf,
    /// Where the API listens
    #[arg(long, env = "GPUAAS_LISTEN", hide_env_values = true, default_value = "127.0.0.1:7443")]
    pub(crate) listen: SocketAddr,
    /// Where the node channel listens
    #[arg(long, env = "GPUAAS_CHANNEL_LISTEN", hide_env_values = true, default_value = "127.0.0.1:7444")]
    pub(crate) channel_listen: SocketAddr,
    /// Where other replicas reach this one; used with a shared store alone
    #[arg(long, env = "GPUAAS_REPLICA_LISTEN", hide_env_values = true, default_value = "127.0.0.1:7445")]
    pub(crate) replica_listen: SocketAddr,
    /// How other replicas name this one (host:port), where that differs from where it listens for them
    #[arg(long, env = "GPUAAS_REPLICA_ADDRESS", hide_env_values = true, value_name = "ADDRESS")]
    pub(crate) replica_address: Option<String>,
    /// The oldest TLS that clients of the API may speak, 1.2 or 1.3; nodes and replicas speak 1.3
    #[arg(long, env = "GPUAAS_TLS_MIN_VERSION", hide_env_values = true, value_name = "VERSION", default_value = "1.3")]
    pub(crate) tls_min_version: OldestTls,
    /// How clients and nodes name the API, where that differs from where it listens
    #[arg(long, env = "GPUAAS_PUBLIC_URL", hide_env_values = true, value_name = "URL", value_parser = crate::public_url::parse)]
    pub(crate) public_url: Option<String>,
    /// A file with the address (postgres://…) of a store that replicas share; GPUAAS_STORE_URL may hold it instead. SQLite when absent
    #[arg(long, env = "GPUAAS_STORE_URL_FILE", hide_env_values = true, value_name = "FILE")]
    pub(crate) store_url_file: Option<PathBuf>,
    /// The key, 32 bytes, that seals what the store keeps secret; needed for a shared store
    #[arg(long, env = "GPUAAS_SEALING_KEY_FILE", hide_env_values = true, value_name = "FILE")]
    pub(crate) sealing_key_file: Option<PathBuf>,
    /// Where artifacts lie; in the data directory when absent
    #[arg(long, env = "GPUAAS_ARTIFACTS_DIR", hide_env_values = true, value_name = "DIR")]
    pub(crate) artifacts_dir: Option<PathBuf>,
    /// Packages that machines are brought in with, as `cargo xtask package` makes them; those that came with this program when absent
    #[arg(long, env = "GPUAAS_PACKAGES_DIR", hide_env_values = true, value_name = "DIR")]
    pub(crate) packages_dir: Option<PathBuf>,
    /// Authorities, PEM, that servers of releases must prove themselves by
    #[arg(
        long,
        env = "GPUAAS_RELEASE_CA_BUNDLE",
        hide_env_values = true,
        value_name = "FILE",
        default_value = "/etc/ssl/certs/ca-certificates.crt"
    )]
    pub(crate) release_ca_bundle: PathBuf,
    /// Program that reimages machines which tenants have left; where there is one, they must show that it did
    #[arg(long, env = "GPUAAS_REIMAGE_HOOK", hide_env_values = true, value_name = "FILE")]
    pub(crate) reimage_hook: Option<PathBuf>,
    /// The folder below which releases lie that are imported from folders; none are when absent
    #[arg(long, env = "GPUAAS_RELEASE_IMPORT_DIR", hide_env_values = true, value_name = "DIR")]
    pub(crate) release_import_dir: Option<PathBuf>,
    /// Networks that are not public and that releases may be fetched from all the same, for example 10.4.0.0/16; separated by commas
    #[arg(
        long,
        env = "GPUAAS_RELEASE_PRIVATE_NETWORKS",
        hide_env_values = true,
        value_name = "CIDR",
        value_delimiter = ','
    )]
    pub(crate) release_private_networks: Vec<Network>,
    /// Public keys of minisign (RW…) whose signatures over a release's sum file count; separated by commas
    #[arg(
        long,
        env = "GPUAAS_RELEASE_TRUSTED_KEYS",
        hide_env_values = true,
        value_name = "KEY",
        value_delimiter = ','
    )]
    pub(crate) release_trusted_keys: Vec<TrustedKey>,
    /// Import releases that neither a digest nor a trusted signature verifies
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
    /// Networks of balancers, for example 10.0.0.0/28: connections to the API and the node channel from there must begin with a header of the PROXY
    /// protocol, version 2, and count for the address that it names; separated by commas
    #[arg(
        long,
        env = "GPUAAS_PROXY_PROTOCOL_FROM",
        hide_env_values = true,
        value_name = "CIDR",
        value_delimiter = ','
    )]
    pub(crate) proxy_protocol_from: Vec<Network>,
    /// Show /metrics without a token to this machine itself, over loopback; everybody else needs a token that may read them
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
    /// Requests a second by one token; four times as many at once
    #[arg(long, env = "GPUAAS_REQUESTS_PER_TOKEN", hide_env_values = true, value_name = "N", default_value = "1000")]
    pub(crate) requests_per_token: NonZeroU32,
    /// Requests a second by all tokens of one project; four times as many at once
    #[arg(long, env = "GPUAAS_REQUESTS_PER_PROJECT", hide_env_values = true, value_name = "N", default_value = "2000")]
    pub(crate) requests_per_project: NonZeroU32,
    /// Requests a second from one address; four times as many at once
    #[arg(long, env = "GPUAAS_REQUESTS_PER_ADDRESS", hide_env_values = true, value_name = "N", default_value = "2000")]
    pub(crate) requests_per_address: NonZeroU32,
    /// How long operations with their steps and tasks stay in the database after their end, for example 90d, 36h or forever; then archives hold them
    #[arg(long, env = "GPUAAS_KEEP_OPERATIONS", hide_env_values = true, value_name = "DURATION", default_value = "90d", value_parser = crate::duration::keep)]
    pub(crate) keep_operations: KeepFor,
    /// How long events stay in the database; then archives hold them
    #[arg(long, env = "GPUAAS_KEEP_EVENTS", hide_env_values = true, value_name = "DURATION", default_value = "30d", value_parser = crate::duration::keep)]
    pub(crate) keep_events: KeepFor,
    /// How long audit records stay in the database; then archives hold them
    #[arg(long, env = "GPUAAS_KEEP_AUDIT", hide_env_values = true, value_name = "DURATION", default_value = "400d", value_parser = crate::duration::keep)]
    pub(crate) keep_audit: KeepFor,
    /// How long a request is answered again under its idempotency key
    #[arg(long, env = "GPUAAS_KEEP_IDEMPOTENCY_KEYS", hide_env_values = true, value_name = "DURATION", default_value = "24h", value_parser = crate::duration::keep)]
    pub(crate) keep_idempotency_keys: KeepFor,
    /// How long enrollments are remembered after their use or expiry
    #[arg(long, env = "GPUAAS_KEEP_ENROLLMENTS", hide_env_values = true, value_name = "DURATION", default_value = "7d", value_parser = crate::duration::keep)]
    pub(crate) keep_enrollments: KeepFor,
    /// How long tokens and kubeconfigs are listed after their expiry or withdrawal
    #[arg(long, env = "GPUAAS_KEEP_ENDED_CREDENTIALS", hide_env_values = true, value_name = "DURATION", default_value = "30d", value_parser = crate::duration::keep)]
    pub(crate) keep_ended_credentials: KeepFor,
    /// How long RKE2 may take from its start until it is ready, for example 10m; the time to import its images comes on top
    #[arg(long, env = "GPUAAS_RKE2_START_DEADLINE", hide_env_values = true, value_name = "DURATION", default_value = "10m", value_parser = crate::duration::parse)]
    pub(crate) rke2_start_deadline: Duration,
    /// How long a KubeNode may take from there until it is Ready
    #[arg(long, env = "GPUAAS_RKE2_NODE_READY_DEADLINE", hide_env_values = true, value_name = "DURATION", default_value = "5m", value_parser = crate::duration::parse)]
    pub(crate) rke2_node_ready_deadline: Duration,
    /// Begin anew where the store of this data directory is missing; what is left of the earlier control plane is moved into a folder of the data
    /// directory
    #[arg(long)]
    pub(crate) begin_anew: bool,
    /// Written when it serves: url, ca_file
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
    /// The form of the log on standard error
    #[arg(long, env = "GPUAAS_LOG_FORMAT", hide_env_values = true, value_enum, default_value_t = LogFormat::People)]
    pub(crate) log_format: LogFormat,
    /// End when standard input ends
    #[arg(long, hide = true)]
    pub(crate) lifeline: bool,
}

/// The form of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines to read
    People,
    /// One JSON object a line
    Json,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ServerVerb {
    /// Go on with a database that lacks what was acknowledged: revokes every credential, as a restore does; end every replica first
    AcceptHistory {
        /// You know that nothing is missing although the high-water mark is: make it anew, and revoke nothing
        #[arg(long)]
        as_it_is: bool,
    },
    /// Say which settings count, where each comes from, and what is wrong with them; nothing is started or changed
    CheckConfig,
    /// Write rows, artifacts and the sealing key that lies with them into one file, also while the control plane runs
    Backup {
        /// The file (0600); it appears when it is whole
        file: PathBuf,
    },
    /// Make the sealing key that is to follow, beside the present one; each running replica takes it when it is reloaded (SIGHUP)
    NextSealingKey {
        /// A file with the key that another replica's machine has made; a fresh key when absent
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
    },
    /// Make a one-time admin token on this machine, also while the control plane runs; gpuaas bootstrap exchanges it
    RecoverAdmin,
    /// Read every row, sealed value and artifact and say what is wrong, also while the control plane runs; nothing is changed
    Verify,
    /// Read a backup into an empty store; then start the control plane as before
    Restore {
        /// The file
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// Sandbox nodes
    #[arg(long, default_value_t = 3)]
    pub(crate) nodes: u8,
    /// Where everything is kept
    #[arg(long, default_value = "gpuaas-dev")]
    pub(crate) data_dir: PathBuf,
    /// Where the API listens; further replicas listen at any free port of that address
    #[arg(long, default_value = "127.0.0.1:7443")]
    pub(crate) listen: SocketAddr,
    /// A file with the address (postgres://…) of a store; GPUAAS_STORE_URL may hold it instead. SQLite when absent
    #[arg(long, env = "GPUAAS_STORE_URL_FILE", hide_env_values = true, value_name = "FILE")]
    pub(crate) store_url_file: Option<PathBuf>,
    /// Processes of the control plane; more than one share a store of PostgreSQL's
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(crate) replicas: u8,
    /// Written (0600, atomically) when all is ready: url, ca_file, token, nodes, replicas
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SandboxInit {
    /// The folder that stands for /
    #[arg(long)]
    pub(crate) root: camino::Utf8PathBuf,
    /// The node's host name
    #[arg(long)]
    pub(crate) hostname: String,
    /// The node's own address
    #[arg(long)]
    pub(crate) address: std::net::IpAddr,
    /// End when standard input ends
    #[arg(long)]
    pub(crate) lifeline: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}

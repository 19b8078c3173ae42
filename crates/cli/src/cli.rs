//! The command line, as its users see it.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

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

/// Which control plane, as whom, and how to print.
#[derive(Clone, Debug, Args)]
pub(crate) struct Target {
    /// The control plane, for example https://cp.example:7443
    #[arg(long, global = true, env = "GPUAAS_SERVER", value_name = "URL")]
    pub(crate) server: Option<String>,
    /// A file with the certificate authority that the control plane proves itself by
    #[arg(long, global = true, env = "GPUAAS_CA_FILE", value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// A file that `gpuaas dev --ready-file` wrote: names control plane, authority and token at once
    #[arg(long, global = true, env = "GPUAAS_READY_FILE", value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
    /// The project, by name or id
    #[arg(long, global = true, env = "GPUAAS_PROJECT", value_name = "PROJECT")]
    pub(crate) project: Option<String>,
    /// How to print
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
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
    Node(Node),
    /// Projects
    #[command(subcommand)]
    Project(Project),
    /// Nodes given to projects
    #[command(subcommand)]
    Allocation(Allocation),
    /// API tokens
    #[command(subcommand)]
    Token(Token),
    /// The catalog
    #[command(subcommand)]
    App(App),
    /// Releases of apps
    #[command(subcommand)]
    Artifact(Artifact),
    /// Deployed apps
    #[command(subcommand)]
    Workload(Workload),
    /// What is being done with workloads
    #[command(subcommand)]
    Operation(Operation),
    /// Signed tasks
    #[command(subcommand)]
    Task(Task),
    /// What happens
    #[command(subcommand)]
    Event(Event),
    /// What was done, by whom
    #[command(subcommand)]
    Audit(Audit),
    /// Who the token's holder is
    Whoami,
    /// Run the control plane
    Server(Server),
    /// Run a control plane and sandbox nodes on this machine
    Dev(Dev),
    /// Print a completion script for a shell
    Completion {
        /// For this shell
        shell: clap_complete::Shell,
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
    /// Whether it serves many at once.
    pub(crate) fn needs_threads(&self) -> bool {
        matches!(self, Self::Server(_))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Node {
    /// Register a machine and print the string that brings it in
    Register {
        /// 1 to 63 of a-z, 0-9 and -
        name: String,
        /// Where it stands
        #[arg(long)]
        region: Option<String>,
        /// KEY=VALUE, repeatable
        #[arg(long = "label", value_name = "KEY=VALUE")]
        labels: Vec<String>,
    },
    /// List nodes
    List {
        /// In this state
        #[arg(long)]
        state: Option<String>,
        /// With this connectivity
        #[arg(long)]
        connectivity: Option<String>,
    },
    /// Show a node
    Show {
        /// Name or id
        node: String,
    },
    /// Issue a new enrollment string; earlier ones stop working
    Enroll {
        /// Name or id
        node: String,
    },
    /// Send signed no-ops and print what each took
    Ping {
        /// Name or id
        node: String,
        /// How many
        #[arg(long, default_value_t = 1)]
        count: u32,
    },
    /// Put a reimaged node back into use
    Reset {
        /// Name or id
        node: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Project {
    /// Make a project
    Create {
        /// 1 to 63 of a-z, 0-9 and -
        name: String,
    },
    /// List projects
    List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Allocation {
    /// Give a node to the project
    Create {
        /// The node, by name or id
        #[arg(long)]
        node: String,
    },
    /// List allocations
    List,
    /// Take a node back
    Release {
        /// The allocation's id
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Make a token; its secret is printed once
    Create {
        /// What the audit calls its holder
        name: String,
        /// platform-admin or project-member
        #[arg(long)]
        role: String,
        /// Its life in seconds; without end when absent
        #[arg(long, value_name = "SECONDS")]
        ttl: Option<u64>,
    },
    /// List tokens
    List,
    /// Withdraw a token
    Revoke {
        /// The token's id
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum App {
    /// List apps
    List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Artifact {
    /// Import a release from a folder of the control plane's machine
    Import {
        /// The app's slug
        app: String,
        /// The folder, laid out like a release
        path: PathBuf,
        /// The release's version; the folder's name when absent
        #[arg(long)]
        version: Option<String>,
    },
    /// List imported files
    List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Workload {
    /// Deploy an app
    Deploy {
        /// The app's slug
        app: String,
        /// The workload's name
        #[arg(long)]
        name: String,
        /// The node that the server goes to, by its name or its allocation's id
        #[arg(long)]
        server_node: Option<String>,
        /// A node that an agent goes to; repeatable
        #[arg(long = "agent-node", value_name = "NODE")]
        agent_nodes: Vec<String>,
        /// The version; the newest imported one when absent
        #[arg(long = "app-version", value_name = "VERSION")]
        version: Option<String>,
        /// Settings, as JSON
        #[arg(long, value_name = "JSON")]
        config: Option<String>,
        /// Wait until the operation has ended
        #[arg(long)]
        wait: bool,
    },
    /// List workloads
    List,
    /// Show a workload
    Show {
        /// Name or id
        workload: String,
    },
    /// Add agents
    AddMember {
        /// Name or id
        workload: String,
        /// A node that an agent goes to; repeatable
        #[arg(long = "agent-node", value_name = "NODE", required = true)]
        agent_nodes: Vec<String>,
        /// Wait until the operation has ended
        #[arg(long)]
        wait: bool,
    },
    /// Remove a workload from all of its nodes
    Decommission {
        /// Name or id
        workload: String,
        /// Wait until the operation has ended
        #[arg(long)]
        wait: bool,
    },
    /// Try again what needs attention
    Resume {
        /// Name or id
        workload: String,
        /// Wait until the operation has ended
        #[arg(long)]
        wait: bool,
    },
    /// Print a kubeconfig for the workload's cluster
    Kubeconfig {
        /// Name or id
        workload: String,
        /// direct or break-glass
        #[arg(long)]
        kind: Option<String>,
        /// cluster-admin or cluster-view
        #[arg(long)]
        role: Option<String>,
        /// Why; needed for break-glass
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Operation {
    /// List operations
    List,
    /// Show an operation with its steps
    Show {
        /// Its id
        id: String,
    },
    /// Follow an operation to its end
    Watch {
        /// Its id
        id: String,
    },
    /// Ask an operation to end
    Cancel {
        /// Its id
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// List tasks
    List {
        /// On this node, by name or id
        #[arg(long)]
        node: Option<String>,
        /// Of this operation
        #[arg(long)]
        operation: Option<String>,
    },
    /// Show a task
    Show {
        /// Its id
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Event {
    /// List events: the project's where one is given, else the platform's
    List {
        /// Behind this number
        #[arg(long, default_value_t = 0)]
        after: u64,
    },
    /// Follow events
    Watch {
        /// Behind this number
        #[arg(long, default_value_t = 0)]
        after: u64,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// List audit records
    List {
        /// About this target, for example node/gpu-07
        #[arg(long)]
        target: Option<String>,
        /// Of this action, for example task.dispatch
        #[arg(long)]
        action: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Server {
    /// Where everything is kept
    #[arg(long, env = "GPUAAS_DATA_DIR", default_value = "/var/lib/gpuaas")]
    pub(crate) data_dir: PathBuf,
    /// Where the API listens
    #[arg(long, env = "GPUAAS_LISTEN", default_value = "127.0.0.1:7443")]
    pub(crate) listen: SocketAddr,
    /// Where the node channel listens
    #[arg(long, env = "GPUAAS_CHANNEL_LISTEN", default_value = "127.0.0.1:7444")]
    pub(crate) channel_listen: SocketAddr,
    /// How clients and nodes name the API, where that differs from where it listens
    #[arg(long, env = "GPUAAS_PUBLIC_URL", value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// Written when it serves: url, ca_file, token
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
    /// End when standard input ends
    #[arg(long, hide = true)]
    pub(crate) lifeline: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// Sandbox nodes
    #[arg(long, default_value_t = 3)]
    pub(crate) nodes: u8,
    /// Where everything is kept
    #[arg(long, default_value = "gpuaas-dev")]
    pub(crate) data_dir: PathBuf,
    /// Where the API listens
    #[arg(long, default_value = "127.0.0.1:7443")]
    pub(crate) listen: SocketAddr,
    /// Written (0600, atomically) when all is ready: url, ca_file, token, nodes
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

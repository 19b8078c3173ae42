//! Implements `gpuaas node`.

use std::collections::BTreeMap;

use clap::Subcommand;
use gpuaas_api_types::{EnrollNode, FixNode, Node, RegisterNode, RegisteredNode};
use gpuaas_client::{Client, ClientError};

use super::{
    if_match::{self, IfMatch},
    node_shown,
};
use crate::{
    cli::{Format, Target},
    duration::format_age,
    output,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Register a machine and print the command that enrolls it
    Register {
        /// Name of the node: 1 to 63 of a-z, 0-9 and -
        name: String,
        /// Region that the machine stands in, for example eu-1; default: none
        #[arg(long)]
        region: Option<String>,
        /// Label of the node as KEY=VALUE; repeatable
        #[arg(long = "label", value_name = "KEY=VALUE")]
        labels: Vec<String>,
    },
    /// List nodes
    List {
        /// Only nodes in this state: registered, enrolled, active, in_maintenance, needs_reimage or retired
        #[arg(long)]
        state: Option<String>,
        /// Only nodes with this connectivity: never, connected, stale or unreachable
        #[arg(long)]
        connectivity: Option<String>,
    },
    /// Show a node
    Show {
        /// Name or id of the node
        node: String,
        /// Print only the node's ETag, for --if-match
        #[arg(long)]
        etag: bool,
    },
    /// Print a new enrollment command for a node; earlier ones stop working
    Enroll {
        /// Name or id of the node
        node: String,
        #[command(flatten)]
        force: Force,
        #[command(flatten)]
        seen: IfMatch,
    },
    /// Send signed no-op tasks to a node and print the round trip time of each
    Ping {
        /// Name or id of the node
        node: String,
        /// Number of tasks to send, one after another
        #[arg(long, default_value_t = 1)]
        count: u32,
    },
    /// Inspect a node's machine now and print its facts and findings
    Inspect {
        /// Name or id of the node
        node: String,
    },
    /// Apply one of the safe fixes on a node and inspect it again
    Fix {
        /// Name or id of the node
        node: String,
        /// Fix to apply: inotify, forwarding or modules; or the code of a finding that a fix removes
        finding: String,
    },
    /// Revoke a node's identity and print the command that enrolls its reimaged machine
    Reset {
        /// Name or id of the node
        node: String,
        #[command(flatten)]
        force: Force,
        #[command(flatten)]
        seen: IfMatch,
    },
    /// Pass a node that a tenant left to the reimage hook, which reimages and enrolls its machine
    Reimage {
        /// Name or id of the node
        node: String,
        #[command(flatten)]
        seen: IfMatch,
    },
}

/// Flags that override the protections of a node in use or left by a tenant.
#[derive(Debug, clap::Args)]
pub(crate) struct Force {
    /// Accept the machine as it is, even if its node is in use or a tenant left it without a reimage; needs --reason
    #[arg(long, requires = "reason")]
    force: bool,
    /// Reason for --force, in one line; kept in the audit record
    #[arg(long, requires = "force", value_name = "TEXT")]
    reason: Option<String>,
}

impl From<Force> for EnrollNode {
    fn from(flags: Force) -> Self {
        Self { force: flags.force, reason: flags.reason }
    }
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Register { name, region, labels } => {
            let registered =
                client.register_node(&RegisterNode { name, region, labels: parse_labels(&labels)? }).await?;
            print_enrollment(target.output, &registered)
        }
        Verb::Enroll { node, force, seen } => {
            print_enrollment(target.output, &seen.client(client).issue_enrollment(&node, &force.into()).await?)
        }
        Verb::Reset { node, force, seen } => {
            print_enrollment(target.output, &seen.client(client).reset_node(&node, &force.into()).await?)
        }
        Verb::Reimage { node, seen } => {
            let node = seen.client(client).reimage_node(&node).await?;
            output::one(target.output, &node, node_shown::described, &node.name)
        }
        Verb::Inspect { node } => {
            let node = client.inspect_node(&node).await?;
            output::one(target.output, &node, node_shown::described, &node.name)
        }
        Verb::Fix { node, finding } => {
            let fixed = client.fix_node(&node, &FixNode { finding }).await?;
            output::one(target.output, &fixed, node_shown::fixed, &fixed.node.name)
        }
        Verb::List { state, connectivity } => {
            let nodes = client.list_nodes(state, connectivity).await?.items;
            let header = ["NAME", "STATE", "CONNECTIVITY", "SINCE", "AGENT", "ADDRESS", "REGION"];
            output::list(target.output, &nodes, &header, row, |node| node.name.clone())
        }
        Verb::Show { node, etag: true } => if_match::print_etag(target, &client.node_etag(&node).await?),
        Verb::Show { node, etag: false } => {
            let node = client.get_node(&node).await?;
            output::one(target.output, &node, node_shown::described, &node.name)
        }
        Verb::Ping { node, count } => ping(client, target, &node, count).await,
    }
}

fn parse_labels(labels: &[String]) -> Result<BTreeMap<String, String>, ClientError> {
    let pair = |label: &String| match label.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(ClientError::InvalidSetting(format!("--label takes KEY=VALUE, not {label}"))),
    };
    labels.iter().map(pair).collect()
}

fn print_enrollment(format: Format, registered: &RegisteredNode) -> anyhow::Result<()> {
    if format == Format::Table {
        let (node, command) = (&registered.node, &registered.enrollment.command);
        eprintln!("Node {} is {}. Run this once as root on the machine, within 15 minutes:\n", node.name, node.state);
        println!("{command}");
        if output::is_interactive() {
            output::copy(command);
            eprintln!("\n(copied to the clipboard if the terminal allows it)");
        }
        return Ok(());
    }
    output::one(format, registered, |_| String::new(), &registered.node.name)
}

fn row(node: &Node) -> Vec<String> {
    let address = node.facts.as_ref().and_then(|facts| facts.addresses.first()).cloned();
    vec![
        node.name.clone(),
        node.state.clone(),
        node.connectivity.clone(),
        format_age(&node.connectivity_since),
        node.agent_version.clone().unwrap_or_default(),
        address.unwrap_or_default(),
        node.region.clone().unwrap_or_default(),
    ]
}

async fn ping(client: &Client, target: &Target, node: &str, count: u32) -> anyhow::Result<()> {
    let mut pings = Vec::new();
    for _ in 0..count {
        pings.push(client.ping_node(node).await?);
    }
    let header = ["TASK", "STATE", "ROUND TRIP", "KEY"];
    let row = |ping: &gpuaas_api_types::Ping| {
        let milliseconds = ping.round_trip_us as f64 / 1_000.0;
        vec![ping.task.id.clone(), ping.task.state.clone(), format!("{milliseconds:.2} ms"), ping.task.key_id.clone()]
    };
    output::list(target.output, &pings, &header, row, |ping| ping.task.id.clone())
}

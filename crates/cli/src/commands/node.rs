//! `gpuaas node`.

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
    duration::ago,
    output,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Register a machine and print the line that brings it in
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
        /// Print its ETag alone, for --if-match
        #[arg(long)]
        etag: bool,
    },
    /// Print a new line that brings the machine in; earlier ones stop working
    Enroll {
        /// Name or id
        node: String,
        #[command(flatten)]
        force: Force,
        #[command(flatten)]
        seen: IfMatch,
    },
    /// Send signed no-ops and print what each took
    Ping {
        /// Name or id
        node: String,
        /// How many
        #[arg(long, default_value_t = 1)]
        count: u32,
    },
    /// Have a node look at its machine and at whether it is fit
    Inspect {
        /// Name or id
        node: String,
    },
    /// Carry out a safe fix on a node
    Fix {
        /// Name or id
        node: String,
        /// What: inotify, forwarding or modules, or the finding that it takes away
        finding: String,
    },
    /// End a node's identity, and print the line that brings its reimaged machine in again
    Reset {
        /// Name or id
        node: String,
        #[command(flatten)]
        force: Force,
        #[command(flatten)]
        seen: IfMatch,
    },
    /// Hand a node that a tenant has left to the reimage hook, which brings its machine in again
    Reimage {
        /// Name or id
        node: String,
        #[command(flatten)]
        seen: IfMatch,
    },
}

/// Takes a machine as it is.
#[derive(Debug, clap::Args)]
pub(crate) struct Force {
    /// Take the machine as it is: also one that runs, and one that was not reimaged after a tenant
    #[arg(long, requires = "reason")]
    force: bool,
    /// Say why it is forced; kept in the audit
    #[arg(long, requires = "force", value_name = "TEXT")]
    reason: Option<String>,
}

impl From<Force> for EnrollNode {
    fn from(asked: Force) -> Self {
        Self { force: asked.force, reason: asked.reason }
    }
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Register { name, region, labels } => {
            let registered = client.register_node(&RegisterNode { name, region, labels: pairs(&labels)? }).await?;
            enrolling(target.output, &registered)
        }
        Verb::Enroll { node, force, seen } => {
            enrolling(target.output, &seen.client(client).issue_enrollment(&node, &force.into()).await?)
        }
        Verb::Reset { node, force, seen } => {
            enrolling(target.output, &seen.client(client).reset_node(&node, &force.into()).await?)
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
        Verb::Show { node, etag: true } => if_match::printed(target, &client.node_etag(&node).await?),
        Verb::Show { node, etag: false } => {
            let node = client.get_node(&node).await?;
            output::one(target.output, &node, node_shown::described, &node.name)
        }
        Verb::Ping { node, count } => ping(client, target, &node, count).await,
    }
}

fn pairs(labels: &[String]) -> Result<BTreeMap<String, String>, ClientError> {
    let pair = |label: &String| match label.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(ClientError::Setting(format!("--label takes KEY=VALUE, not {label}"))),
    };
    labels.iter().map(pair).collect()
}

fn enrolling(format: Format, registered: &RegisteredNode) -> anyhow::Result<()> {
    if format == Format::Table {
        let (node, command) = (&registered.node, &registered.enrollment.command);
        eprintln!("Node {} is {}. On the machine, as root, once within 15 minutes:\n", node.name, node.state);
        println!("{command}");
        if output::is_watched() {
            output::copy(command);
            eprintln!("\n(copied to the clipboard, where the terminal allows it)");
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
        ago(&node.connectivity_since),
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

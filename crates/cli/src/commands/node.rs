//! Implements `gpuaas node`.

use std::collections::BTreeMap;

use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use gpuaas_api_types::{Allocation, EnrollNode, FixNode, Node, Ping, RegisterNode, RegisteredNode};
use gpuaas_client::{Client, ClientError};
use gpuaas_model::{Connectivity, FixKind, NodeState};

use super::{
    confirm::{Confirm, Loss},
    if_match::{self, IfMatch},
    lists::{EventStream, Listing, Watch},
    node_shown, waiting_shown,
};
use crate::{
    completion, output,
    table::{Column, column, wide},
    target::{Format, Target},
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
        #[command(flatten)]
        watch: Watch,
        /// Only nodes in this state: registered, enrolled, active, needs_reimage or retired
        #[arg(long, add = ArgValueCandidates::new(completion::values(NodeState::ALL)))]
        state: Option<String>,
        /// Only nodes with this connectivity: never, connected, stale or unreachable
        #[arg(long, add = ArgValueCandidates::new(completion::values(Connectivity::ALL)))]
        connectivity: Option<String>,
    },
    /// Show a node
    Show {
        /// Name or id of the node
        #[arg(add = ArgValueCandidates::new(completion::nodes))]
        node: String,
        /// Print only the node's ETag, for --if-match
        #[arg(long)]
        etag: bool,
    },
    /// Print a new enrollment command for a node; earlier ones stop working
    Enroll {
        /// Name or id of the node
        #[arg(add = ArgValueCandidates::new(completion::nodes))]
        node: String,
        #[command(flatten)]
        force: ForceEnroll,
        #[command(flatten)]
        seen: IfMatch,
    },
    /// Send signed no-op tasks to a node and print the round trip time of each
    Ping {
        /// Name or id of the node
        #[arg(add = ArgValueCandidates::new(completion::nodes))]
        node: String,
        /// Number of tasks to send, one after another
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        count: u32,
    },
    /// Inspect a node's machine now and print its facts and findings
    Inspect {
        /// Name or id of the node
        #[arg(add = ArgValueCandidates::new(completion::nodes))]
        node: String,
    },
    /// Apply one of the safe fixes on a node and inspect it again
    Fix {
        /// Name or id of the node
        #[arg(add = ArgValueCandidates::new(completion::nodes))]
        node: String,
        /// Fix to apply: inotify, forwarding or modules; or the code of a finding that a fix removes
        #[arg(value_name = "FIX", add = ArgValueCandidates::new(completion::values(FixKind::ALL)))]
        finding: String,
    },
    /// Revoke a node's identity and print the command that enrolls its reimaged machine
    Reset {
        /// Name or id of the node
        #[arg(add = ArgValueCandidates::new(completion::nodes))]
        node: String,
        #[command(flatten)]
        force: ForceReset,
        #[command(flatten)]
        confirm: Confirm,
        #[command(flatten)]
        seen: IfMatch,
    },
    /// Start the reimage hook for a node that a tenant has left; it reimages and enrolls the machine
    Reimage {
        /// Name or id of the node
        #[arg(add = ArgValueCandidates::new(completion::nodes))]
        node: String,
        #[command(flatten)]
        confirm: Confirm,
        #[command(flatten)]
        seen: IfMatch,
    },
    /// Retire a node that no project holds; its identity ends
    Retire {
        /// Name or id of the node
        #[arg(add = ArgValueCandidates::new(completion::nodes))]
        node: String,
        #[command(flatten)]
        confirm: Confirm,
        #[command(flatten)]
        seen: IfMatch,
    },
    /// Delete a retired node; its name can be used again
    Delete {
        /// Name or id of the node
        #[arg(add = ArgValueCandidates::new(completion::nodes))]
        node: String,
        #[command(flatten)]
        confirm: Confirm,
        #[command(flatten)]
        seen: IfMatch,
    },
}

/// Flags that enroll a node in use again.
#[derive(Debug, clap::Args)]
pub(crate) struct ForceEnroll {
    /// Give a node in use a new identity, also on another machine; its workload keeps running. Needs --reason
    #[arg(long, requires = "reason")]
    force: bool,
    /// Reason for --force, in one line; kept in the audit record
    #[arg(long, requires = "force", value_name = "TEXT")]
    reason: Option<String>,
}

/// Flags that override the protections of a node in use or left by a tenant.
#[derive(Debug, clap::Args)]
pub(crate) struct ForceReset {
    /// Accept the machine as it is; what runs on it is cut off. Refused while a project holds the node, unless a decommission failed on
    /// it. Needs --reason
    #[arg(long, requires = "reason")]
    force: bool,
    /// Reason for --force, in one line; kept in the audit record
    #[arg(long, requires = "force", value_name = "TEXT")]
    reason: Option<String>,
}

impl From<ForceEnroll> for EnrollNode {
    fn from(flags: ForceEnroll) -> Self {
        Self { force: flags.force, reason: flags.reason }
    }
}

impl From<ForceReset> for EnrollNode {
    fn from(flags: ForceReset) -> Self {
        Self { force: flags.force, reason: flags.reason }
    }
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Register { name, region, labels } => {
            let registered =
                client.register_node(&RegisterNode { name, region, labels: parse_labels(&labels)? }).await?;
            print_enrollment(target.output, &registered, "registered")
        }
        Verb::Enroll { node, force, seen } => {
            let issued = seen.client(client).issue_enrollment(&node, &force.into()).await?;
            print_enrollment(target.output, &issued, "ready to enroll")
        }
        Verb::Reset { node, force, confirm, seen } => {
            let (client, force) = (seen.client(client), EnrollNode::from(force));
            let dry = client.clone().with_dry_run();
            let loss = |of: &RegisteredNode| {
                let lost = "The control plane deletes its facts and findings and refuses its earlier identity; the machine must \
                            enroll again.";
                Loss::new(format!("reset node {}", of.node.name), lost)
            };
            if !confirm.allows(target, dry.reset_node(&node, &force), loss, &node).await? {
                return Ok(());
            }
            print_enrollment(target.output, &client.reset_node(&node, &force).await?, "reset")
        }
        Verb::Reimage { node, confirm, seen } => {
            let client = seen.client(client);
            let dry = client.clone().with_dry_run();
            let loss = |of: &Node| {
                let lost = "The reimage hook reinstalls its operating system: everything on its disks is lost.";
                Loss::new(format!("reimage the machine of node {}", of.name), lost)
            };
            if !confirm.allows(target, dry.reimage_node(&node), loss, &node).await? {
                return Ok(());
            }
            let node = client.reimage_node(&node).await?;
            output::one(target.output, &node, node_shown::described, &node.name)
        }
        Verb::Retire { node, confirm, seen } => {
            let client = seen.client(client);
            let dry = client.clone().with_dry_run();
            let loss = |of: &Node| {
                Loss::new(format!("retire node {}", of.name), "Its identity ends, and it cannot be used again.")
            };
            if !confirm.allows(target, dry.retire_node(&node), loss, &node).await? {
                return Ok(());
            }
            let node = client.retire_node(&node).await?;
            output::one(target.output, &node, |node| format!("Node {} is retired.", node.name), &node.name)?;
            output::hint(target.output, &format!("delete it: gpuaas node delete {}", node.name));
            Ok(())
        }
        Verb::Delete { node, confirm, seen } => {
            let client = seen.client(client);
            let dry = client.clone().with_dry_run();
            let loss = |of: &Node| {
                Loss::new(
                    format!("delete node {}", of.name),
                    "Afterwards it is not listed, and its name can be used again; its history and audit records stay.",
                )
            };
            if !confirm.allows(target, dry.delete_node(&node), loss, &node).await? {
                return Ok(());
            }
            let node = client.delete_node(&node).await?;
            output::one(target.output, &node, |node| format!("Node {} is deleted.", node.name), &node.name)
        }
        Verb::Inspect { node } => {
            let node = client.inspect_node(&node).await?;
            output::one(target.output, &node, node_shown::described, &node.name)
        }
        Verb::Fix { node, finding } => {
            let fixed = client.fix_node(&node, &FixNode { finding }).await?;
            output::one(target.output, &fixed, node_shown::fixed, &fixed.node.name)
        }
        Verb::List { watch, state, connectivity } => {
            let read = async || Ok(client.list_nodes(state.clone(), connectivity.clone()).await?.items);
            NODES.print(client, target, watch, state.is_some(), read).await
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
    let mut pairs = BTreeMap::new();
    for label in labels {
        let wrong = |what: String| Err(ClientError::InvalidSetting(what));
        let Some((key, value)) = label.split_once('=') else {
            return wrong(format!("--label takes KEY=VALUE, not {label}"));
        };
        if pairs.insert(key.to_owned(), value.to_owned()).is_some() {
            return wrong(format!("--label {key}=… is given twice: give each key one value"));
        }
    }
    Ok(pairs)
}

/// Prints the command that enrolls the node's machine; `state` says what happened to the node.
fn print_enrollment(format: Format, registered: &RegisteredNode, state: &str) -> anyhow::Result<()> {
    if format.is_for_people() {
        let (node, command) = (&registered.node, &registered.enrollment.command);
        output::message(format_args!(
            "Node {} is {state}. On its machine, as root, within 15 minutes, run once:\n",
            node.name
        ));
        output::line(command)?;
        if output::is_interactive() {
            output::copy(command);
            output::message("\n(copied to the clipboard if the terminal allows it)");
        }
        return Ok(());
    }
    output::one(format, registered, |_| String::new(), &registered.node.name)?;
    if format == Format::Name {
        output::message(format_args!("To print the enrollment command: gpuaas node enroll {}", registered.node.name));
    }
    Ok(())
}

const NODES: Listing<Node> = Listing {
    columns: &[
        column("NAME", |node| node.name.clone()),
        column("STATE", |node| node.state.clone()),
        column("CONNECTIVITY", |node| node.connectivity.clone()),
        column("SINCE", |node| node.connectivity_since.clone()),
        column("AGENT", |node| node.agent_version.clone().unwrap_or_default()),
        column("ADDRESS", |node| {
            node.facts.as_ref().and_then(|facts| facts.addresses.first()).cloned().unwrap_or_default()
        }),
        column("REGION", |node| node.region.clone().unwrap_or_default()),
        column("PROJECT", |node| of_allocation(node, |allocation| Some(&allocation.project_name))),
        column("WORKLOAD", |node| of_allocation(node, |allocation| allocation.workload.as_ref())),
        // The workload tells where a node is used; its member is one of many columns for which a terminal has no room.
        wide("MEMBER", |node| of_allocation(node, |allocation| allocation.member.as_ref())),
        column("WAITING FOR", |node| waiting_shown::cell(node.waiting.as_ref())),
        wide("LABELS", |node| {
            let labels = node.labels.iter().map(|(key, value)| format!("{key}={value}"));
            labels.collect::<Vec<_>>().join(" ")
        }),
        wide("OS", |node| node.facts.as_ref().map(|facts| facts.os.clone()).unwrap_or_default()),
        wide("CREATED", |node| node.created_at.clone()),
        wide("ID", |node| node.id.clone()),
    ],
    name: |node| &node.name,
    is_live: |node| node.state != "retired",
    events: &["node."],
    stream: EventStream::Platform,
    volatile: &[],
};

/// Returns a field of the allocation by which a project holds the node.
fn of_allocation(node: &Node, field: fn(&Allocation) -> Option<&String>) -> String {
    node.allocation.as_ref().and_then(field).cloned().unwrap_or_default()
}

const PINGS: &[Column<Ping>] = &[
    column("TASK", |ping| ping.task.id.clone()),
    column("STATE", |ping| ping.task.state.clone()),
    column("ROUND TRIP", |ping| format!("{:.2} ms", ping.round_trip_us as f64 / 1_000.0)),
    column("KEY", |ping| ping.task.key_id.clone()),
];

async fn ping(client: &Client, target: &Target, node: &str, count: u32) -> anyhow::Result<()> {
    let mut pings = Vec::new();
    for _ in 0..count {
        pings.push(client.ping_node(node).await?);
    }
    output::list(target.output, &pings, PINGS, |ping| ping.task.id.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_without_a_value_or_with_two_is_refused() {
        let parsed = |labels: &[&str]| parse_labels(&labels.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(parsed(&["rack=b12", "gpu=h100"]).expect("labels").len(), 2);
        for wrong in [&["rack"][..], &["rack=b12", "rack=b13"]] {
            let refused = parsed(wrong).expect_err("refused").to_string();
            assert!(refused.contains("--label"), "{refused}");
        }
    }
}

//! `gpuaas workload`.

use std::process::ExitCode;

use anyhow::Context;
use gpuaas_api_types::{AddMembers, AskAccess, Deploy, Fault, Started, Workload, WorkloadDetail};
use gpuaas_client::Client;
use serde_json::{Value, json};

use super::operation;
use crate::{
    cli::{Format, Target, Workload as Verb},
    output,
};

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<ExitCode> {
    let project = target.project.clone();
    match verb {
        Verb::Deploy { app, name, server_node, agent_nodes, version, config, wait } => {
            let mut placement = json!({ "agent_allocation_ids": allocations(client, target, &agent_nodes).await? });
            if let Some(server) = server_node {
                placement["server_allocation_id"] = allocation(client, target, &server).await?.into();
            }
            let config = config.map(|text| serde_json::from_str(&text)).transpose().context("--config is no JSON")?;
            let ask = Deploy { project, app, version, name, placement, config: config.unwrap_or(Value::Null) };
            return started(client, target, client.deploy_workload(&ask).await?, wait).await;
        }
        Verb::AddMember { workload, agent_nodes, wait } => {
            let placement = json!({ "agent_allocation_ids": allocations(client, target, &agent_nodes).await? });
            let begun = client.add_members(project, &workload, &AddMembers { placement }).await?;
            return started(client, target, begun, wait).await;
        }
        Verb::Decommission { workload, wait } => {
            return started(client, target, client.decommission_workload(project, &workload).await?, wait).await;
        }
        Verb::Resume { workload, wait } => {
            return started(client, target, client.resume_workload(project, &workload).await?, wait).await;
        }
        Verb::List => list(target, client.list_workloads(project).await?.items)?,
        Verb::Show { workload } => {
            let detail = client.get_workload(project, &workload).await?;
            output::one(target.output, &detail, described, &detail.workload.name)?;
        }
        Verb::Kubeconfig { workload, kind, role, reason } => {
            let ask = AskAccess { kind, role, ttl_seconds: None, reason };
            let granted = client.deliver_kubeconfig(project, &workload, &ask).await?;
            if target.output == Format::Table {
                eprintln!("{} · {} · until {}", granted.kind, granted.role, granted.expires_at);
                print!("{}", granted.kubeconfig);
            } else {
                output::one(target.output, &granted, |_| String::new(), &granted.grant)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn started(client: &Client, target: &Target, started: Started, wait: bool) -> anyhow::Result<ExitCode> {
    let (workload, operation) = (&started.workload, &started.operation);
    let badge = if workload.stand_in { " (stand-in)" } else { "" };
    eprintln!(
        "{} {} {}{badge}: {} (op {})",
        workload.name, workload.app, workload.version, operation.kind, operation.id
    );
    if wait {
        return operation::watch(client, target, &operation.id).await;
    }
    output::one(
        target.output,
        &started,
        |_| format!("watch it: gpuaas operation watch {}", operation.id),
        &operation.id,
    )?;
    Ok(ExitCode::SUCCESS)
}

async fn allocations(client: &Client, target: &Target, nodes: &[String]) -> anyhow::Result<Vec<String>> {
    let mut ids = Vec::new();
    for node in nodes {
        ids.push(allocation(client, target, node).await?);
    }
    Ok(ids)
}

/// The allocation of a node that is named, or the id itself.
async fn allocation(client: &Client, target: &Target, key: &str) -> anyhow::Result<String> {
    let known = client.list_allocations(target.project.clone(), None).await?.items;
    let open = |state: &str| !matches!(state, "released" | "failed");
    let found = known
        .iter()
        .find(|allocation| allocation.id == key || (allocation.node_name == key && open(&allocation.state)));
    // What is not known is left to the control plane, which says everything that is wrong at once.
    Ok(found.map_or_else(|| key.to_owned(), |allocation| allocation.id.clone()))
}

fn list(target: &Target, workloads: Vec<Workload>) -> Result<(), anyhow::Error> {
    let header = ["NAME", "APP", "VERSION", "PHASE", "PROGRESS", "HEALTH", "ENDPOINT", ""];
    let row = |workload: &Workload| {
        vec![
            workload.name.clone(),
            workload.app.clone(),
            workload.version.clone(),
            workload.phase.clone(),
            format!("{}/{}", workload.completed, workload.total),
            workload.health.clone(),
            workload.endpoint.clone().unwrap_or_default(),
            if workload.stand_in { "stand-in".to_owned() } else { String::new() },
        ]
    };
    if target.output != Format::Table {
        return output::list(target.output, &workloads, &header, row, |workload| workload.name.clone());
    }
    for (title, wanted) in [("NEEDS ATTENTION", 0), ("ACTIVE", 1), ("STOPPED", 2), ("HISTORY", 3)] {
        let of_section: Vec<Workload> =
            workloads.iter().filter(|workload| section(workload) == wanted).cloned().collect();
        if !of_section.is_empty() {
            println!("{title}");
            output::list(Format::Table, &of_section, &header, row, |workload| workload.name.clone())?;
        }
    }
    Ok(())
}

/// Which of the shell's four sections a workload stands in.
fn section(workload: &Workload) -> u8 {
    match (workload.lifecycle.as_str(), workload.health.as_str()) {
        ("decommissioned", _) => 3,
        ("stopped", _) => 2,
        ("running", "healthy") => 1,
        _ => 0,
    }
}

fn described(detail: &WorkloadDetail) -> String {
    let workload = &detail.workload;
    let present: Vec<_> = detail.members.iter().filter(|member| member.state != "removed").collect();
    let ready = present.iter().filter(|member| member.state == "ready" && member.health == "healthy").count();
    let mut words = format!(
        "{}   {} · {} · {} · {ready} of {} members ready",
        workload.name,
        workload.lifecycle,
        workload.health,
        workload.phase,
        present.len()
    );
    if workload.stand_in {
        words.push_str(" · stand-in");
    }
    let faults = workload.fault.iter().chain(present.iter().filter_map(|member| member.fault.as_ref()));
    for fault in faults {
        words.push_str(&why(fault));
    }
    for member in &detail.members {
        words.push_str(&format!(
            "\n  {:<12} {:<12} {:<14} {}",
            member.name, member.node_name, member.state, member.health
        ));
    }
    words
}

fn why(fault: &Fault) -> String {
    let mut words = format!("\nWHY      {} ({})", fault.summary, fault.code);
    if let (Some(source), Some(evidence)) = (&fault.evidence_source, &fault.evidence) {
        words.push_str(&format!("\nEVIDENCE {source}: {evidence}"));
    }
    let command = fault.command.as_ref().map(|command| format!(": {command}")).unwrap_or_default();
    words.push_str(&format!("\nNEXT     {}{command}", fault.next));
    words
}

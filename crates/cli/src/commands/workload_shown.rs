//! Formats workloads for people.

use std::{borrow::Cow, sync::LazyLock};

use gpuaas_api_types::{
    AccessAnswer, Fault, Member, NodeResidue, Operation, OperationDetail, Preview, Step, Workload, WorkloadDetail,
};
use regex::{Captures, Regex};
use serde_json::Value;

use super::{
    confirm::Loss,
    lists::{EventStream, Listing},
};
use crate::{
    duration::format_age,
    table::{column, distinguishing, table, wide},
    text::Text,
};

/// The members of a workload.
pub(super) const MEMBERS: Listing<Member> = Listing {
    columns: &[
        column("NAME", |member| member.name.clone()),
        column("NODE", |member| member.node_name.clone()),
        column("STATE", |member| member.state.clone()),
        column("HEALTH", |member| member.health.clone()),
        column("WHY", |member| {
            let why = member.fault.as_ref().map(|fault| format!("{} ({})", fault.summary, fault.code));
            why.unwrap_or_default()
        }),
        wide("NODE ID", |member| member.node.clone().unwrap_or_default()),
    ],
    name: |member| &member.name,
    is_live: |member| member.state != "removed",
    events: &["member."],
    stream: EventStream::Project,
    volatile: None,
};

/// Workloads as one list, for `-o wide` and `--watch`.
pub(super) const WORKLOADS: Listing<Workload> = Listing {
    columns: &[
        column("NAME", |workload| workload.name.clone()),
        distinguishing("PROJECT", |workload| workload.project_name.clone()),
        column("APP", |workload| workload.app.clone()),
        column("LIFECYCLE", |workload| workload.lifecycle.clone()),
        column("HEALTH", |workload| workload.health.clone()),
        column("MEMBERS", members),
        column("PHASE", |workload| workload.phase.clone()),
        column("PROGRESS", progress),
        column("REASON", reason),
        column("VERSION", version),
        column("ENDPOINT", |workload| workload.endpoint.clone().unwrap_or_default()),
        wide("GENERATION", |workload| workload.generation.to_string()),
        wide("CREATED", |workload| workload.created_at.clone()),
        wide("ID", |workload| workload.id.clone()),
    ],
    name: |workload| &workload.name,
    is_live: |workload| workload.section != "history",
    events: &["workload.", "member.", "operation.", "step."],
    stream: EventStream::Project,
    // It contains how long the step has been waiting.
    volatile: Some("waiting_for"),
};

/// Formats workloads by section, those that need attention first; empty without workloads.
pub(super) fn sections(workloads: &[Workload]) -> Text {
    let of = |section: &'static str| workloads.iter().filter(move |workload| workload.section == section);
    let has_projects = workloads.iter().any(|workload| workload.project_name != workloads[0].project_name);
    let mut text = Text::default();
    for (section, title) in
        [("needs_attention", "NEEDS ATTENTION"), ("active", "ACTIVE"), ("stopped", "STOPPED"), ("history", "HISTORY")]
    {
        if of(section).next().is_none() {
            continue;
        }
        text.push_str(if text.is_empty() { "" } else { "\n" });
        text.push_str(&format!("{title}\n"));
        let columns = match section {
            "needs_attention" => ATTENTION,
            "active" => ACTIVE,
            _ => INACTIVE,
        };
        text.push(&section_table(columns, of(section), has_projects));
    }
    text
}

type SectionColumns = &'static [(&'static str, fn(&Workload) -> String)];

const INACTIVE: SectionColumns = &[
    ("APP", |workload| workload.app.clone()),
    ("VERSION", version),
    ("LIFECYCLE", |workload| workload.lifecycle.clone()),
];

const ATTENTION: SectionColumns = &[
    ("APP", |workload| with_badge(&workload.app, workload)),
    ("PHASE", |workload| workload.phase.clone()),
    ("PROGRESS", progress),
    ("HEALTH", |workload| workload.health.clone()),
    ("REASON", reason),
];

const ACTIVE: SectionColumns = &[
    ("APP", |workload| workload.app.clone()),
    ("VERSION", version),
    ("MEMBERS", members),
    ("HEALTH", |workload| workload.health.clone()),
    ("ENDPOINT", |workload| workload.endpoint.clone().unwrap_or_default()),
];

/// Formats one section. The column of the project is shown if the list has several.
fn section_table<'a>(
    columns: SectionColumns,
    workloads: impl Iterator<Item = &'a Workload>,
    has_projects: bool,
) -> Text {
    let project: SectionColumns = if has_projects { &[("PROJECT", |of| of.project_name.clone())] } else { &[] };
    let name: SectionColumns = &[("NAME", |of| of.name.clone())];
    let all = [name, project, columns].concat();
    let header: Vec<&str> = all.iter().map(|(header, _)| *header).collect();
    table(&header, workloads.map(|workload| all.iter().map(|(_, cell)| cell(workload)).collect()))
}

fn reason(workload: &Workload) -> String {
    let why = workload.fault.as_ref().map(|fault| fault.summary.clone());
    workload.waiting_for.clone().or(why).unwrap_or_default()
}

fn members(workload: &Workload) -> String {
    format!("{}/{}", workload.members_ready, workload.members_total)
}

fn progress(workload: &Workload) -> String {
    format!("{}/{}", workload.completed, workload.total)
}

fn version(workload: &Workload) -> String {
    with_badge(&workload.version, workload)
}

fn with_badge(text: &str, workload: &Workload) -> String {
    if workload.stand_in { format!("{text} (stand-in)") } else { text.to_owned() }
}

/// Formats a workload: a status line, each fault with its evidence and next step, and the members.
pub(super) fn described(detail: &WorkloadDetail, operation: Option<&OperationDetail>, project_flag: &str) -> Text {
    let workload = &detail.workload;
    let mut parts = vec![workload.health.clone()];
    parts.push(if workload.usable { "usable".to_owned() } else { workload.lifecycle.clone() });
    parts.retain(|part| part != "none");
    parts.dedup();
    parts.push(format!("{} of {} members ready", workload.members_ready, workload.members_total));
    parts.push(format!("{} {}", workload.app, version(workload)));
    parts.extend(workload.endpoint.clone());
    let mut words = format!("{}   {}", workload.name, parts.join(" · "));
    if let Some(waiting) = &workload.waiting_for {
        let (completed, total) = (workload.completed, workload.total);
        words.push_str(&format!("\nNOW      {completed}/{total} {} · waiting for {waiting}", workload.phase));
    }
    if let Some(operation) = operation.map(|detail| &detail.operation).filter(|of| !of.parameters.is_empty()) {
        words.push_str(&format!("\nOPERATION {} · {}", titled(operation), operation.state));
    }
    let of_members = detail.members.iter().filter_map(|member| member.fault.as_ref());
    let mut explained = Vec::new();
    for fault in workload.fault.iter().chain(of_members) {
        // A step that fails the workload fails its member with the same fault.
        if explained.contains(&(&fault.code, &fault.summary)) {
            continue;
        }
        explained.push((&fault.code, &fault.summary));
        let steps = operation.map(|operation| operation.steps.as_slice()).unwrap_or_default();
        let step = steps.iter().find(|step| step.fault.as_ref().is_some_and(|of| of.code == fault.code));
        words.push_str(&describe_fault(fault, step, project_flag));
    }
    words.push_str(&residue(operation.map(|operation| operation.residue.as_slice()).unwrap_or_default()));
    words.push('\n');
    let member = |of: &Member| vec![of.name.clone(), of.node_name.clone(), of.state.clone(), of.health.clone()];
    let mut text = Text::from(words);
    text.push(&table(&["NAME", "NODE", "STATE", "HEALTH"], detail.members.iter().map(member)));
    text
}

/// Formats a fault: its summary, the time it began, its evidence, and the next action. Commands about workloads get `project_flag`.
pub(super) fn describe_fault(fault: &Fault, step: Option<&Step>, project_flag: &str) -> String {
    let mut words = format!("\nWHY      {} ({})", fault.summary, fault.code);
    if let Some(ended) =
        step.and_then(|step| step.ended_at_ms).and_then(|at| jiff::Timestamp::from_millisecond(at).ok())
    {
        let attempts = step.map_or(0, |step| step.attempts);
        let tries = if attempts == 1 { "attempt" } else { "attempts" };
        words.push_str(&format!(
            "\nSINCE    {ended:.0} ({} ago), after {attempts} {tries}",
            format_age(&ended.to_string())
        ));
    }
    if let (Some(source), Some(evidence)) = (&fault.evidence_source, &fault.evidence) {
        let at = fault.evidence_at.as_ref().map(|at| format!(" {at}")).unwrap_or_default();
        words.push_str(&format!("\nEVIDENCE {source}{at}: {evidence}"));
    }
    let command = fault.command.as_ref().map(|command| format!(": {command}")).unwrap_or_default();
    words.push_str(&format!("\nNEXT     {}", with_project(&format!("{}{command}", fault.next), project_flag)));
    words
}

/// Appends `project_flag` to every command about a workload in a text. A command ends at a punctuation mark or at the end of the text.
fn with_project<'a>(text: &'a str, project_flag: &str) -> Cow<'a, str> {
    static COMMAND: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"gpuaas\sworkload\s[^;,:)`\n]*[^;,:)`\s]").expect("a valid pattern"));
    COMMAND.replace_all(text, |found: &Captures<'_>| format!("{}{project_flag}", &found[0]))
}

/// Formats the members and steps that an operation would create.
pub(super) fn preview(preview: &Preview) -> Text {
    let members = if preview.members.is_empty() { " no member".to_owned() } else { planned_members(preview) };
    let mut text = Text::from(format!("{} would create{members}\n", preview.kind));
    text.push(&planned_steps(preview));
    let (promised, not_promised) = (preview.promises.join("; "), preview.not_promised.join("; "));
    text.push_str(&format!("\npromised      {promised}\nnot promised  {not_promised}"));
    text
}

fn planned_members(preview: &Preview) -> String {
    preview.members.iter().map(|member| format!("\n  {} on {}", member.name, member.node_name)).collect()
}

fn planned_steps(preview: &Preview) -> Text {
    let steps = preview.steps.iter().map(|step| {
        vec![
            format!("  {}", step.phase),
            step.key.clone(),
            format!("{} s", step.deadline_ms / 1_000),
            [step.needs.as_slice(), &step.after].concat().join(", "),
        ]
    });
    table(&["  PHASE", "STEP", "DEADLINE", "AFTER"], steps)
}

/// Returns what a decommission would destroy.
pub(super) fn removal(preview: &Preview, workload: &str) -> Loss {
    let nodes: Vec<&str> = preview.members.iter().map(|member| member.node_name.as_str()).collect();
    let lost = match nodes.as_slice() {
        [] => "It has no members.".to_owned(),
        nodes => format!("Its cluster and all data in it are deleted from {}.", nodes.join(", ")),
    };
    let mut details = Text::from(format!("It would remove{}\n", planned_members(preview)));
    details.push(&planned_steps(preview));
    Loss { details, ..Loss::new(format!("decommission workload {workload}"), lost) }
}

/// Formats the residue report of each node; empty without reports.
pub(super) fn residue(reports: &[NodeResidue]) -> String {
    let line = |report: &NodeResidue| {
        let unchecked = report.unchecked.iter().map(|what| format!("not checked: {what}"));
        let found: Vec<String> = report.items.iter().cloned().chain(unchecked).collect();
        let found = if found.is_empty() { "nothing left".to_owned() } else { found.join("; ") };
        format!("\n  {}: {found}", report.node_name)
    };
    if reports.is_empty() {
        String::new()
    } else {
        format!("\nRESIDUE{}", reports.iter().map(line).collect::<String>())
    }
}

/// Formats how a cluster can be reached and the delivered kubeconfigs.
pub(super) fn access(access: &AccessAnswer) -> Text {
    let mut words = match (&access.endpoint, access.reachability.as_str()) {
        (Some(endpoint), "node-network") => format!("{endpoint}   (address of the server's machine)"),
        (Some(endpoint), other) => format!("{endpoint}   from the {other}"),
        (None, _) => "no endpoint yet".to_owned(),
    };
    words.extend(access.notes.iter().map(|note| format!("\n  {note}")));
    let kinds = access.kinds.iter().map(|kind| {
        let default = if kind.default { "yes" } else { "" };
        let most = format!("{} h", kind.ttl_seconds_max / 3_600);
        vec![kind.name.clone(), default.to_owned(), most, kind.roles.join(", "), kind.note.clone()]
    });
    words.push('\n');
    let mut text = Text::from(words);
    text.push(&table(&["KIND", "DEFAULT", "MAX TTL", "ROLES", "NOTE"], kinds));
    if !access.grants.is_empty() {
        let grants = access.grants.iter().map(|grant| {
            let reason = grant.reason.clone().unwrap_or_default();
            vec![
                grant.id.clone(),
                grant.kind.clone(),
                grant.role.clone(),
                grant.requested_by.clone(),
                grant.expires_at.clone(),
                reason,
            ]
        });
        let header = ["GRANT", "KIND", "ROLE", "BY", "EXPIRES", "REASON"];
        text.push_str("\n");
        text.push(&table(&header, grants));
    }
    text
}

/// Returns the kind of an operation with its parameters, for example `upgrade version=v1.37.1+rke2r1`.
pub(super) fn titled(operation: &Operation) -> String {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let parameters = operation.parameters.iter().map(|(name, value)| format!(" {name}={}", shown(value)));
    format!("{}{}", operation.kind, parameters.collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workload(name: &str, section: &str, more: serde_json::Value) -> Workload {
        let mut value = json!({
            "id": "1", "name": name, "project": "p", "app": "rke2", "version": "v1.36.3+rke2r1", "lifecycle": "running",
            "phase": "ready", "completed": 9, "total": 9, "health": "healthy", "recovery": "none", "section": section,
            "members_ready": 3, "members_total": 3, "endpoint": "https://10.4.0.7:6443", "stand_in": false, "usable": true,
            "generation": 1, "observed_generation": 1, "created_at": "2026-01-01T00:00:00.000Z",
        });
        let (Some(all), Some(more)) = (value.as_object_mut(), more.as_object()) else { panic!("objects") };
        all.extend(more.clone());
        serde_json::from_value(value).expect("a workload")
    }

    #[test]
    fn workloads_needing_attention_come_first_with_what_they_wait_for() {
        let deploying = json!({
            "phase": "agent_joining", "completed": 5, "health": "progressing", "lifecycle": "deploying", "stand_in": true,
            "waiting_for": "agent-2 to become ready in the cluster: kubelet not ready (for 31 s; next attempt in 4 s)",
        });
        let all = [
            workload("infer", "active", json!({})),
            workload("train", "needs_attention", deploying),
            workload("old", "history", json!({ "lifecycle": "decommissioned" })),
        ];
        insta::assert_snapshot!(sections(&all).as_str(), @r"
        NEEDS ATTENTION
        NAME   APP              PHASE          PROGRESS  HEALTH       REASON
        train  rke2 (stand-in)  agent_joining  5/9       progressing  agent-2 to become ready in the cluster: kubelet not ready (for 31 s; next attempt in 4 s)
        ACTIVE
        NAME   APP   VERSION         MEMBERS  HEALTH   ENDPOINT
        infer  rke2  v1.36.3+rke2r1  3/3      healthy  https://10.4.0.7:6443
        HISTORY
        NAME  APP   VERSION         LIFECYCLE
        old   rke2  v1.36.3+rke2r1  decommissioned
        ");
        let named = |project: &str| workload("train", "active", json!({ "project_name": project, "endpoint": null }));
        insta::assert_snapshot!(sections(&[named("one"), named("two")]).as_str(), @r"
        ACTIVE
        NAME   PROJECT  APP   VERSION         MEMBERS  HEALTH   ENDPOINT
        train  one      rke2  v1.36.3+rke2r1  3/3      healthy
        train  two      rke2  v1.36.3+rke2r1  3/3      healthy
        ");
    }

    #[test]
    fn residue_is_listed_for_each_node_also_if_nothing_is_left() {
        let report = |node: &str, items: &[&str], unchecked: &[&str]| NodeResidue {
            member: "agent-1".to_owned(),
            node_name: node.to_owned(),
            items: items.iter().map(ToString::to_string).collect(),
            unchecked: unchecked.iter().map(ToString::to_string).collect(),
        };
        let unlisted = ["firewall rules: nft failed"];
        let reports = [report("gpu-1", &[], &[]), report("gpu-2", &["path /etc/cni", "link cni0"], &unlisted)];
        insta::assert_snapshot!(residue(&reports).trim_start(), @r"
        RESIDUE
          gpu-1: nothing left
          gpu-2: path /etc/cni; link cni0; not checked: firewall rules: nft failed
        ");
        assert_eq!(residue(&[]), "");
    }

    #[test]
    fn decommission_names_the_nodes_that_lose_data_and_the_order_of_its_steps() {
        let preview: Preview = serde_json::from_value(json!({
            "kind": "decommission", "promises": [], "not_promised": [],
            "members": [{ "name": "server-1", "allocation": "a", "node": "n", "node_name": "gpu-1" }],
            "steps": [
                { "key": "server-1/stop", "phase": "server_removing", "needs": [], "deadline_ms": 180_000 },
                { "key": "server-1/uninstall", "phase": "server_removing", "needs": [], "after": ["server-1/stop"], "deadline_ms": 180_000 },
            ],
        }))
        .expect("a preview");
        let loss = removal(&preview, "train");
        assert_eq!(loss.act, "decommission workload train");
        assert_eq!(loss.lost, "Its cluster and all data in it are deleted from gpu-1.");
        insta::assert_snapshot!(loss.details.as_str(), @r"
        It would remove
          server-1 on gpu-1
          PHASE            STEP                DEADLINE  AFTER
          server_removing  server-1/stop       180 s
          server_removing  server-1/uninstall  180 s     server-1/stop
        ");
    }

    #[test]
    fn degraded_workload_is_shown_with_fault_evidence_and_next_action() {
        let fault = json!({
            "code": "rke2_token_ca_mismatch", "summary": "agent gpu-09 failed to join: its token is for another cluster",
            "evidence_source": "journal rke2-agent", "evidence_at": "2026-01-01T14:11:05.000Z",
            "evidence": "token CA hash does not match the Cluster CA certificate hash",
            "next": "restarts and rejoins gpu-09 only", "command": "gpuaas workload resume train",
        });
        let member = |name: &str, node: &str, state: &str, health: &str| json!({ "name": name, "node": "n", "node_name": node, "state": state, "health": health });
        let mut failed = member("agent-2", "gpu-09", "failed", "failed");
        failed["fault"] = fault;
        let degraded = json!({ "health": "degraded", "members_ready": 2 });
        let detail = WorkloadDetail {
            workload: workload("train", "needs_attention", degraded),
            members: [member("server-1", "gpu-07", "ready", "healthy"), failed]
                .into_iter()
                .map(|member| serde_json::from_value(member).expect("a member"))
                .collect(),
            operation: None,
        };
        insta::assert_snapshot!(described(&detail, None, "").as_str(), @r"
        train   degraded · usable · 2 of 3 members ready · rke2 v1.36.3+rke2r1 · https://10.4.0.7:6443
        WHY      agent gpu-09 failed to join: its token is for another cluster (rke2_token_ca_mismatch)
        EVIDENCE journal rke2-agent 2026-01-01T14:11:05.000Z: token CA hash does not match the Cluster CA certificate hash
        NEXT     restarts and rejoins gpu-09 only: gpuaas workload resume train
        NAME      NODE    STATE   HEALTH
        server-1  gpu-07  ready   healthy
        agent-2   gpu-09  failed  failed
        ");
    }

    #[test]
    fn cancelled_workload_has_no_health_is_not_usable_and_explains_itself_once() {
        let fault = json!({
            "code": "operation_cancelled", "summary": "the deployment was cancelled; nothing was left on its nodes",
            "next": "remove what it left: gpuaas workload decommission train; or resume it",
            "command": "gpuaas workload resume train",
        });
        let cancelled = json!({
            "lifecycle": "cancelled", "health": "none", "usable": false, "members_ready": 0, "members_total": 1,
            "endpoint": null, "fault": fault,
        });
        let member = json!({ "name": "server-1", "node": "n", "node_name": "gpu-07", "state": "failed", "health": "failed", "fault": fault });
        let detail = WorkloadDetail {
            workload: workload("train", "needs_attention", cancelled),
            members: vec![serde_json::from_value(member).expect("a member")],
            operation: None,
        };
        insta::assert_snapshot!(described(&detail, None, "").as_str(), @r"
        train   cancelled · 0 of 1 members ready · rke2 v1.36.3+rke2r1
        WHY      the deployment was cancelled; nothing was left on its nodes (operation_cancelled)
        NEXT     remove what it left: gpuaas workload decommission train; or resume it: gpuaas workload resume train
        NAME      NODE    STATE   HEALTH
        server-1  gpu-07  failed  failed
        ");
        let next = "decommission train --project ml; or resume it: gpuaas workload resume train --project ml\n";
        let shown = described(&detail, None, " --project ml");
        assert!(shown.as_str().contains(next), "{}", shown.as_str());
    }

    #[test]
    fn newest_operation_is_shown_with_its_parameters() {
        let detail = WorkloadDetail {
            workload: workload("train", "active", json!({ "endpoint": null })),
            members: Vec::new(),
            operation: None,
        };
        let operation = json!({
            "operation": {
                "id": "1", "workload": "2", "kind": "upgrade", "parameters": { "force": true, "version": "v2" },
                "state": "running", "requested_by": "ada", "created_at": "2026-01-01T00:00:00.000Z",
            },
            "steps": [],
        });
        let operation: OperationDetail = serde_json::from_value(operation).expect("an operation");
        let shown = described(&detail, Some(&operation), "");
        let shown = shown.as_str();
        assert!(shown.contains("\nOPERATION upgrade force=true version=v2 · running"), "{shown}");
    }
}

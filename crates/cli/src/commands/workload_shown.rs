//! Formats workloads for people.

use gpuaas_api_types::{AccessAnswer, Fault, Member, OperationDetail, Preview, Step, Workload, WorkloadDetail};

use crate::{duration::format_age, output::table};

/// Column headers of a member table.
pub(super) const MEMBERS: [&str; 5] = ["NAME", "NODE", "STATE", "HEALTH", "WHY"];

/// Formats workloads by section, those that need attention first; empty without workloads.
pub(super) fn sections(workloads: &[Workload]) -> String {
    let of = |section: &'static str| workloads.iter().filter(move |workload| workload.section == section);
    let mut parts = Vec::new();
    for (section, title) in [("needs_attention", "NEEDS ATTENTION"), ("active", "ACTIVE")] {
        if of(section).next().is_some() {
            let rows = if section == "active" { active(of(section)) } else { attention(of(section)) };
            parts.push(format!("{title}\n{rows}"));
        }
    }
    for (section, title) in [("stopped", "STOPPED"), ("history", "HISTORY")] {
        if of(section).next().is_some() {
            let row = |workload: &Workload| {
                vec![workload.name.clone(), workload.app.clone(), version(workload), workload.lifecycle.clone()]
            };
            parts.push(format!("{title}\n{}", table(&["NAME", "APP", "VERSION", "LIFECYCLE"], of(section).map(row))));
        }
    }
    parts.join("\n")
}

fn attention<'a>(workloads: impl Iterator<Item = &'a Workload>) -> String {
    let row = |workload: &Workload| {
        let why = workload.fault.as_ref().map(|fault| fault.summary.clone());
        vec![
            workload.name.clone(),
            workload.app.clone(),
            workload.phase.clone(),
            format!("{}/{}", workload.completed, workload.total),
            workload.health.clone(),
            workload.waiting_for.clone().or(why).unwrap_or_default(),
            badge(workload),
        ]
    };
    table(&["NAME", "APP", "PHASE", "PROGRESS", "HEALTH", "WAITING FOR", ""], workloads.map(row))
}

fn active<'a>(workloads: impl Iterator<Item = &'a Workload>) -> String {
    let row = |workload: &Workload| {
        vec![
            workload.name.clone(),
            workload.app.clone(),
            version(workload),
            format!("{}/{}", workload.members_ready, workload.members_total),
            workload.health.clone(),
            workload.endpoint.clone().unwrap_or_default(),
        ]
    };
    table(&["NAME", "APP", "VERSION", "MEMBERS", "HEALTH", "ENDPOINT"], workloads.map(row))
}

fn version(workload: &Workload) -> String {
    let badge = badge(workload);
    if badge.is_empty() { workload.version.clone() } else { format!("{} ({badge})", workload.version) }
}

fn badge(workload: &Workload) -> String {
    if workload.stand_in { "stand-in".to_owned() } else { String::new() }
}

/// Returns a row of [`MEMBERS`].
pub(super) fn member(member: &Member) -> Vec<String> {
    let why = member.fault.as_ref().map(|fault| format!("{} ({})", fault.summary, fault.code));
    vec![
        member.name.clone(),
        member.node_name.clone(),
        member.state.clone(),
        member.health.clone(),
        why.unwrap_or_default(),
    ]
}

/// Formats a workload: a status line, each fault with its evidence and next step, and the members.
pub(super) fn described(detail: &WorkloadDetail, operation: Option<&OperationDetail>) -> String {
    let workload = &detail.workload;
    let mut parts = vec![workload.health.clone()];
    parts.push(if workload.lifecycle == "running" { "usable".to_owned() } else { workload.lifecycle.clone() });
    parts.push(format!("{} of {} members ready", workload.members_ready, workload.members_total));
    parts.push(format!("{} {}", workload.app, version(workload)));
    parts.extend(workload.endpoint.clone());
    let mut words = format!("{}   {}", workload.name, parts.join(" · "));
    if let Some(waiting) = &workload.waiting_for {
        let (completed, total) = (workload.completed, workload.total);
        words.push_str(&format!("\nNOW      {completed}/{total} {} · {waiting}", workload.phase));
    }
    let of_members = detail.members.iter().filter_map(|member| member.fault.as_ref());
    for fault in workload.fault.iter().chain(of_members) {
        let steps = operation.map(|operation| operation.steps.as_slice()).unwrap_or_default();
        let step = steps.iter().find(|step| step.fault.as_ref().is_some_and(|of| of.code == fault.code));
        words.push_str(&describe_fault(fault, step));
    }
    words.push('\n');
    words.push_str(&table(&MEMBERS[..4], detail.members.iter().map(|of| member(of)[..4].to_vec())));
    words
}

/// Formats a fault: its summary, the time it began, its evidence, and the next action.
pub(super) fn describe_fault(fault: &Fault, step: Option<&Step>) -> String {
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
    words.push_str(&format!("\nNEXT     {}{command}", fault.next));
    words
}

/// Formats the members and steps that an operation would create.
pub(super) fn preview(preview: &Preview) -> String {
    let members = preview.members.iter().map(|member| format!("\n  {} on {}", member.name, member.node_name));
    let steps = preview.steps.iter().map(|step| {
        vec![
            format!("  {}", step.phase),
            step.key.clone(),
            format!("{} s", step.deadline_ms / 1_000),
            step.needs.join(", "),
        ]
    });
    format!(
        "{} would create{}\n{}\npromised      {}\nnot promised  {}",
        preview.kind,
        members.collect::<String>(),
        table(&["  PHASE", "STEP", "DEADLINE", "AFTER"], steps),
        preview.promises.join("; "),
        preview.not_promised.join("; "),
    )
}

/// Formats how a cluster can be reached and the delivered kubeconfigs.
pub(super) fn access(access: &AccessAnswer) -> String {
    let mut words =
        format!("{}   from the {}", access.endpoint.as_deref().unwrap_or("no endpoint yet"), access.reachability);
    words.extend(access.notes.iter().map(|note| format!("\n  {note}")));
    let kinds = access.kinds.iter().map(|kind| {
        let default = if kind.default { "default" } else { "" };
        let most = format!("{} h", kind.ttl_seconds_max / 3_600);
        vec![kind.name.clone(), default.to_owned(), most, kind.roles.join(", "), kind.note.clone()]
    });
    words.push_str(&format!("\n{}", table(&["KIND", "", "LONGEST", "ROLES", ""], kinds)));
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
        words.push_str(&format!("\n{}", table(&header, grants)));
    }
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workload(name: &str, section: &str, more: serde_json::Value) -> Workload {
        let mut value = json!({
            "id": "1", "name": name, "project": "p", "app": "rke2", "version": "v1.36.3+rke2r1", "lifecycle": "running",
            "phase": "ready", "completed": 9, "total": 9, "health": "healthy", "recovery": "none", "section": section,
            "members_ready": 3, "members_total": 3, "endpoint": "https://10.4.0.7:6443", "stand_in": false,
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
            "waiting_for": "agent-2/wait-ready: kubelet not ready (31 s) · retry in 4 s",
        });
        let all = [
            workload("infer", "active", json!({})),
            workload("train", "needs_attention", deploying),
            workload("old", "history", json!({ "lifecycle": "decommissioned" })),
        ];
        insta::assert_snapshot!(sections(&all), @r"
        NEEDS ATTENTION
        NAME   APP   PHASE          PROGRESS  HEALTH       WAITING FOR
        train  rke2  agent_joining  5/9       progressing  agent-2/wait-ready: kubelet not ready (31 s) · retry in 4 s  stand-in
        ACTIVE
        NAME   APP   VERSION         MEMBERS  HEALTH   ENDPOINT
        infer  rke2  v1.36.3+rke2r1  3/3      healthy  https://10.4.0.7:6443
        HISTORY
        NAME  APP   VERSION         LIFECYCLE
        old   rke2  v1.36.3+rke2r1  decommissioned
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
        insta::assert_snapshot!(described(&detail, None), @r"
        train   degraded · usable · 2 of 3 members ready · rke2 v1.36.3+rke2r1 · https://10.4.0.7:6443
        WHY      agent gpu-09 failed to join: its token is for another cluster (rke2_token_ca_mismatch)
        EVIDENCE journal rke2-agent 2026-01-01T14:11:05.000Z: token CA hash does not match the Cluster CA certificate hash
        NEXT     restarts and rejoins gpu-09 only: gpuaas workload resume train
        NAME      NODE    STATE   HEALTH
        server-1  gpu-07  ready   healthy
        agent-2   gpu-09  failed  failed
        ");
    }
}

//! Formats workloads for people.

use gpuaas_api_types::{
    AccessAnswer, ControllerReport, Difference, Drift, Fault, Member, NodeResidue, OfferedRole, Operation,
    OperationDetail, Step, Workload, WorkloadDetail,
};
use serde_json::{Map, Value};

use super::{
    lists::{EventStream, Listing},
    plan_shown::verb,
    waiting_shown, workload_next,
};
use crate::{
    duration::format_age,
    output::with_project,
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
            let waits = || waiting_shown::sentence(member.waiting.as_ref());
            why.or_else(|| progress_of(member)).or_else(waits).unwrap_or_default()
        }),
        wide("NODE ID", |member| member.node.clone().unwrap_or_default()),
        wide("ACTIONS", |member| member.actions.iter().map(|kind| verb(kind)).collect::<Vec<_>>().join(", ")),
    ],
    name: |member| &member.name,
    is_live: |member| member.state != "removed",
    events: &["member."],
    stream: EventStream::Project,
    volatile: &["waiting"],
};

/// What a controller says about a member that is on its way: that is no fault, and still explains it.
fn progress_of(member: &Member) -> Option<String> {
    let report = member.reported.as_ref().filter(|report| report.health == "progressing")?;
    let message = report.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
    Some(format!("{} reports progressing{message}", report.by))
}

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
    volatile: &["waiting", "waiting_for"],
};

/// Formats workloads by section, those that need attention first; empty without workloads. Workloads that an operation changes without a
/// fault have a section of their own.
pub(super) fn sections(workloads: &[Workload]) -> Text {
    let of = |section: &'static str| workloads.iter().filter(move |workload| shown_section(workload) == section);
    let has_projects = workloads.iter().any(|workload| workload.project_name != workloads[0].project_name);
    let mut text = Text::default();
    for (section, title) in [
        ("needs_attention", "NEEDS ATTENTION"),
        (IN_PROGRESS, "IN PROGRESS"),
        ("active", "ACTIVE"),
        ("stopped", "STOPPED"),
        ("history", "HISTORY"),
    ] {
        if of(section).next().is_none() {
            continue;
        }
        text.push_str(if text.is_empty() { "" } else { "\n" });
        text.push_str(&format!("{title}\n"));
        let columns = match section {
            "needs_attention" | IN_PROGRESS => ATTENTION,
            "active" => ACTIVE,
            _ => INACTIVE,
        };
        text.push(&section_table(columns, of(section), has_projects));
    }
    text
}

/// The section of workloads that an operation changes without a fault. The API lists them under `needs_attention`.
const IN_PROGRESS: &str = "in_progress";

fn shown_section(workload: &Workload) -> &str {
    let is_in_progress =
        workload.section == "needs_attention" && workload.waiting_for.is_some() && workload.fault.is_none();
    let is_well = matches!(workload.health.as_str(), "none" | "progressing");
    if is_in_progress && is_well { IN_PROGRESS } else { &workload.section }
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
    let now = workload.waiting_for.as_ref().map(|waiting| format!("waiting for {waiting}"));
    now.or(why).or_else(|| waiting_shown::sentence(workload.waiting.as_ref())).unwrap_or_default()
}

/// Returns how many members are ready, and how many were drained or stopped on request.
fn members(workload: &Workload) -> String {
    let states = workload.member_states.iter();
    let on_request = states.filter(|(state, _)| matches!(state.as_str(), "draining" | "drained" | "stopped"));
    let on_request: String = on_request.map(|(state, count)| format!(", {count} {state}")).collect();
    format!("{}/{}{on_request}", workload.members_ready, workload.members_total)
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
    if workload.members_total > 0 {
        parts.push(format!("{} of {} members ready", workload.members_ready, workload.members_total));
    }
    parts.push(format!("{} {}", workload.app, version(workload)));
    parts.extend(workload.endpoint.clone());
    let mut words = format!("{}   {}", workload.name, parts.join(" · "));
    if let Some(waiting) = &workload.waiting_for {
        let (completed, total) = (workload.completed, workload.total);
        words.push_str(&format!("\nNOW      {completed}/{total} {} · waiting for {waiting}", workload.phase));
    }
    let is_shown = |of: &&Operation| !of.parameters.is_empty() || is_being_cancelled(of);
    if let Some(operation) = operation.map(|detail| &detail.operation).filter(is_shown) {
        words.push_str(&format!("\nOPERATION {} · {}", titled(operation), shown_state(operation).replace('_', " ")));
    }
    let own = operation.map(|detail| &detail.operation).filter(|operation| operation.ended_at.is_none());
    if let Some(reason) = own.and_then(|operation| operation.reason.as_ref()) {
        words.push_str(&format!("\nREASON   the platform reconciles by itself and yields to your requests: {reason}"));
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
    if let Some(drift) = &workload.drift {
        words.push_str(&drifted(drift, &workload.name));
    }
    // A fault says what is awaited and from whom, and NOW says it of an open operation.
    let other = workload.waiting.as_ref().filter(|_| workload.waiting_for.is_none() && explained.is_empty());
    words.extend(other.map(waiting_shown::line));
    if let Some(report) = &detail.controller {
        words.push_str(&controller(report));
    }
    words.push_str(&waiting_shown::lines(detail.controller_waiting.as_ref(), None, project_flag));
    let newest = operation.map(|operation| &operation.operation);
    words.push_str(&with_project(&workload_next::lines(detail, newest), project_flag));
    words.push_str(&settings(&detail.config));
    words.push_str(&residue(operation.map(|operation| operation.residue.as_slice()).unwrap_or_default()));
    words.push('\n');
    let is_busy = newest.is_some_and(|operation| operation.ended_at.is_none());
    let mut text = Text::from(words);
    text.push(&member_table(detail, is_busy));
    text
}

/// Formats the settings with which a workload was deployed; empty without any.
fn settings(config: &Map<String, Value>) -> String {
    let line = |(name, value): (&String, &Value)| format!("\n  {name}: {}", setting(value));
    if config.is_empty() { String::new() } else { format!("\nSETTINGS{}", config.iter().map(line).collect::<String>()) }
}

fn setting(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(entries) => entries.iter().map(setting).collect::<Vec<_>>().join(", "),
        Value::Object(entries) => {
            let entry = |(name, value): (&String, &Value)| format!("{name}={}", setting(value));
            entries.iter().map(entry).collect::<Vec<_>>().join(", ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Formats what deviates, and when the platform corrects it.
fn drifted(drift: &Drift, name: &str) -> String {
    let line = |of: &Difference| {
        let member = of.member.as_ref().map(|member| format!("{member}: ")).unwrap_or_default();
        let since = of.since.as_ref().map(|since| format!(" (since {since})")).unwrap_or_default();
        format!("\nDRIFT    {member}{}: {}{since}", of.field, of.observed)
    };
    let lines: String = drift.differences.iter().map(line).collect();
    let tries = match drift.attempts.len() {
        0 => String::new(),
        times => format!(" (attempts within the last hour: {times})"),
    };
    match &drift.reconcile_at {
        Some(at) => format!("{lines}\n         the platform reconciles {name} at {at}{tries}"),
        None => lines,
    }
}

/// Formats the last report of a workload's controller: who reports, since when, and about which generation.
fn controller(report: &ControllerReport) -> String {
    let stale = if report.current { "" } else { " (earlier than the present one, so nothing of it counts)" };
    let phase = report.phase.as_ref().map(|phase| format!(" · phase {phase}")).unwrap_or_default();
    let progress = report.progress.map(|of| format!(" · {}/{}", of.completed, of.total)).unwrap_or_default();
    format!(
        "\nREPORTED by {} since {} · last {} ago · generation {}{stale}{phase}{progress}",
        report.by,
        report.since,
        format_age(&report.reported_at),
        report.generation
    )
}

/// Formats the members; without removed ones, unless all are removed.
fn member_table(detail: &WorkloadDetail, is_busy: bool) -> Text {
    let is_gone = |member: &Member| member.state == "removed";
    let all_are_gone = detail.members.iter().all(is_gone);
    let shown = detail.members.iter().filter(|member| all_are_gone || !is_gone(member));
    // WHY and EVIDENCE explain what has a fault.
    let waits = |of: &Member| of.waiting.is_some() && of.fault.is_none();
    let has_waits = detail.members.iter().any(waits);
    let row = |of: &Member| {
        let state = workload_next::member_state(of, is_busy);
        let mut cells = vec![of.name.clone(), of.node_name.clone(), state, of.health.clone()];
        if has_waits {
            cells.push(if waits(of) { waiting_shown::cell(of.waiting.as_ref()) } else { String::new() });
        }
        cells
    };
    let header = ["NAME", "NODE", "STATE", "HEALTH", "WAITING FOR"];
    table(if has_waits { &header[..] } else { &header[..4] }, shown.map(row))
}

/// Formats a fault: its summary, the time it began, its evidence, and the next action. Commands about workloads get `project_flag`.
pub(super) fn describe_fault(fault: &Fault, step: Option<&Step>, project_flag: &str) -> String {
    let mut words = format!("\nWHY      {} ({})", fault.summary, fault.code);
    if let Some(ended) = step.and_then(|step| step.ended_at.as_ref()?.parse::<jiff::Timestamp>().ok()) {
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

/// Formats the residue report of each node, also of a clean one and of one that was given up; empty without reports.
pub(super) fn residue(reports: &[NodeResidue]) -> String {
    let line = |report: &NodeResidue| {
        if let Some(why) = &report.given_up {
            return format!("\n  {}: given up: {why}; what is left is unknown", report.node_name);
        }
        let removed = match (report.found.len(), report.removed.len()) {
            (0, _) => String::new(),
            (found, removed) => format!(" ({found} found, {removed} removed)"),
        };
        let unchecked = report.unchecked.iter().map(|what| format!("not checked: {what}"));
        let left: Vec<String> = report.items.iter().cloned().chain(unchecked).collect();
        let left = if left.is_empty() { "nothing left".to_owned() } else { left.join("; ") };
        format!("\n  {}: {left}{removed}", report.node_name)
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
        // A note names the network that it needs.
        (Some(endpoint), "node-network") => endpoint.clone(),
        (Some(endpoint), other) => format!("{endpoint}   from the {other}"),
        (None, _) => "no endpoint yet".to_owned(),
    };
    words.extend(access.notes.iter().map(|note| format!("\n  {note}")));
    let kinds = access.kinds.iter().map(|kind| {
        let default = if kind.default { "yes" } else { "" };
        let most = lifetime(kind.ttl_seconds_max);
        vec![kind.name.clone(), default.to_owned(), most, kind.roles.join(", "), kind.note.clone()]
    });
    let roles = access.kinds.iter().flat_map(|kind| {
        let row = |role: &OfferedRole| {
            vec![kind.name.clone(), role.name.clone(), role.permission.clone(), role.check.clone()]
        };
        kind.offered_roles.iter().map(row).collect::<Vec<_>>()
    });
    words.push('\n');
    let mut text = Text::from(words);
    text.push(&table(&["KIND", "DEFAULT", "MAX TTL", "ROLES", "NOTE"], kinds));
    text.push_str("\n");
    text.push(&table(&["KIND", "ROLE", "NEEDS", "TRY IT"], roles));
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

/// Formats a longest lifetime as `--ttl` takes it: `1h` or `30d`.
fn lifetime(seconds: u64) -> String {
    if seconds < 86_400 { format!("{}h", seconds / 3_600) } else { format!("{}d", seconds / 86_400) }
}

/// Returns the kind of an operation with its parameters, for example `upgrade version=v1.37.1+rke2r1`.
pub(super) fn titled(operation: &Operation) -> String {
    let parameters = operation.parameters.iter().map(|(name, value)| format!(" {name}={}", parameter(value)));
    format!("{}{}", operation.kind, parameters.collect::<String>())
}

/// Formats a parameter; in quotation marks if it contains blanks, so that its end is visible.
fn parameter(value: &Value) -> String {
    match value {
        Value::String(text) if !text.contains(char::is_whitespace) => text.clone(),
        Value::Array(items) => items.iter().map(parameter).collect::<Vec<_>>().join(","),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => value.to_string(),
    }
}

/// Returns the state of an operation, with a requested cancellation that has not ended it yet.
pub(super) fn shown_state(operation: &Operation) -> String {
    let cancellation = if is_being_cancelled(operation) { " (cancellation requested)" } else { "" };
    format!("{}{cancellation}", operation.state)
}

fn is_being_cancelled(operation: &Operation) -> bool {
    operation.cancel_requested && operation.ended_at.is_none()
}

#[cfg(test)]
mod tests;

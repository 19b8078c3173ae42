//! Placement of servers and agents: reports every reason against a placement at once.

use std::collections::BTreeSet;

use gpuaas_model::{AllocationId, Code, Reason};
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
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("examples" = [{
    "server_allocation_id": "0198c0de-7a3b-7c11-9b54-0242ac120006",
    "agent_allocation_ids": ["0198c0de-7a3b-7c11-9b54-0242ac120007"],
}]))]
pub(crate) struct Placement {
    /// Allocation of the server.
    // Required, but the placement itself reports a missing server, together with the reasons against the agents.
    #[schemars(with = "Uuid")]
    server_allocation_id: Option<AllocationId>,
    /// Allocations of the agents.
    #[serde(default)]
    #[schemars(with = "Vec<Uuid>", length(max = AGENTS_MAX), extend("uniqueItems" = true))]
    agent_allocation_ids: Vec<AllocationId>,
}

/// Placement of additional members.
// Requests are parsed as a `Placement` without a server.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("examples" = [{ "agent_allocation_ids": ["0198c0de-7a3b-7c11-9b54-0242ac120008"] }]))]
#[allow(dead_code, reason = "only its schema is used")]
pub(crate) struct AddedMembers {
    /// Allocations of the new agents.
    #[schemars(with = "Vec<Uuid>", length(min = 1, max = AGENTS_MAX), extend("uniqueItems" = true))]
    agent_allocation_ids: Vec<AllocationId>,
}

/// Returns the allocations that an intent names; none if it is ill-formed.
pub(crate) fn named(intent: &Value) -> Vec<AllocationId> {
    let read = Placement::deserialize(intent);
    read.map(|read| read.server_allocation_id.into_iter().chain(read.agent_allocation_ids).collect())
        .unwrap_or_default()
}

/// Returns the members that `intent` requests, or every reason against them.
pub(crate) fn place(
    intent: &Value,
    candidates: &[Candidate],
    existing: &[MemberView],
    manifest: &Manifest,
) -> Result<Vec<Placed>, Vec<Reason>> {
    let growing = !existing.is_empty();
    let intent = parsed(intent, growing)?;
    let mut placing = Placing { candidates, manifest, reasons: Vec::new(), seen: BTreeSet::new(), placed: Vec::new() };
    match intent.server_allocation_id {
        Some(server) => placing.place_member(SERVER_FIELD, names::SERVER, 1, server),
        None if growing => {}
        None => placing.refuse(
            SERVER_FIELD,
            Code::ServerRequired,
            "a cluster needs a server",
            "name the allocation that the server goes to",
        ),
    }
    // Ordinals are never reused, so that a name in a log always means the same member.
    let used = existing.iter().filter(|member| member.component_key == names::AGENT).map(|member| member.ordinal).max();
    for (at, (agent, ordinal)) in intent.agent_allocation_ids.iter().zip(used.unwrap_or(0) + 1..).enumerate() {
        placing.place_member(&format!("{AGENTS_FIELD}[{at}]"), names::AGENT, ordinal, *agent);
    }
    let present = existing.iter().filter(|member| member.component_key == names::AGENT && member.is_present()).count();
    if present + intent.agent_allocation_ids.len() > AGENTS_MAX {
        placing.refuse(
            AGENTS_FIELD,
            Code::TooManyMembers,
            &format!("a cluster has at most {AGENTS_MAX} agents"),
            "name fewer",
        );
    }
    if placing.reasons.is_empty() { Ok(placing.placed) } else { Err(placing.reasons) }
}

/// Parses an intent for a new or a `growing` cluster, or returns every reason against its shape.
fn parsed(intent: &Value, growing: bool) -> Result<Placement, Vec<Reason>> {
    let found = if growing { schema::check::<AddedMembers>(intent) } else { schema::check::<Placement>(intent) };
    let has_server = intent.get(SERVER_FIELD).is_some_and(|server| !server.is_null());
    let is_placed = |of: &Violation| match of.field.as_str() {
        SERVER_FIELD => !has_server,
        _ => matches!(of.keyword.as_str(), "uniqueItems" | "maxItems"),
    };
    // The placement itself reports the others, with codes of their own.
    let reasons: Vec<Reason> = found.into_iter().filter(|of| !is_placed(of)).map(ill_formed).collect();
    if !reasons.is_empty() {
        return Err(reasons);
    }
    Placement::deserialize(intent).map_err(|error| {
        let detail = error.to_string();
        let next = Some(SEE_SCHEMA.to_owned());
        vec![Reason { field: "placement".to_owned(), code: Code::FieldInvalid, detail, next }]
    })
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
        if !self.seen.insert(id) {
            self.refuse(field, Code::AllocationRepeated, "this allocation is named twice", "name each allocation once");
            return;
        }
        let Some(candidate) = self.candidates.iter().find(|candidate| candidate.allocation == id) else {
            self.refuse(
                field,
                Code::AllocationUnknown,
                "the project has no such allocation",
                "see gpuaas allocation list",
            );
            return;
        };
        self.reasons.extend(unusable(field, candidate, self.manifest));
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
            let reasons = parsed(&intent, growing).err().unwrap_or_default();
            assert!(reasons.iter().all(|reason| reason.next.is_some()), "{reasons:?}");
            reasons.into_iter().map(|reason| (reason.field, reason.code)).collect()
        };
        let invalid = |field: &str| (field.to_owned(), Code::FieldInvalid);
        assert_eq!(refused(json!({ "server_allocation_id": ID, "agent_allocation_ids": [ID, ID] }), false), []);
        assert_eq!(refused(json!({ "agent_allocation_ids": [ID] }), true), []);
        assert_eq!(refused(json!([]), false), [invalid("placement")]);
        assert_eq!(refused(json!({ "server_allocation_id": null, "agent_allocation_ids": [ID] }), false), []);
        let mut many = refused(json!({ "agent_allocation_ids": [ID, "gpu-1"], "gpus": 8 }), false);
        many.sort();
        assert_eq!(many, [invalid("agent_allocation_ids[1]"), invalid("gpus")]);
        assert_eq!(refused(json!({}), true), [invalid(AGENTS_FIELD)]);
        let mut both = refused(json!({ "server_allocation_id": ID, "agent_allocation_ids": [] }), true);
        both.sort();
        assert_eq!(both, [invalid(AGENTS_FIELD), invalid(SERVER_FIELD)]);
    }

    #[test]
    fn missing_server_is_reported_with_the_reasons_against_agents() {
        let intent = json!({ "agent_allocation_ids": [ID] });
        let reasons = place(&intent, &[], &[], &crate::manifest::manifest()).expect_err("refused");
        let reasons: Vec<(&str, Code)> = reasons.iter().map(|reason| (reason.field.as_str(), reason.code)).collect();
        let unknown = ("agent_allocation_ids[0]", Code::AllocationUnknown);
        assert_eq!(reasons, [(SERVER_FIELD, Code::ServerRequired), unknown]);
    }

    #[test]
    fn named_allocations_are_those_of_a_new_or_growing_cluster() {
        let id: AllocationId = ID.parse().expect("an id");
        assert_eq!(named(&json!({ "server_allocation_id": ID, "agent_allocation_ids": [ID] })), [id, id]);
        assert_eq!(named(&json!({ "agent_allocation_ids": [ID] })), [id]);
        assert_eq!(named(&json!({ "agent_allocation_ids": ["gpu-1"] })), []);
    }
}

//! Placement of servers and agents: reports every reason against a placement at once.

use std::collections::BTreeSet;

use gpuaas_model::{AllocationId, Code, Reason};
use gpuaas_planner::{
    MemberView,
    app::Manifest,
    placement::{Candidate, Placed, unusable},
};
use serde_json::Value;

use crate::names;

/// Most agents of one cluster: RKE2 recommends that at most fifty join at once, and a plan stays readable.
pub(crate) const AGENTS_MAX: usize = 50;

const SERVER_FIELD: &str = "server_allocation_id";
const AGENTS_FIELD: &str = "agent_allocation_ids";

/// Returns the allocations that an intent names, without ill-formed ones.
pub(crate) fn named(intent: &Value) -> Vec<AllocationId> {
    let agents = intent.get(AGENTS_FIELD).and_then(Value::as_array).into_iter().flatten();
    let texts = intent.get(SERVER_FIELD).into_iter().chain(agents);
    texts.filter_map(|text| text.as_str()?.parse().ok()).collect()
}

/// Returns the members that `intent` requests, or every reason against them.
pub(crate) fn place(
    intent: &Value,
    candidates: &[Candidate],
    existing: &[MemberView],
    manifest: &Manifest,
) -> Result<Vec<Placed>, Vec<Reason>> {
    let mut placing = Placing { candidates, manifest, reasons: Vec::new(), seen: BTreeSet::new(), placed: Vec::new() };
    let growing = !existing.is_empty();
    placing.shape(intent, growing);
    if !growing {
        match intent.get(SERVER_FIELD) {
            Some(Value::Null) | None => placing.refuse(
                SERVER_FIELD,
                Code::ServerRequired,
                "a cluster needs a server",
                "name the allocation that the server goes to",
            ),
            Some(server) => placing.place_member(SERVER_FIELD, names::SERVER, 1, server),
        }
    }
    // Ordinals are never reused, so that a name in a log always means the same member.
    let used = existing.iter().filter(|member| member.component_key == names::AGENT).map(|member| member.ordinal).max();
    let agents = intent.get(AGENTS_FIELD).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (at, (agent, ordinal)) in agents.iter().zip(used.unwrap_or(0) + 1..).enumerate() {
        placing.place_member(&format!("{AGENTS_FIELD}[{at}]"), names::AGENT, ordinal, agent);
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

    fn shape(&mut self, intent: &Value, growing: bool) {
        let Some(fields) = intent.as_object() else {
            self.refuse(
                "placement",
                Code::FieldInvalid,
                "the placement must be an object",
                "see the app's placement schema",
            );
            return;
        };
        for name in fields.keys() {
            let known = name == AGENTS_FIELD || (name == SERVER_FIELD && !growing);
            if !known && name == SERVER_FIELD {
                self.refuse(name, Code::FieldInvalid, "the cluster already has a server", "name agents only");
            } else if !known {
                self.refuse(
                    name,
                    Code::FieldInvalid,
                    "the placement schema has no such field",
                    "see the app's placement schema",
                );
            }
        }
        match fields.get(AGENTS_FIELD) {
            Some(Value::Array(agents)) if growing && agents.is_empty() => {
                self.refuse(
                    AGENTS_FIELD,
                    Code::FieldInvalid,
                    "the request adds no member",
                    "name at least one allocation",
                );
            }
            Some(Value::Array(_)) => {}
            Some(_) => {
                self.refuse(AGENTS_FIELD, Code::FieldInvalid, "agents must be a list of allocation ids", "send a list")
            }
            None if growing => {
                self.refuse(
                    AGENTS_FIELD,
                    Code::FieldInvalid,
                    "the request adds no member",
                    "name at least one allocation",
                );
            }
            None => {}
        }
    }

    fn place_member(&mut self, field: &str, component: &str, ordinal: u32, value: &Value) {
        let Some(id) = value.as_str().and_then(|text| text.parse::<AllocationId>().ok()) else {
            self.refuse(field, Code::FieldInvalid, "this is not an allocation id", "see gpuaas allocation list");
            return;
        };
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

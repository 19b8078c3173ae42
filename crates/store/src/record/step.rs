//! The form of a step in rows. It is separate from the planner's type, so that changes of the planner do not change rows.

use gpuaas_model::{MemberEvent, MemberId, NodeId, TaskType};
use gpuaas_planner::{FailureScope, RecordKind, Retry, StepAction, StepKey, StepSpec};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Writes a step in the form of rows.
pub(super) fn serialize<S: Serializer>(step: &StepSpec, serializer: S) -> Result<S::Ok, S::Error> {
    StoredStep::from(step.clone()).serialize(serializer)
}

/// Reads a step from the form of rows.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StepSpec, D::Error> {
    StoredStep::deserialize(deserializer).map(StepSpec::from)
}

/// A step as rows contain it. A field or a value is only ever added here; rows of earlier versions stay readable.
#[derive(Serialize, Deserialize)]
struct StoredStep {
    key: StepKey,
    phase: String,
    member: Option<MemberId>,
    action: StoredAction,
    needs: Vec<StepKey>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    after: Vec<StepKey>,
    begins: Option<MemberEvent>,
    ends: Option<MemberEvent>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    spares_member: bool,
    deadline_ms: u64,
    retry: StoredRetry,
    scope: StoredScope,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum StoredAction {
    NodeTask { node: NodeId, task: TaskType },
    ClusterCall { call: String },
    Record { record: StoredRecord },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredRecord {
    ConfirmPlacement,
    Milestone,
    AwaitNode,
    GiveUp,
}

#[derive(Serialize, Deserialize)]
struct StoredRetry {
    attempts_max: u32,
    base_ms: u64,
    cap_ms: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredScope {
    /// Called `workload` by versions that had no scope of a component.
    #[serde(alias = "workload")]
    Operation,
    Component {
        component: String,
        may_fail: u32,
    },
    Member,
}

impl From<StepSpec> for StoredStep {
    fn from(step: StepSpec) -> Self {
        // Without `..`: a field that the planner adds does not compile until rows have a place for it.
        let StepSpec {
            key,
            phase,
            member,
            action,
            needs,
            after,
            on_first_start: begins,
            on_success: ends,
            spares_member,
            deadline_ms,
            retry,
            scope,
        } = step;
        let action = match action {
            StepAction::NodeTask { node, task } => StoredAction::NodeTask { node, task },
            StepAction::ClusterCall { call } => StoredAction::ClusterCall { call },
            StepAction::Record { record } => StoredAction::Record {
                record: match record {
                    RecordKind::ConfirmPlacement => StoredRecord::ConfirmPlacement,
                    RecordKind::Milestone => StoredRecord::Milestone,
                    RecordKind::AwaitNode => StoredRecord::AwaitNode,
                    RecordKind::GiveUp => StoredRecord::GiveUp,
                },
            },
        };
        let scope = match scope {
            FailureScope::Operation => StoredScope::Operation,
            FailureScope::Component { component, may_fail } => StoredScope::Component { component, may_fail },
            FailureScope::Member => StoredScope::Member,
        };
        let Retry { attempts_max, base_ms, cap_ms } = retry;
        let retry = StoredRetry { attempts_max, base_ms, cap_ms };
        Self { key, phase, member, action, needs, after, begins, ends, spares_member, deadline_ms, retry, scope }
    }
}

impl From<StoredStep> for StepSpec {
    fn from(step: StoredStep) -> Self {
        let StoredStep {
            key,
            phase,
            member,
            action,
            needs,
            after,
            begins,
            ends,
            spares_member,
            deadline_ms,
            retry,
            scope,
        } = step;
        let action = match action {
            StoredAction::NodeTask { node, task } => StepAction::NodeTask { node, task },
            StoredAction::ClusterCall { call } => StepAction::ClusterCall { call },
            StoredAction::Record { record } => StepAction::Record {
                record: match record {
                    StoredRecord::ConfirmPlacement => RecordKind::ConfirmPlacement,
                    StoredRecord::Milestone => RecordKind::Milestone,
                    StoredRecord::AwaitNode => RecordKind::AwaitNode,
                    StoredRecord::GiveUp => RecordKind::GiveUp,
                },
            },
        };
        let scope = match scope {
            StoredScope::Operation => FailureScope::Operation,
            StoredScope::Component { component, may_fail } => FailureScope::Component { component, may_fail },
            StoredScope::Member => FailureScope::Member,
        };
        let StoredRetry { attempts_max, base_ms, cap_ms } = retry;
        let retry = Retry { attempts_max, base_ms, cap_ms };
        Self {
            key,
            phase,
            member,
            action,
            needs,
            after,
            on_first_start: begins,
            on_success: ends,
            spares_member,
            deadline_ms,
            retry,
            scope,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn step() -> Value {
        json!({
            "key": "server-2/start", "phase": "starting", "member": "0198c0de-7a3b-7c11-9b54-0242ac120009",
            "action": { "kind": "node_task", "node": "0198c0de-7a3b-7c11-9b54-0242ac120004", "task": "host.noop" },
            "needs": ["placement"], "after": ["server-1/start"], "begins": { "name": "bootstrap" }, "ends": null,
            "deadline_ms": 60_000, "retry": { "attempts_max": 5, "base_ms": 500, "cap_ms": 15_000 },
            "scope": { "component": { "component": "server", "may_fail": 1 } },
        })
    }

    fn with(field: &str, value: Value) -> Value {
        let mut step = step();
        step[field] = value;
        step
    }

    /// Reads a stored step and writes it again.
    fn rewritten(step: &Value) -> Value {
        let read = deserialize(step).expect("it is readable");
        serialize(&read, serde_json::value::Serializer).expect("it is writable")
    }

    #[test]
    fn every_form_of_a_stored_step_is_read_and_written_unchanged() {
        let actions = [
            json!({ "kind": "cluster_call", "call": "api_ready" }),
            json!({ "kind": "record", "record": "confirm_placement" }),
            json!({ "kind": "record", "record": "milestone" }),
            json!({ "kind": "record", "record": "await_node" }),
            json!({ "kind": "record", "record": "give_up" }),
        ];
        let actions = actions.into_iter().map(|action| with("action", action));
        let scopes = ["operation", "member"].into_iter().map(|scope| with("scope", json!(scope)));
        let sparing = with("spares_member", json!(true));
        for stored in actions.chain(scopes).chain([step(), sparing]) {
            assert_eq!(rewritten(&stored), stored);
        }
    }

    #[test]
    fn step_of_an_earlier_version_is_readable() {
        let mut earlier = with("scope", json!("workload"));
        earlier.as_object_mut().expect("an object").remove("after");
        let read = deserialize(&earlier).expect("it is readable");
        assert_eq!((read.scope, read.after), (FailureScope::Operation, Vec::new()));
    }
}

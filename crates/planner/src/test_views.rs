//! A member and a workload for tests of this crate, of apps and of their effects. A new field of the views gets its value for all of them here.

use std::collections::BTreeMap;

use gpuaas_model::{
    AllocationId, Health, Lifecycle, MemberId, MemberPlace, MemberState, NodeId, ProjectId, WorkloadId,
};
use serde_json::Value;
use uuid::Uuid;

use crate::view::{MachineView, MemberView, ReleaseView, WorkloadView};

/// Returns a member with a name like `agent-2`, healthy and touched, on the node `gpu-NUMBER` at `10.4.0.NUMBER`. Its id is the number; the
/// ids of its allocation and node are the number plus 1,000 and 2,000.
pub fn member(name: &str, number: u128, state: MemberState) -> MemberView {
    let (component_key, ordinal) = name.rsplit_once('-').expect("a name is a component and an ordinal");
    MemberView {
        id: MemberId::from_uuid(Uuid::from_u128(number)),
        name: name.to_owned(),
        component_key: component_key.to_owned(),
        ordinal: ordinal.parse().expect("an ordinal is a number"),
        place: MemberPlace::Allocation {
            allocation: AllocationId::from_uuid(Uuid::from_u128(1_000 + number)),
            node: NodeId::from_uuid(Uuid::from_u128(2_000 + number)),
        },
        machine: MachineView {
            name: format!("gpu-{number}").parse().expect("it is a name"),
            address: format!("10.4.0.{number}"),
            clock_skew_seconds: None,
            unreachable_since: None,
        },
        state,
        health: Health::Healthy,
        fault: None,
        own_health: Health::Healthy,
        own_fault: None,
        touched: true,
    }
}

/// Returns the running workload `train` of these members, without settings, facts and secrets. Its id is 1, that of its project 2.
pub fn workload(members: Vec<MemberView>) -> WorkloadView {
    WorkloadView {
        id: WorkloadId::from_uuid(Uuid::from_u128(1)),
        project: ProjectId::from_uuid(Uuid::from_u128(2)),
        name: "train".parse().expect("it is a name"),
        lifecycle: Lifecycle::Running,
        config: Value::Null,
        release: ReleaseView { version: "1".to_owned(), artifacts: Vec::new() },
        members,
        facts: BTreeMap::new(),
        secrets: BTreeMap::new(),
    }
}

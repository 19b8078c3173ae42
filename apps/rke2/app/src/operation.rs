//! The operations of the app with their parameters, as the manifest describes them and as plans take them.

use gpuaas_model::{AllocationId, OperationKind};
use gpuaas_planner::OperationSpec;
use schemars::JsonSchema;
use serde::Deserialize;
use uuid::Uuid;

use crate::schema;

/// A requested operation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", content = "parameters", rename_all = "snake_case")]
pub(crate) enum Operation {
    /// Deploys the members of the workload.
    Deploy(NoParameters),
    /// Adds agents.
    AddMember(NoParameters),
    /// Removes every member.
    Decommission(NoParameters),
    /// Changes the version of RKE2.
    Upgrade(Upgrade),
    /// Restores etcd.
    Restore(Restore),
    /// Moves a member to another node.
    ReplaceMember(ReplaceMember),
}

/// No parameters.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParameters {}

/// Parameters of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("examples" = [{ "version": "v1.37.1+rke2r1" }]))]
pub(crate) struct Upgrade {
    /// Imported version of the app, for example `v1.37.1+rke2r1`.
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[A-Za-z0-9.+~-]+$"))]
    pub(crate) version: String,
}

/// Parameters of a restore.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("examples" = [{ "snapshot": "nightly-1" }]))]
pub(crate) struct Restore {
    /// Name of a snapshot of the workload.
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[A-Za-z0-9._-]+$"))]
    pub(crate) snapshot: String,
}

/// Parameters of a replacement.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("examples" = [{ "member": "agent-2", "by": "0198c0de-7a3b-7c11-9b54-0242ac120006" }]))]
pub(crate) struct ReplaceMember {
    /// Name of the member, for example `agent-2`.
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[a-z0-9-]+$"))]
    pub(crate) member: String,
    /// Allocation of the other node.
    #[schemars(with = "Uuid")]
    pub(crate) by: AllocationId,
}

/// Returns the operations for the manifest.
pub(crate) fn specs() -> Vec<OperationSpec> {
    fn spec<T: JsonSchema>(kind: OperationKind, is_available: bool) -> OperationSpec {
        OperationSpec { kind, parameters_schema: schema::of::<T>(), is_available }
    }
    vec![
        spec::<NoParameters>(OperationKind::Deploy, true),
        spec::<NoParameters>(OperationKind::AddMember, true),
        spec::<NoParameters>(OperationKind::Decommission, true),
        spec::<Upgrade>(OperationKind::Upgrade, false),
        spec::<Restore>(OperationKind::Restore, false),
        spec::<ReplaceMember>(OperationKind::ReplaceMember, false),
    ]
}

#[cfg(test)]
mod tests {
    use gpuaas_planner::{Manifest, OperationRequest, PlanRefusal};
    use serde_json::{Value, json};

    use super::*;
    use crate::manifest::manifest;

    fn request(kind: OperationKind, parameters: Value) -> OperationRequest {
        OperationRequest { kind, parameters: parameters.as_object().cloned().expect("an object") }
    }

    /// The manifest as if every operation could be planned.
    fn available() -> Manifest {
        let mut manifest = manifest();
        manifest.operations.iter_mut().for_each(|spec| spec.is_available = true);
        manifest
    }

    #[test]
    fn every_operation_of_the_manifest_is_checked_and_parsed() {
        let by: AllocationId = "0198c0de-7a3b-7c11-9b54-0242ac120006".parse().expect("an id");
        let of = |kind: OperationKind| match kind {
            OperationKind::Upgrade => (
                json!({ "version": "v1.37.1+rke2r1" }),
                Operation::Upgrade(Upgrade { version: "v1.37.1+rke2r1".to_owned() }),
            ),
            OperationKind::Restore => {
                (json!({ "snapshot": "nightly-1" }), Operation::Restore(Restore { snapshot: "nightly-1".to_owned() }))
            }
            OperationKind::ReplaceMember => {
                let member = "agent-2".to_owned();
                (json!({ "member": "agent-2", "by": by }), Operation::ReplaceMember(ReplaceMember { member, by }))
            }
            OperationKind::Deploy => (json!({}), Operation::Deploy(NoParameters {})),
            OperationKind::AddMember => (json!({}), Operation::AddMember(NoParameters {})),
            OperationKind::Decommission => (json!({}), Operation::Decommission(NoParameters {})),
            other => panic!("{other} has no example"),
        };
        for spec in specs() {
            let (parameters, wanted) = of(spec.kind);
            let request = request(spec.kind, parameters);
            assert_eq!(request.check(&available()), Ok(()), "{}", spec.kind);
            assert_eq!(request.parse(), Ok(wanted));
        }
    }

    #[test]
    fn parameters_of_other_forms_are_refused() {
        for (kind, parameters) in [
            (OperationKind::Decommission, json!({ "force": true })),
            (OperationKind::Upgrade, json!({})),
            (OperationKind::Upgrade, json!({ "version": "v1; reboot" })),
            (OperationKind::Restore, json!({ "snapshot": "../etc" })),
            (OperationKind::ReplaceMember, json!({ "member": "agent-2", "by": "gpu-2" })),
        ] {
            let refused = request(kind, parameters.clone()).check(&available());
            assert!(matches!(refused, Err(PlanRefusal::Parameters(_))), "{kind} {parameters}");
        }
    }
}

//! The operations of the app with their parameters, as the manifest describes them and as plans take them.

use gpuaas_model::{AllocationId, OperationKind};
use gpuaas_planner::OperationSpec;
use schemars::JsonSchema;
use serde::Deserialize;
use uuid::Uuid;

use crate::schema;

/// Longest time that a drain may take: one day.
pub(crate) const DRAIN_SECONDS_MAX: u64 = 24 * 3_600;
/// Time that a drain may take by default. kubectl waits without end; here everything has a deadline.
pub(crate) const DRAIN_SECONDS_DEFAULT: u64 = 600;

/// Most members that one decommission gives up: as many as the API names in one request.
const GIVEN_UP_MAX: usize = 64;

/// A requested operation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", content = "parameters", rename_all = "snake_case")]
pub(crate) enum Operation {
    /// Deploys the members of the workload.
    Deploy(NoParameters),
    /// Adds agents.
    AddMember(NoParameters),
    /// Moves the pods of an agent to others, and keeps new ones away.
    DrainMember(DrainMember),
    /// Lets a drained agent accept pods again.
    UncordonMember(UncordonMember),
    /// Removes an agent.
    RemoveMember(RemoveMember),
    /// Stops RKE2 on every member.
    Stop(NoParameters),
    /// Starts RKE2 on every member.
    Start(NoParameters),
    /// Corrects what deviates without restarting anything.
    Reconcile(NoParameters),
    /// Restarts and reinstalls RKE2 within a scope.
    Repair(Repair),
    /// Removes every member.
    Decommission(Decommission),
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
#[schemars(extend("examples" = [{}]))]
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

/// Parameters of a decommission.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("examples" = [{}, { "give_up": ["agent-2"], "reason": "the machine burnt down" }]))]
pub(crate) struct Decommission {
    /// Names of the members that are removed without proof that nothing of them is left on their nodes.
    #[serde(default)]
    #[schemars(length(max = GIVEN_UP_MAX), inner(length(min = 1, max = 64), regex(pattern = "^[a-z0-9-]+$")))]
    pub(crate) give_up: Vec<String>,
    /// Why, in one line; required with `give_up`.
    #[serde(default)]
    #[schemars(length(min = 1, max = 500))]
    pub(crate) reason: Option<String>,
}

/// Parameters of a removal.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("examples" = [
    { "member": "agent-2" },
    { "member": "agent-2", "give_up": true, "reason": "the machine burnt down" },
]))]
pub(crate) struct RemoveMember {
    /// Name of the member, for example `agent-2`.
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[a-z0-9-]+$"))]
    pub(crate) member: String,
    /// Also evict pods that no controller replaces, and remove the last ready agent.
    #[serde(default)]
    pub(crate) force: bool,
    /// Also evict pods with `emptyDir` volumes; the data in these volumes is lost.
    #[serde(default)]
    pub(crate) delete_empty_dir_data: bool,
    /// Longest time for the drain, in seconds; 600 by default.
    #[serde(default = "drain_seconds")]
    #[schemars(range(min = 1, max = DRAIN_SECONDS_MAX))]
    pub(crate) timeout_seconds: u64,
    /// Remove the member from the cluster without its node, which is unreachable or could not be cleaned. The node blocks deployments until
    /// an inspection finds it clean.
    #[serde(default)]
    pub(crate) give_up: bool,
    /// Why, in one line; required with `give_up`.
    #[serde(default)]
    #[schemars(length(min = 1, max = 500))]
    pub(crate) reason: Option<String>,
}

/// Parameters of a drain.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("examples" = [{ "member": "agent-2" }]))]
pub(crate) struct DrainMember {
    /// Name of the member, for example `agent-2`.
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[a-z0-9-]+$"))]
    pub(crate) member: String,
    /// Also evict pods that no controller replaces, and drain the last ready agent.
    #[serde(default)]
    pub(crate) force: bool,
    /// Also evict pods with `emptyDir` volumes; the data in these volumes is lost.
    #[serde(default)]
    pub(crate) delete_empty_dir_data: bool,
    /// Longest time for the drain, in seconds; 600 by default.
    #[serde(default = "drain_seconds")]
    #[schemars(range(min = 1, max = DRAIN_SECONDS_MAX))]
    pub(crate) timeout_seconds: u64,
}

/// Parameters of an uncordon.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("examples" = [{ "member": "agent-2" }]))]
pub(crate) struct UncordonMember {
    /// Name of the member, for example `agent-2`.
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[a-z0-9-]+$"))]
    pub(crate) member: String,
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
    /// Also evict pods that no controller replaces.
    #[serde(default)]
    pub(crate) force: bool,
    /// Also evict pods with `emptyDir` volumes; the data in these volumes is lost.
    #[serde(default)]
    pub(crate) delete_empty_dir_data: bool,
    /// Longest time for the drain of the old member, in seconds; 600 by default.
    #[serde(default = "drain_seconds")]
    #[schemars(range(min = 1, max = DRAIN_SECONDS_MAX))]
    pub(crate) timeout_seconds: u64,
}

/// Parameters of a repair.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("examples" = [{ "scope": "member", "member": "agent-2" }, { "scope": "control_plane" }]))]
pub(crate) struct Repair {
    /// What the repair may restart and reinstall.
    pub(crate) scope: RepairScope,
    /// Name of the member; only with scope `member`.
    #[serde(default)]
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[a-z0-9-]+$"))]
    pub(crate) member: Option<String>,
}

/// What a repair may restart and reinstall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RepairScope {
    /// One member.
    Member,
    /// The server.
    ControlPlane,
    /// The server, and then every agent.
    WholeRuntime,
}

/// What a drain may evict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Eviction {
    /// Pods that no controller replaces.
    pub(crate) force: bool,
    /// Pods with `emptyDir` volumes.
    pub(crate) delete_empty_dir_data: bool,
    /// Longest time for the drain, in seconds.
    pub(crate) timeout_seconds: u64,
}

impl Operation {
    /// Returns what the operation may evict; nothing extraordinary for operations without a drain.
    pub(crate) fn eviction(&self) -> Eviction {
        match self {
            Self::DrainMember(DrainMember { force, delete_empty_dir_data, timeout_seconds, .. })
            | Self::RemoveMember(RemoveMember { force, delete_empty_dir_data, timeout_seconds, .. })
            | Self::ReplaceMember(ReplaceMember { force, delete_empty_dir_data, timeout_seconds, .. }) => Eviction {
                force: *force,
                delete_empty_dir_data: *delete_empty_dir_data,
                timeout_seconds: *timeout_seconds,
            },
            Self::Deploy(_)
            | Self::AddMember(_)
            | Self::UncordonMember(_)
            | Self::Stop(_)
            | Self::Start(_)
            | Self::Reconcile(_)
            | Self::Repair(_)
            | Self::Decommission(_)
            | Self::Upgrade(_)
            | Self::Restore(_) => Eviction::default(),
        }
    }
}

const fn drain_seconds() -> u64 {
    DRAIN_SECONDS_DEFAULT
}

/// Returns the operations for the manifest.
pub(crate) fn specs() -> Vec<OperationSpec> {
    fn spec<T: JsonSchema>(kind: OperationKind, is_available: bool) -> OperationSpec {
        OperationSpec { kind, parameters_schema: schema::of::<T>(), is_available }
    }
    vec![
        spec::<NoParameters>(OperationKind::Deploy, true),
        spec::<NoParameters>(OperationKind::AddMember, true),
        spec::<DrainMember>(OperationKind::DrainMember, true),
        spec::<UncordonMember>(OperationKind::UncordonMember, true),
        spec::<RemoveMember>(OperationKind::RemoveMember, true),
        spec::<ReplaceMember>(OperationKind::ReplaceMember, true),
        spec::<NoParameters>(OperationKind::Stop, true),
        spec::<NoParameters>(OperationKind::Start, true),
        spec::<NoParameters>(OperationKind::Reconcile, true),
        spec::<Repair>(OperationKind::Repair, true),
        spec::<Decommission>(OperationKind::Decommission, true),
        spec::<Upgrade>(OperationKind::Upgrade, false),
        spec::<Restore>(OperationKind::Restore, false),
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
                let (member, force, delete_empty_dir_data) = ("agent-2".to_owned(), false, false);
                let timeout_seconds = DRAIN_SECONDS_DEFAULT;
                let of = ReplaceMember { member, by, force, delete_empty_dir_data, timeout_seconds };
                (json!({ "member": "agent-2", "by": by }), Operation::ReplaceMember(of))
            }
            OperationKind::DrainMember => {
                let (member, timeout_seconds) = ("agent-2".to_owned(), 30);
                let of = DrainMember { member, force: true, delete_empty_dir_data: true, timeout_seconds };
                let parameters =
                    json!({ "member": "agent-2", "force": true, "delete_empty_dir_data": true, "timeout_seconds": 30 });
                (parameters, Operation::DrainMember(of))
            }
            OperationKind::RemoveMember => {
                let (member, timeout_seconds) = ("agent-2".to_owned(), DRAIN_SECONDS_DEFAULT);
                let (force, delete_empty_dir_data, give_up, reason) = (false, false, false, None);
                let of = RemoveMember { member, force, delete_empty_dir_data, timeout_seconds, give_up, reason };
                (json!({ "member": "agent-2" }), Operation::RemoveMember(of))
            }
            OperationKind::UncordonMember => {
                let member = "agent-2".to_owned();
                (json!({ "member": "agent-2" }), Operation::UncordonMember(UncordonMember { member }))
            }
            OperationKind::Repair => {
                let repair = Repair { scope: RepairScope::Member, member: Some("agent-2".to_owned()) };
                (json!({ "scope": "member", "member": "agent-2" }), Operation::Repair(repair))
            }
            OperationKind::Stop => (json!({}), Operation::Stop(NoParameters {})),
            OperationKind::Start => (json!({}), Operation::Start(NoParameters {})),
            OperationKind::Reconcile => (json!({}), Operation::Reconcile(NoParameters {})),
            OperationKind::Deploy => (json!({}), Operation::Deploy(NoParameters {})),
            OperationKind::AddMember => (json!({}), Operation::AddMember(NoParameters {})),
            OperationKind::Decommission => {
                let (give_up, reason) = (vec!["agent-2".to_owned()], Some("it burnt down".to_owned()));
                let parameters = OperationRequest::giving_up(&give_up, "it burnt down").parameters;
                (parameters.into(), Operation::Decommission(Decommission { give_up, reason }))
            }
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
            (OperationKind::Decommission, json!({ "give_up": "agent-2", "reason": "it burnt down" })),
            (OperationKind::RemoveMember, json!({ "member": "agent-2", "give_up": true, "reason": "" })),
            (OperationKind::DrainMember, json!({ "member": "agent-2", "give_up": true })),
            (OperationKind::Upgrade, json!({})),
            (OperationKind::Upgrade, json!({ "version": "v1; reboot" })),
            (OperationKind::Restore, json!({ "snapshot": "../etc" })),
            (OperationKind::ReplaceMember, json!({ "member": "agent-2", "by": "gpu-2" })),
            (OperationKind::DrainMember, json!({ "member": "agent-2", "timeout_seconds": 0 })),
            (OperationKind::DrainMember, json!({ "member": "../agent-2" })),
            (OperationKind::Repair, json!({ "scope": "everything" })),
            (OperationKind::Stop, json!({ "force": true })),
        ] {
            let refused = request(kind, parameters.clone()).check(&available());
            assert!(matches!(refused, Err(PlanRefusal::Parameters(_))), "{kind} {parameters}");
        }
    }
}

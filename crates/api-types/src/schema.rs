//! Values that the OpenAPI document lists as enumerations. The Rust shapes keep them as text, so that a client reads the values of a newer
//! control plane.

use gpuaas_model::{self as model, Role as AnyRole};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

/// Defines a component of the document for each name: `NAME "DESCRIPTION" = VALUES`.
macro_rules! enumerations {
    ($($name:ident $description:literal = $values:expr;)*) => {$(
        pub(crate) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let values: Vec<&'static str> = $values.into_iter().collect();
                let text = ObjectBuilder::new().schema_type(Type::String).description(Some($description));
                text.enum_values(Some(values)).into()
            }
        }

        impl ToSchema for $name {}
    )*};
}

/// Expands to the spellings of a type of the model.
macro_rules! all {
    ($values:ident) => {
        model::$values::ALL.iter().map(|value| value.as_str())
    };
}

enumerations! {
    ActorType "Type of an actor in audit records." = all!(ActorType);
    AllocationState "State of an allocation." = all!(AllocationState);
    ArchiveKind "Kind of an archive's entries." = all!(ArchiveKind);
    AuditAction "Action, `noun.verb`." = all!(AuditAction);
    AuditResult "Result of an action." = all!(AuditResult);
    ChainDefectKind "How the audit differs from its seals." = all!(ChainDefectKind);
    ChainResult "Result of a verification of the audit." = all!(ChainResult);
    Connectivity "Connection of an agent." = all!(Connectivity);
    EventKind "Kind of an event." = all!(EventKind);
    Health "Health of a workload or member; `none` if there is nothing to judge." = all!(Health);
    Lifecycle "State of a workload." = all!(Lifecycle);
    MemberState "State of a member." = all!(MemberStateName);
    NodeState "State of a node." = all!(NodeState);
    OperationKind "Kind of an operation." = all!(OperationKind);
    OperationState "State of an operation." = all!(OperationState);
    Permission "A permission, as `x-permission` of operations names it." = all!(Permission);
    Recovery "Available recovery of a workload." = all!(Recovery);
    Role "Role of a token." = all!(Role);
    ProjectRole "Role inside one project." =
        AnyRole::ALL.iter().filter(|role| !role.is_of_platform()).map(|role| role.as_str());
    SessionProof "Proof with which a browser's session began." = all!(SessionProof);
    SigningKeyState "State of a signing key." = all!(KeyState);
    StepState "State of a step." = all!(StepState);
    TaskState "State of a task." = all!(TaskState);
    TaskType "Type of a task." = all!(TaskType);
    WaitingFrom "Who has to act before a wait ends." = all!(WaitingFrom);
    WorkloadAction "Action on a workload: the kind of an operation, `resume` or `cancel`." =
        model::WorkloadAction::all().map(model::WorkloadAction::as_str);

    AccessKindName "Kind of credential for a cluster." = ["direct", "break-glass"];
    AppStatus "`published` once a release is imported." = ["draft", "published"];
    AuthorityState "State of a certificate authority." = ["staged", "active", "grace", "retired"];
    ClusterRole "Role in a cluster." = ["cluster-admin", "cluster-view"];
    ClockState "Time synchronization of a machine." =
        ["synchronized", "not_yet", "no_time_service", "by_machine", "unknown"];
    ReportedHealth "Health of a member that a controller can report." = ["progressing", "healthy", "degraded", "failed"];
    ReplicaState "State of a replica." = ["alive", "lost"];
    SealingKeyState "State of the sealing key." = ["settled", "next_taken", "rotating"];
    Section "Section of a list of workloads." = ["needs_attention", "active", "stopped", "history"];
    Severity "Severity of a finding." = ["warning", "blocking"];
    WaitingAuthorityState "State of an authority that can wait for nodes." = ["staged", "grace"];
}

//! Names that the audit uses for actors, results and actions, and for the state of its chain.

use crate::state::text_enum;

text_enum! {
    /// Kind of actor.
    ActorType {
        /// A person or program with an API token.
        Principal = "principal",
        /// A node's agent.
        Node = "node",
        /// The control plane itself.
        ControlPlane = "control_plane",
    }
}

text_enum! {
    /// Outcome of an audited action.
    AuditResult {
        /// Done, or accepted and durable.
        Accepted = "accepted",
        /// What was accepted earlier has ended with success.
        Succeeded = "succeeded",
        /// Refused.
        Refused = "refused",
        /// Attempted and failed.
        Failed = "failed",
    }
}

text_enum! {
    /// Result of a verification of the audit.
    ChainResult {
        /// Every record and every seal is as it was written.
        Intact = "intact",
        /// A record or a seal is not as it was written.
        Broken = "broken",
    }
}

text_enum! {
    /// How the audit differs from its seals.
    ChainDefectKind {
        /// A record or a seal has another content or place.
        Changed = "changed",
        /// A record or a seal is missing.
        Missing = "missing",
        /// There is a record that was not written when its neighbours were sealed, or above the counter.
        Added = "added",
        /// A seal is not signed by a key of this control plane.
        Signature = "signature",
    }
}

text_enum! {
    /// Every audited action, named `noun.verb`. Seals of the audit cover these names, and those of results, actor types and roles: one that
    /// was released is never renamed.
    AuditAction {
        /// A backup copied all rows, the artifacts and, if it is stored with them, the sealing key.
        ServerBackup = "server.backup",
        /// A backup was restored.
        ServerRestore = "server.restore",
        /// An operator continued with a database that lost history, or whose history cannot be proven complete.
        ServerHistoryAccept = "server.history_accept",
        /// Tokens, signing keys and node identities that a backup or an older database restored were revoked.
        ServerCredentialsEnd = "server.credentials_end",
        /// The one-time token of the first administrator was exchanged for a platform admin's token.
        AdminBootstrap = "admin.bootstrap",
        /// A one-time token for a new first administrator was created on the control plane's machine.
        AdminRecover = "admin.recover",
        /// Many change requests were refused within a short time; one record counts them all.
        RequestsRefuse = "requests.refuse",
        /// History was written to the artifact store before it is deleted from the database.
        ArchiveCreate = "archive.create",
        /// The chain of the audit was verified.
        AuditVerify = "audit.verify",
        /// A project was created.
        ProjectCreate = "project.create",
        /// An empty project was deleted.
        ProjectDelete = "project.delete",
        /// A token was issued.
        TokenCreate = "token.create",
        /// A token was revoked.
        TokenRevoke = "token.revoke",
        /// A browser signed in.
        SessionCreate = "session.create",
        /// A browser signed out, or its session was revoked.
        SessionRevoke = "session.revoke",
        /// A one-time sign-in link was issued.
        SignInLinkCreate = "sign_in_link.create",
        /// A service account was created.
        ServiceAccountCreate = "service_account.create",
        /// A service account was deleted.
        ServiceAccountDelete = "service_account.delete",
        /// A new task-signing key was requested.
        KeysRotate = "keys.rotate",
        /// A task-signing key became active.
        KeyActivate = "key.activate",
        /// Another key replaced the active task-signing key.
        KeySupersede = "key.supersede",
        /// The last task signed with the key ended.
        KeyRetire = "key.retire",
        /// A task-signing key was revoked.
        KeyRevoke = "key.revoke",
        /// A replica loaded the next sealing key.
        SealingKeyTake = "sealing_key.take",
        /// The next sealing key was put into use.
        SealingKeyRotate = "sealing_key.rotate",
        /// All rows are sealed with the current sealing key.
        SealingKeyFinish = "sealing_key.finish",
        /// A rotation of the certificate authority was requested.
        AuthorityRotate = "authority.rotate",
        /// An operator continued a rotation without the nodes that blocked it.
        AuthorityForce = "authority.force",
        /// An authority began to issue certificates.
        AuthorityActivate = "authority.activate",
        /// Another authority replaced the issuing one.
        AuthoritySupersede = "authority.supersede",
        /// The authority's certificates became invalid and its key was erased.
        AuthorityRetire = "authority.retire",
        /// A node was registered.
        NodeRegister = "node.register",
        /// An enrollment token was issued.
        NodeEnrollmentCreate = "node.enrollment_create",
        /// An agent redeemed an enrollment token.
        NodeEnroll = "node.enroll",
        /// An agent's certificate was renewed.
        NodeRenew = "node.renew",
        /// A no-op task was sent to a node.
        NodePing = "node.ping",
        /// A node inspection was requested.
        NodeInspect = "node.inspect",
        /// A safe fix was sent to a node.
        NodeFix = "node.fix",
        /// A node was passed to the reimage hook.
        NodeReimage = "node.reimage",
        /// An operator put a node back into use.
        NodeReset = "node.reset",
        /// A node was removed from use permanently.
        NodeRetire = "node.retire",
        /// A retired node was deleted.
        NodeDelete = "node.delete",
        /// A node was allocated to a project.
        AllocationCreate = "allocation.create",
        /// An allocation was released.
        AllocationRelease = "allocation.release",
        /// A release was imported.
        ArtifactImport = "artifact.import",
        /// A workload was deployed.
        WorkloadDeploy = "workload.deploy",
        /// A member was added.
        WorkloadAddMember = "workload.add_member",
        /// A workload was decommissioned.
        WorkloadDecommission = "workload.decommission",
        /// A failed operation was resumed.
        WorkloadResume = "workload.resume",
        /// A workload's controller reported another health of members.
        WorkloadReport = "workload.report",
        /// An operation with parameters was requested.
        OperationStart = "operation.start",
        /// An operation was cancelled.
        OperationCancel = "operation.cancel",
        /// A kubeconfig was delivered.
        AccessDeliver = "access.deliver",
        /// A kubeconfig was revoked.
        AccessRevoke = "access.revoke",
        /// A member's journal was read through the platform.
        LogsRead = "logs.read",
        /// A task was signed and recorded. It is sent after that.
        TaskDispatch = "task.dispatch",
        /// A task ended on a node.
        TaskComplete = "task.complete",
        /// A node read a secret of one of its tasks.
        SecretRead = "secret.read",
    }
}

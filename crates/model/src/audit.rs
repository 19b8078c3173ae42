//! What the audit calls things.

use crate::state::text_enum;

text_enum! {
    /// Who acted.
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
    /// How it ended.
    AuditResult {
        /// Done, or accepted and now durable.
        Accepted = "accepted",
        /// Refused.
        Refused = "refused",
        /// Tried and failed.
        Failed = "failed",
    }
}

text_enum! {
    /// Every audited action, `noun.verb`.
    AuditAction {
        /// All rows, artifacts and, where it lies with them, the sealing key were copied out.
        ServerBackup = "server.backup",
        /// A backup was restored.
        ServerRestore = "server.restore",
        /// An operator went on with a history that went back, or of which nothing tells whether it did.
        ServerHistoryAccept = "server.history_accept",
        /// Tokens, signing keys and node identities that a backup or an older database brought back were ended.
        ServerCredentialsEnd = "server.credentials_end",
        /// The one-time token of the first administrator was exchanged for a platform admin's token.
        AdminBootstrap = "admin.bootstrap",
        /// A one-time token for a new first administrator was made on the control plane's own machine.
        AdminRecover = "admin.recover",
        /// Changes were asked for and refused, so many at once that they are recorded together.
        RequestsRefuse = "requests.refuse",
        /// History was written to the artifact store, to be deleted from the database.
        ArchiveCreate = "archive.create",
        /// A project was created.
        ProjectCreate = "project.create",
        /// A token was issued.
        TokenCreate = "token.create",
        /// A token was withdrawn.
        TokenRevoke = "token.revoke",
        /// A service account was made.
        ServiceAccountCreate = "service_account.create",
        /// A service account was deleted.
        ServiceAccountDelete = "service_account.delete",
        /// A new task-signing key was asked for.
        KeysRotate = "keys.rotate",
        /// A task-signing key began to sign.
        KeyActivate = "key.activate",
        /// Another took its place.
        KeySupersede = "key.supersede",
        /// The last task that it signed has ended.
        KeyRetire = "key.retire",
        /// It is accepted no more.
        KeyRevoke = "key.revoke",
        /// A replica took the sealing key that is to follow.
        SealingKeyTake = "sealing_key.take",
        /// The next sealing key was put into use.
        SealingKeyRotate = "sealing_key.rotate",
        /// The last row has come under the sealing key in use.
        SealingKeyFinish = "sealing_key.finish",
        /// A successor of the authority was asked for.
        AuthorityRotate = "authority.rotate",
        /// An operator had a rotation go on without the nodes that held it up.
        AuthorityForce = "authority.force",
        /// An authority began to issue certificates.
        AuthorityActivate = "authority.activate",
        /// Another took its place.
        AuthoritySupersede = "authority.supersede",
        /// Its certificates count no more, and its key was erased.
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
        /// A node was asked what it is and whether it is fit.
        NodeInspect = "node.inspect",
        /// A safe fix was sent to a node.
        NodeFix = "node.fix",
        /// A node was handed to the reimage hook.
        NodeReimage = "node.reimage",
        /// An operator put a node back into use.
        NodeReset = "node.reset",
        /// A node was allocated to a project.
        AllocationCreate = "allocation.create",
        /// An allocation was given back.
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
        /// An operation was cancelled.
        OperationCancel = "operation.cancel",
        /// A kubeconfig was delivered.
        AccessDeliver = "access.deliver",
        /// A kubeconfig was withdrawn.
        AccessRevoke = "access.revoke",
        /// A journal was read through the platform.
        LogsRead = "logs.read",
        /// A signed task was sent.
        TaskDispatch = "task.dispatch",
        /// A node ended a task.
        TaskComplete = "task.complete",
        /// A cluster was called through a tunnel.
        ClusterCall = "cluster.call",
        /// A node read a secret of its own task.
        SecretRead = "secret.read",
    }
}

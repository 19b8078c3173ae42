//! Stable error codes that clients may branch on. `docs/errors/CODE.md` explains each one.

use serde::{Deserialize, Serialize};

use crate::state::text_enum;

text_enum! {
    /// Every error code that the API, the CLI or a node returns. Fault codes of an app are in that app's fault table instead.
    Code {
        /// The token is missing, unknown, expired or revoked.
        Unauthenticated = "unauthenticated",
        /// The sign-in link or token does not begin a session.
        SignInInvalid = "sign_in_invalid",
        /// A change by a browser's session lacks the header that proves that the shell sent it.
        CsrfMissing = "csrf_missing",
        /// Another site made the browser send the request.
        CrossSite = "cross_site",
        /// The token is valid but lacks the permission.
        Forbidden = "forbidden",
        /// The one-time token of the first administrator can only be exchanged.
        OneTimeTokenOnly = "one_time_token_only" | "bootstrap_only",
        /// The one-time token of the first administrator was already exchanged or withdrawn.
        OneTimeTokenUsed = "one_time_token_used" | "bootstrap_spent",
        /// More requests than the rate limit allows.
        RateLimited = "rate_limited",
        /// The object does not exist or is not visible to this caller.
        NotFound = "not_found",
        /// Several objects have an id that begins with the given characters.
        IdAmbiguous = "id_ambiguous",
        /// The route exists but does not support the method.
        MethodNotAllowed = "method_not_allowed",
        /// The body does not match the route's schema.
        BodyInvalid = "body_invalid",
        /// The body is longer than the named limit.
        BodyTooLarge = "body_too_large",
        /// The body did not arrive within the named time limit.
        BodyTooSlow = "body_too_slow",
        /// The request's content type is not JSON.
        MediaTypeUnsupported = "media_type_unsupported",
        /// A field has an invalid value.
        FieldInvalid = "field_invalid",
        /// A query parameter has an invalid value.
        QueryInvalid = "query_invalid",
        /// A header that must occur exactly once is missing or repeated.
        HeadersInvalid = "headers_invalid",
        /// The idempotency key was already used with a different body.
        IdempotencyKeyReused = "idempotency_key_reused",
        /// The requested events were removed from the database; archives hold them.
        EventsArchived = "events_archived" | "events_gone",
        /// The object changed since the caller read it.
        PreconditionFailed = "precondition_failed",
        /// The name is already in use.
        NameTaken = "name_taken",
        /// Another mutating operation is in progress on this workload.
        OperationInProgress = "operation_in_progress",
        /// The object's state does not allow the request, or another request changed the object at the same time.
        StateConflict = "state_conflict",
        /// A cluster keeps its only server until it is decommissioned.
        LastServer = "last_server",
        /// The last ready agent is drained or removed only with `force`.
        LastAgent = "last_agent",
        /// The workload has no member of that name, or its state does not allow the request.
        MemberUnknown = "member_unknown",
        /// The operation that was to bring a member up has ended, and a later one did not include the member.
        MemberLeftOut = "member_left_out",
        /// The request would change nothing.
        NothingToDo = "nothing_to_do",
        /// The plan is no longer the one whose digest the request names.
        PlanChanged = "plan_changed",
        /// The app is never restarted as a whole; repair and reconcile say what they do.
        RestartUnsupported = "restart_unsupported",
        /// The report is older than the workload's present generation, or than an earlier report.
        ReportStale = "report_stale",
        /// The workload's controller reported that a member is degraded or failed.
        ControllerReported = "controller_reported",
        /// The placement is invalid; the response lists the reasons.
        PlacementInvalid = "placement_invalid",
        /// The server allocation is missing.
        ServerRequired = "server_required",
        /// The request names one allocation twice.
        AllocationRepeated = "allocation_repeated",
        /// The project has no such allocation.
        AllocationUnknown = "allocation_unknown",
        /// The allocation is not active.
        AllocationInactive = "allocation_inactive",
        /// The allocation's node is unreachable.
        AllocationUnreachable = "allocation_unreachable",
        /// Known findings of the allocation's node block a deployment.
        AllocationBlocked = "allocation_blocked",
        /// Another workload uses the allocation.
        AllocationInUse = "allocation_in_use",
        /// A member was given up on the allocation's node, and nothing has shown since that the node is clean.
        AllocationUnproven = "allocation_unproven",
        /// The app does not allow this many members.
        TooManyMembers = "too_many_members",
        /// The app does not offer this version, or its artifacts are not imported.
        VersionUnknown = "version_unknown",
        /// The app does not accept a setting; the response gives the reason.
        ConfigInvalid = "config_invalid" | "config_refused",
        /// The node's agent does not support a task type that the plan needs.
        AgentTooOld = "agent_too_old",
        /// The maximum number of these objects exists already.
        LimitReached = "limit_reached",
        /// A running replica has a different version.
        ReplicaVersionsDiffer = "replica_versions_differ",
        /// The node is already allocated or not fit to be allocated.
        NodeUnavailable = "node_unavailable",
        /// There is no safe fix with that name.
        FixUnknown = "fix_unknown",
        /// The project does not hold the node in question, or not for this workload.
        NodeNotAllocated = "node_not_allocated" | "node_not_held",
        /// Another workload owns the host that a task is for.
        HostInUse = "host_in_use" | "host_owned",
        /// A step requested an illegal state transition.
        IllegalTransition = "illegal_transition",
        /// The node already runs its maximum number of tasks.
        NodeBusy = "node_busy",
        /// The node has no open channel.
        NodeUnreachable = "node_unreachable",
        /// The artifact does not match its digest.
        ArtifactDigestMismatch = "artifact_digest_mismatch",
        /// The artifact ends early.
        ArtifactTruncated = "artifact_truncated",
        /// The artifact's archive contains a path outside the archive.
        ArtifactUnsafePath = "artifact_unsafe_path",
        /// The release's checksum file does not list a required file.
        ChecksumMissing = "checksum_missing" | "artifact_unlisted",
        /// The release lacks a required file.
        ArtifactMissing = "artifact_missing",
        /// No digest and no trusted signature verifies the release.
        ReleaseUnverified = "release_unverified",
        /// The release cannot be read from its source.
        ReleaseUnreachable = "release_unreachable",
        /// The enrollment token was already redeemed.
        EnrollmentUsed = "enrollment_used",
        /// The enrollment token is older than 15 minutes.
        EnrollmentExpired = "enrollment_expired",
        /// The enrollment token belongs to another node or control plane.
        EnrollmentTokenMismatch = "enrollment_token_mismatch" | "enrollment_foreign",
        /// The text is not an enrollment token.
        EnrollmentInvalid = "enrollment_invalid",
        /// The key of a certificate request was already certified before.
        KeyReused = "key_reused",
        /// The machine returned from a tenant with the machine id that it had then, so it was not reimaged.
        MachineNotReimaged = "machine_not_reimaged",
        /// The machine returned from a tenant without the proof value that only the reimage hook received.
        ReimageUnverified = "reimage_unverified" | "reimage_unproven",
        /// No reimage hook is configured.
        ReimageHookMissing = "reimage_hook_missing",
        /// The reimage hook failed.
        ReimageHookFailed = "reimage_hook_failed",
        /// This control plane has no agent packages to install on machines.
        PackagesMissing = "packages_missing",
        /// The node's clock differs from the control plane's by more than the named limit.
        ClockSkewed = "clock_skewed",
        /// The node's certificate has expired: the node can renew it and do nothing else.
        CertificateExpired = "certificate_expired",
        /// A task envelope has an invalid signature, key or format.
        EnvelopeInvalid = "envelope_invalid",
        /// A task envelope is for another node, control plane or enrollment epoch.
        EnvelopeRecipientMismatch = "envelope_recipient_mismatch" | "envelope_foreign",
        /// A task envelope arrived outside its validity period: after its end, or long before its start.
        EnvelopeExpired = "envelope_expired",
        /// A task envelope carries a lower fence than one seen before.
        FenceTooLow = "fence_too_low",
        /// A task envelope is an older attempt of its step than one seen before.
        StaleAttempt = "stale_attempt" | "attempt_too_low",
        /// The agent does not support the task type, or not in that schema version.
        TaskUnknown = "task_unknown",
        /// The parameters do not match the task type.
        TaskParamsInvalid = "task_params_invalid",
        /// The node's ledger is missing, damaged or an older copy: its agent accepts no tasks.
        AgentLedgerDamaged = "agent_ledger_damaged",
        /// The node's identity file is unusable: its agent does not start.
        AgentIdentityDamaged = "agent_identity_damaged",
        /// The agent died while it ran the task.
        TaskInterrupted = "task_interrupted",
        /// The node's result does not match the task type or exceeds its size limit.
        TaskResultInvalid = "task_result_invalid" | "answer_invalid",
        /// The task did not end by its deadline.
        TaskTimedOut = "task_timed_out",
        /// The task was cancelled.
        TaskCancelled = "task_cancelled",
        /// The deployment or removal of the workload was cancelled.
        OperationCancelled = "operation_cancelled",
        /// A workload deviates in a way that no reconciliation corrects, or that came back after each of them.
        DriftPersists = "drift_persists",
        /// The host rejected an operation of the task (permission, missing path).
        HostFailed = "host_failed",
        /// The disk of the control plane, the database or the node is full.
        DiskFull = "disk_full",
        /// The cluster cannot be reached or gives unexpected answers.
        ClusterUnreachable = "cluster_unreachable",
        /// The cluster is not ready for the request yet.
        ClusterNotReady = "cluster_not_ready",
        /// The cluster has no KubeNode of that name.
        KubeNodeMissing = "kube_node_missing",
        /// The KubeNode of a member in service is not Ready.
        KubeNodeNotReady = "kube_node_not_ready",
        /// Pods on a KubeNode are evicted only with a flag that the drain does not have.
        DrainRefused = "drain_refused",
        /// The time of a drain passed while a budget held pods or evicted pods had not ended.
        DrainBlocked = "drain_blocked",
        /// The workload does not offer a kubeconfig of that kind.
        AccessKindUnknown = "access_kind_unknown",
        /// The data directory was in use before, but the store holds no platform.
        StoreMissing = "store_missing",
        /// The database's own files are damaged.
        StoreDamaged = "store_damaged",
        /// A row of the store cannot be read.
        RowUnreadable = "row_unreadable",
        /// The sealing key's file is missing.
        SealingKeyMissing = "sealing_key_missing",
        /// The sealing key's file does not contain a sealing key.
        SealingKeyInvalid = "sealing_key_invalid",
        /// A record or a seal of the audit is not as it was written.
        AuditChainBroken = "audit_chain_broken",
        /// The store was written by a newer version.
        StoreTooNew = "store_too_new",
        /// A shared store holds sealed secrets, but no sealing key was given.
        SealingKeyRequired = "sealing_key_required",
        /// A running replica lacks the next sealing key.
        SealingKeyNotOnAllReplicas = "sealing_key_not_on_all_replicas" | "sealing_key_not_everywhere",
        /// The rows are sealed with a key that this process does not hold.
        SealingKeyMismatch = "sealing_key_mismatch",
        /// The database lacks acknowledged changes: the control plane accepts no change until an operator decides.
        HistoryRolledBack = "history_rolled_back" | "history_went_back",
        /// The high-water mark of this data directory is missing, damaged or from another control plane.
        HistoryUnverified = "history_unverified" | "history_unproven",
        /// A node reports a higher fence or key set than this control plane has issued.
        NodeReportsNewerState = "node_reports_newer_state" | "node_ahead",
        /// The database connection would be unencrypted, or its server would not prove its identity.
        DatabaseUnverified = "database_unverified",
        /// The backup is incomplete or has another version's format.
        BackupInvalid = "backup_invalid",
        /// A restore was interrupted: the data directory holds a part of it.
        RestoreUnfinished = "restore_unfinished",
        /// The migration of the store to this version's schema failed.
        MigrationFailed = "migration_failed",
        /// The store is not empty; a backup can be restored only into an empty store.
        StoreNotEmpty = "store_not_empty",
        /// Another process uses the data directory.
        DataDirInUse = "data_dir_in_use",
        /// The data directory is not writable.
        DataDirNotWritable = "data_dir_not_writable",
        /// The address is in use.
        AddressInUse = "address_in_use",
        /// The control plane cannot be reached.
        ServerUnreachable = "server_unreachable",
        /// A command that destroys something was not confirmed, and there was no terminal to ask on.
        ConfirmationRequired = "confirmation_required",
        /// The awaited event did not happen within the given time.
        TimedOut = "timed_out",
        /// A defect in GPUaaS; the correlation id finds it in the log.
        Internal = "internal",
        /// Temporarily unavailable; retry.
        Unavailable = "unavailable",
    }
}

/// Exit status of the command line. Scripts may rely on these values; [`ExitStatus::TABLE`] explains each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitStatus {
    /// Success.
    Done = 0,
    /// Any other failure.
    Failed = 1,
    /// Invalid arguments.
    Usage = 2,
    /// The object does not exist.
    NotFound = 3,
    /// The request was refused before it changed anything.
    Refused = 4,
    /// The state of the object or of the machine conflicts with the request.
    Conflict = 5,
    /// Not authenticated or not permitted.
    Unauthorized = 6,
    /// The other side cannot be reached.
    Unreachable = 7,
    /// Timed out.
    TimedOut = 8,
    /// A file of the agent is damaged. Only the agent exits with this.
    Damaged = 9,
    /// Interrupted by SIGINT, for example Ctrl-C: 128 and the number of the signal, as shells report it.
    Interrupted = 130,
    /// The reader of the output closed the pipe (SIGPIPE).
    PipeClosed = 141,
}

impl ExitStatus {
    /// Every exit status with its meaning. `docs/cli.md` prints this table.
    pub const TABLE: &[(Self, &str)] = &[
        (Self::Done, "done"),
        (
            Self::Failed,
            "failed for any other reason; an awaited operation ended without success; workload diff found a difference; audit verify found a defect",
        ),
        (Self::Usage, "invalid arguments, settings or configuration file, also if the control plane finds it"),
        (Self::NotFound, "an object, a context or an error code does not exist"),
        (Self::Refused, "the request was refused for another reason before it changed anything"),
        (
            Self::Conflict,
            "the state of an object or of the machine conflicts with the request, for example a used port",
        ),
        (Self::Unauthorized, "not authenticated, or not permitted"),
        (Self::Unreachable, "the other side cannot be reached"),
        (Self::TimedOut, "timed out; the started work continues"),
        (Self::Damaged, "a file of the agent is damaged (only `gpuaas-agent`)"),
        (Self::Interrupted, "interrupted by Ctrl-C; `gpuaas server` and `gpuaas dev` stop everything and exit with 0"),
        (Self::PipeClosed, "the reader of the output closed the pipe, for example `head`"),
    ];

    /// Returns the exit status with this number.
    pub fn of(number: i32) -> Option<Self> {
        Self::TABLE.iter().map(|(status, _)| *status).find(|status| *status as i32 == number)
    }
}

impl Code {
    /// HTTP status of responses with this code.
    pub const fn status(self) -> u16 {
        match self {
            Self::BodyInvalid
            | Self::QueryInvalid
            | Self::HeadersInvalid
            | Self::IdAmbiguous
            | Self::EnrollmentInvalid
            | Self::ConfirmationRequired => 400,
            Self::Unauthenticated | Self::SignInInvalid => 401,
            Self::Forbidden
            | Self::OneTimeTokenOnly
            | Self::EnrollmentTokenMismatch
            | Self::CertificateExpired
            | Self::CsrfMissing
            | Self::CrossSite => 403,
            Self::RateLimited | Self::NodeBusy => 429,
            Self::NotFound | Self::PackagesMissing | Self::KubeNodeMissing => 404,
            Self::MethodNotAllowed => 405,
            Self::BodyTooSlow => 408,
            Self::NameTaken
            | Self::OperationInProgress
            | Self::StateConflict
            | Self::ReportStale
            | Self::AllocationInUse
            | Self::AllocationUnproven
            | Self::ClockSkewed
            | Self::NodeUnavailable
            | Self::AgentLedgerDamaged
            | Self::NodeNotAllocated
            | Self::NodeReportsNewerState
            | Self::KeyReused
            | Self::MachineNotReimaged
            | Self::ReimageUnverified
            | Self::ReimageHookMissing
            | Self::HostInUse
            | Self::IllegalTransition
            | Self::LimitReached
            | Self::ReplicaVersionsDiffer
            | Self::SealingKeyNotOnAllReplicas
            | Self::ClusterNotReady
            | Self::KubeNodeNotReady
            | Self::DataDirInUse
            | Self::RestoreUnfinished
            | Self::LastServer
            | Self::LastAgent
            | Self::MemberUnknown
            | Self::NothingToDo
            | Self::PlanChanged
            | Self::RestartUnsupported
            | Self::DrainBlocked
            | Self::AddressInUse => 409,
            Self::OneTimeTokenUsed | Self::EnrollmentUsed | Self::EnrollmentExpired | Self::EventsArchived => 410,
            Self::PreconditionFailed => 412,
            Self::BodyTooLarge => 413,
            Self::MediaTypeUnsupported => 415,
            Self::FieldInvalid
            | Self::IdempotencyKeyReused
            | Self::PlacementInvalid
            | Self::ServerRequired
            | Self::AllocationRepeated
            | Self::AllocationUnknown
            | Self::AllocationInactive
            | Self::AllocationUnreachable
            | Self::AllocationBlocked
            | Self::TooManyMembers
            | Self::VersionUnknown
            | Self::ConfigInvalid
            | Self::AgentTooOld
            | Self::FixUnknown
            | Self::DatabaseUnverified
            | Self::ArtifactDigestMismatch
            | Self::ArtifactTruncated
            | Self::ArtifactUnsafePath
            | Self::ChecksumMissing
            | Self::ArtifactMissing
            | Self::ReleaseUnverified
            | Self::ReleaseUnreachable
            | Self::EnvelopeInvalid
            | Self::EnvelopeRecipientMismatch
            | Self::EnvelopeExpired
            | Self::FenceTooLow
            | Self::StaleAttempt
            | Self::TaskUnknown
            | Self::TaskParamsInvalid
            | Self::TaskResultInvalid
            | Self::DrainRefused
            | Self::AccessKindUnknown => 422,
            Self::TaskInterrupted
            | Self::TaskCancelled
            | Self::OperationCancelled
            | Self::MemberLeftOut
            | Self::DriftPersists
            | Self::ControllerReported
            | Self::StoreTooNew
            | Self::StoreMissing
            | Self::StoreDamaged
            | Self::RowUnreadable
            | Self::AuditChainBroken
            | Self::SealingKeyMissing
            | Self::SealingKeyInvalid
            | Self::MigrationFailed
            | Self::SealingKeyRequired
            | Self::SealingKeyMismatch
            | Self::HistoryRolledBack
            | Self::HistoryUnverified
            | Self::BackupInvalid
            | Self::StoreNotEmpty
            | Self::DataDirNotWritable
            | Self::AgentIdentityDamaged
            | Self::Internal => 500,
            Self::DiskFull => 507,
            // The failure is outside the control plane.
            Self::HostFailed | Self::ReimageHookFailed | Self::ClusterUnreachable => 502,
            Self::NodeUnreachable | Self::ServerUnreachable | Self::Unavailable => 503,
            Self::TaskTimedOut | Self::TimedOut => 504,
        }
    }

    /// Exit status of a command that fails with this code, whether the command line, the control plane or the agent finds the mistake.
    pub const fn exit(self) -> ExitStatus {
        match self {
            // The other side was reached and failed.
            Self::HostFailed | Self::ReimageHookFailed => ExitStatus::Failed,
            Self::AgentIdentityDamaged => ExitStatus::Damaged,
            // The workload exists, but no member of this name.
            Self::MemberUnknown => ExitStatus::NotFound,
            // An argument that cannot be valid.
            Self::FieldInvalid
            | Self::QueryInvalid
            | Self::HeadersInvalid
            | Self::BodyInvalid
            | Self::ConfigInvalid
            | Self::FixUnknown
            | Self::AccessKindUnknown
            | Self::IdAmbiguous
            | Self::ConfirmationRequired => ExitStatus::Usage,
            _ => match self.status() {
                401 | 403 => ExitStatus::Unauthorized,
                404 => ExitStatus::NotFound,
                409 | 412 => ExitStatus::Conflict,
                400 | 405 | 410 | 413 | 415 | 422 => ExitStatus::Refused,
                502 | 503 | 507 => ExitStatus::Unreachable,
                408 | 504 => ExitStatus::TimedOut,
                _ => ExitStatus::Failed,
            },
        }
    }
}

/// An error with a stable code and an optional next step.
pub trait Coded: std::error::Error {
    /// The stable error code.
    fn code(&self) -> Code;

    /// The request field at fault, as a JSON path without the leading `$.`.
    fn field(&self) -> Option<String> {
        None
    }

    /// What the caller can do, in one sentence.
    fn next(&self) -> Option<String> {
        None
    }
}

/// One of several reasons in one error response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The field at fault, for example `agent_allocation_ids[1]`.
    pub field: String,
    /// The error code of this reason.
    pub code: Code,
    /// The problem, in one sentence.
    pub detail: String,
    /// What the caller can do, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn former_spellings_are_read_and_never_written() {
        assert_eq!("answer_invalid".parse(), Ok(Code::TaskResultInvalid));
        assert_eq!(serde_json::from_str::<Code>("\"answer_invalid\"").unwrap(), Code::TaskResultInvalid);
        assert_eq!(serde_json::to_string(&Code::TaskResultInvalid).unwrap(), "\"task_result_invalid\"");
    }

    #[test]
    fn codes_round_trip_through_text() {
        for &code in Code::ALL {
            assert_eq!(code.as_str().parse(), Ok(code));
        }
    }

    #[test]
    fn invalid_arguments_refusals_and_conflicts_have_different_exit_statuses() {
        assert_eq!(Code::FieldInvalid.exit(), ExitStatus::Usage);
        assert_eq!(Code::PlacementInvalid.exit(), ExitStatus::Refused);
        assert_eq!(Code::AllocationInUse.exit(), ExitStatus::Conflict);
        assert_eq!(Code::MemberUnknown.exit(), ExitStatus::NotFound, "as every name that does not exist");
        assert_eq!(Code::OperationInProgress.exit(), ExitStatus::Conflict);
        assert_eq!(Code::Unauthenticated.exit(), ExitStatus::Unauthorized);
        assert_eq!(Code::ServerUnreachable.exit(), ExitStatus::Unreachable);
    }
}

//! Stable error codes: what a client may branch on, and what `docs/errors/CODE.md` explains.

use serde::{Deserialize, Serialize};

use crate::state::text_enum;

text_enum! {
    /// Every code that the API, the CLI or a node answers with. Faults of an app have codes of their own, in its fault table.
    Code {
        /// No token, or one that is unknown, expired or revoked.
        Unauthenticated = "unauthenticated",
        /// A valid token without the right.
        Forbidden = "forbidden",
        /// The one-time token of the first administrator can only be exchanged.
        BootstrapOnly = "bootstrap_only",
        /// The one-time token of the first administrator was exchanged before, or withdrawn.
        BootstrapSpent = "bootstrap_spent",
        /// More requests than the pace allows.
        RateLimited = "rate_limited",
        /// No such object for this caller.
        NotFound = "not_found",
        /// The route exists, the method does not.
        MethodNotAllowed = "method_not_allowed",
        /// The body is not what the route takes.
        BodyInvalid = "body_invalid",
        /// The body is longer than the named limit.
        BodyTooLarge = "body_too_large",
        /// The body did not arrive in the time that the named limit gives it.
        BodyTooSlow = "body_too_slow",
        /// The body is not JSON by its own word.
        MediaTypeUnsupported = "media_type_unsupported",
        /// A field holds something impossible.
        FieldInvalid = "field_invalid",
        /// A query parameter holds something impossible.
        QueryInvalid = "query_invalid",
        /// A header that must be there once is missing, or there more than once.
        HeadersInvalid = "headers_invalid",
        /// The same idempotency key came with another body.
        IdempotencyKeyReused = "idempotency_key_reused",
        /// Events behind that number were removed; they are in archives.
        EventsGone = "events_gone",
        /// The object is no longer as the caller saw it.
        PreconditionFailed = "precondition_failed",
        /// The name is in use.
        NameTaken = "name_taken",
        /// Another mutating operation runs on this workload.
        OperationInProgress = "operation_in_progress",
        /// The object is in a state that does not allow it.
        StateConflict = "state_conflict",
        /// Placement cannot work; the reasons are inside.
        PlacementInvalid = "placement_invalid",
        /// The server allocation is missing.
        ServerRequired = "server_required",
        /// One allocation is named twice.
        AllocationRepeated = "allocation_repeated",
        /// No such allocation in this project.
        AllocationUnknown = "allocation_unknown",
        /// The allocation is not active.
        AllocationInactive = "allocation_inactive",
        /// The allocation's node cannot be reached.
        AllocationUnreachable = "allocation_unreachable",
        /// Another workload uses the allocation.
        AllocationInUse = "allocation_in_use",
        /// More members than the app takes.
        TooManyMembers = "too_many_members",
        /// The app does not offer this version, or its artifacts are not imported.
        VersionUnknown = "version_unknown",
        /// A setting that the app does not take, with the reason.
        ConfigRefused = "config_refused",
        /// The node's agent does not know a task type that the plan needs.
        AgentTooOld = "agent_too_old",
        /// There are as many of them as there may be.
        LimitReached = "limit_reached",
        /// Replicas of another version live.
        ReplicaVersionsDiffer = "replica_versions_differ",
        /// The node is already allocated or not fit for it.
        NodeUnavailable = "node_unavailable",
        /// There is no safe fix of that name.
        FixUnknown = "fix_unknown",
        /// The project does not hold the node that this is about, or not for this workload.
        NodeNotHeld = "node_not_held",
        /// Another workload owns the host that a task is for.
        HostOwned = "host_owned",
        /// A step asked for a change of state that cannot happen.
        IllegalTransition = "illegal_transition",
        /// The node carries out as many tasks as it takes at once.
        NodeBusy = "node_busy",
        /// The node has no channel now.
        NodeUnreachable = "node_unreachable",
        /// The artifact's bytes are not those of its digest.
        ArtifactDigestMismatch = "artifact_digest_mismatch",
        /// The artifact ends early.
        ArtifactTruncated = "artifact_truncated",
        /// The artifact's archive names a path outside of itself.
        ArtifactUnsafePath = "artifact_unsafe_path",
        /// The release's sum file does not list a file that it must.
        ArtifactUnlisted = "artifact_unlisted",
        /// The release lacks a file.
        ArtifactMissing = "artifact_missing",
        /// Neither a digest nor a trusted signature verifies the release.
        ReleaseUnverified = "release_unverified",
        /// The release cannot be read from its source.
        ReleaseUnreachable = "release_unreachable",
        /// The enrollment token was redeemed before.
        EnrollmentUsed = "enrollment_used",
        /// The enrollment token is older than its fifteen minutes.
        EnrollmentExpired = "enrollment_expired",
        /// The enrollment token belongs to another node or control plane.
        EnrollmentForeign = "enrollment_foreign",
        /// That is no enrollment token.
        EnrollmentInvalid = "enrollment_invalid",
        /// The key of a certificate request was certified before.
        KeyReused = "key_reused",
        /// A machine came back after a tenant as the tenant has left it.
        MachineNotReimaged = "machine_not_reimaged",
        /// A machine came back after a tenant without the value that only the reimage hook has learned.
        ReimageUnproven = "reimage_unproven",
        /// No reimage hook is configured.
        ReimageHookMissing = "reimage_hook_missing",
        /// The reimage hook failed.
        ReimageHookFailed = "reimage_hook_failed",
        /// This control plane has no packages to bring machines in with.
        PackagesMissing = "packages_missing",
        /// The node's clock is further from the control plane's than the named limit.
        ClockSkewed = "clock_skewed",
        /// A node's certificate has expired: it may be renewed, and does nothing else.
        CertificateExpired = "certificate_expired",
        /// A task envelope's signature, key or form is wrong.
        EnvelopeInvalid = "envelope_invalid",
        /// A task envelope is for another node, control plane or enrollment epoch.
        EnvelopeForeign = "envelope_foreign",
        /// A task envelope came outside of its time: too late, or long before it.
        EnvelopeExpired = "envelope_expired",
        /// A task envelope carries a lower fence than one seen before.
        FenceTooLow = "fence_too_low",
        /// A task envelope is an older attempt of its step than one seen before.
        AttemptTooLow = "attempt_too_low",
        /// The agent has no such task type, or not in that schema version.
        TaskUnknown = "task_unknown",
        /// The parameters are not those of the task type.
        TaskParamsInvalid = "task_params_invalid",
        /// The node's ledger is missing, damaged or an older copy: its agent takes no tasks.
        AgentLedgerDamaged = "agent_ledger_damaged",
        /// The file by which a node proves who it is cannot be used: its agent does not start.
        AgentIdentityDamaged = "agent_identity_damaged",
        /// The agent died in the middle of the task.
        TaskInterrupted = "task_interrupted",
        /// What the node answered is not what a task of that type answers, or more than one may.
        AnswerInvalid = "answer_invalid",
        /// The task did not end by its deadline.
        TaskTimedOut = "task_timed_out",
        /// The task was cancelled.
        TaskCancelled = "task_cancelled",
        /// A host refused what a task did (permission, missing path).
        HostFailed = "host_failed",
        /// The disk has no room for it: the control plane's, the database's or the node's.
        DiskFull = "disk_full",
        /// The cluster cannot be reached or does not answer as it should.
        ClusterUnreachable = "cluster_unreachable",
        /// The cluster is not yet ready for that.
        ClusterNotReady = "cluster_not_ready",
        /// No kubeconfig of that kind is offered.
        AccessKindUnknown = "access_kind_unknown",
        /// The data directory was in use before, and the store holds no platform.
        StoreMissing = "store_missing",
        /// The database's own files are damaged.
        StoreDamaged = "store_damaged",
        /// A row of the store cannot be read.
        RowUnreadable = "row_unreadable",
        /// The sealing key is not where it must be.
        SealingKeyMissing = "sealing_key_missing",
        /// The file of a sealing key holds none.
        SealingKeyInvalid = "sealing_key_invalid",
        /// The store's file was written by a newer version.
        StoreTooNew = "store_too_new",
        /// A shared store holds sealed secrets, and no key to them was given.
        SealingKeyRequired = "sealing_key_required",
        /// A living replica lacks the sealing key that is to follow.
        SealingKeyNotEverywhere = "sealing_key_not_everywhere",
        /// The rows are under a sealing key that this process does not hold.
        SealingKeyMismatch = "sealing_key_mismatch",
        /// The database lacks what was acknowledged: no change is taken until a person decides.
        HistoryWentBack = "history_went_back",
        /// The high-water mark of this data directory is missing, damaged or of another control plane.
        HistoryUnproven = "history_unproven",
        /// A node says that it has seen more of this control plane than there is.
        NodeAhead = "node_ahead",
        /// The connection to the database would not be encrypted, or not to a server that proves who it is.
        DatabaseUnverified = "database_unverified",
        /// A backup is not whole, or of another version's form.
        BackupInvalid = "backup_invalid",
        /// A restore was interrupted, and the data directory holds a part of it.
        RestoreUnfinished = "restore_unfinished",
        /// The store could not be brought to this version's schema.
        MigrationFailed = "migration_failed",
        /// A backup is restored into an empty store alone.
        StoreNotEmpty = "store_not_empty",
        /// Another process uses the data directory.
        DataDirInUse = "data_dir_in_use",
        /// The data directory cannot be written.
        DataDirNotWritable = "data_dir_not_writable",
        /// The address is in use.
        AddressInUse = "address_in_use",
        /// The control plane cannot be reached.
        ServerUnreachable = "server_unreachable",
        /// It did not happen in the given time.
        TimedOut = "timed_out",
        /// A defect of ours; the correlation id finds it in the log.
        Internal = "internal",
        /// Not now; try again.
        Unavailable = "unavailable",
    }
}

/// The exit status of the command line, as its users script against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitStatus {
    /// Done.
    Done = 0,
    /// Failed.
    Failed = 1,
    /// Called wrongly.
    Usage = 2,
    /// No such thing.
    NotFound = 3,
    /// Refused before anything was touched.
    Refused = 4,
    /// Something else is in the way.
    Conflict = 5,
    /// Not allowed.
    Unauthorized = 6,
    /// Nobody answers.
    Unreachable = 7,
    /// Not in time.
    TimedOut = 8,
    /// A file of its own is damaged; of the agent alone.
    Damaged = 9,
}

impl Code {
    /// The HTTP status it travels under.
    pub const fn status(self) -> u16 {
        match self {
            Self::BodyInvalid | Self::QueryInvalid | Self::HeadersInvalid | Self::EnrollmentInvalid => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden | Self::BootstrapOnly | Self::EnrollmentForeign | Self::CertificateExpired => 403,
            Self::RateLimited | Self::NodeBusy => 429,
            Self::NotFound | Self::PackagesMissing => 404,
            Self::MethodNotAllowed => 405,
            Self::BodyTooSlow => 408,
            Self::NameTaken
            | Self::OperationInProgress
            | Self::StateConflict
            | Self::ClockSkewed
            | Self::NodeUnavailable
            | Self::AgentLedgerDamaged
            | Self::NodeNotHeld
            | Self::NodeAhead
            | Self::KeyReused
            | Self::MachineNotReimaged
            | Self::ReimageUnproven
            | Self::ReimageHookMissing
            | Self::HostOwned
            | Self::IllegalTransition
            | Self::LimitReached
            | Self::ReplicaVersionsDiffer
            | Self::SealingKeyNotEverywhere
            | Self::ClusterNotReady
            | Self::DataDirInUse
            | Self::RestoreUnfinished
            | Self::AddressInUse => 409,
            Self::BootstrapSpent | Self::EnrollmentUsed | Self::EnrollmentExpired | Self::EventsGone => 410,
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
            | Self::AllocationInUse
            | Self::TooManyMembers
            | Self::VersionUnknown
            | Self::ConfigRefused
            | Self::AgentTooOld
            | Self::FixUnknown
            | Self::DatabaseUnverified
            | Self::ArtifactDigestMismatch
            | Self::ArtifactTruncated
            | Self::ArtifactUnsafePath
            | Self::ArtifactUnlisted
            | Self::ArtifactMissing
            | Self::ReleaseUnverified
            | Self::ReleaseUnreachable
            | Self::EnvelopeInvalid
            | Self::EnvelopeForeign
            | Self::EnvelopeExpired
            | Self::FenceTooLow
            | Self::AttemptTooLow
            | Self::TaskUnknown
            | Self::TaskParamsInvalid
            | Self::AnswerInvalid
            | Self::AccessKindUnknown => 422,
            Self::TaskInterrupted
            | Self::TaskCancelled
            | Self::StoreTooNew
            | Self::StoreMissing
            | Self::StoreDamaged
            | Self::RowUnreadable
            | Self::SealingKeyMissing
            | Self::SealingKeyInvalid
            | Self::MigrationFailed
            | Self::SealingKeyRequired
            | Self::SealingKeyMismatch
            | Self::HistoryWentBack
            | Self::HistoryUnproven
            | Self::BackupInvalid
            | Self::StoreNotEmpty
            | Self::DataDirNotWritable
            | Self::AgentIdentityDamaged
            | Self::Internal => 500,
            Self::DiskFull => 507,
            // Somebody else's failure, not the control plane's own.
            Self::HostFailed | Self::ReimageHookFailed | Self::ClusterUnreachable => 502,
            Self::NodeUnreachable | Self::ServerUnreachable | Self::Unavailable => 503,
            Self::TaskTimedOut | Self::TimedOut => 504,
        }
    }

    /// The exit status of a command that ends with it.
    pub const fn exit(self) -> ExitStatus {
        if matches!(self, Self::HostFailed | Self::ReimageHookFailed) {
            // Reached, and it failed there.
            return ExitStatus::Failed;
        }
        if matches!(self, Self::AgentIdentityDamaged) {
            return ExitStatus::Damaged;
        }
        match self.status() {
            401 | 403 => ExitStatus::Unauthorized,
            404 => ExitStatus::NotFound,
            409 | 412 => ExitStatus::Conflict,
            400 | 405 | 410 | 413 | 415 | 422 => ExitStatus::Refused,
            502 | 503 | 507 => ExitStatus::Unreachable,
            408 | 504 => ExitStatus::TimedOut,
            _ => ExitStatus::Failed,
        }
    }
}

/// An error that carries its stable code and knows what to do next.
pub trait Coded: std::error::Error {
    /// The stable code.
    fn code(&self) -> Code;

    /// The field of the request it is about, as a JSON path without the leading `$.`.
    fn field(&self) -> Option<String> {
        None
    }

    /// One sentence that says what the caller can do.
    fn next(&self) -> Option<String> {
        None
    }
}

/// One of several reasons inside one refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The field it is about, for example `agent_allocation_ids[1]`.
    pub field: String,
    /// Its own code.
    pub code: Code,
    /// What is wrong, in one sentence.
    pub detail: String,
    /// What the caller can do.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_reads_back_what_it_prints() {
        for &code in Code::ALL {
            assert_eq!(code.as_str().parse(), Ok(code));
        }
    }

    #[test]
    fn refusals_and_conflicts_end_a_command_differently() {
        assert_eq!(Code::PlacementInvalid.exit(), ExitStatus::Refused);
        assert_eq!(Code::OperationInProgress.exit(), ExitStatus::Conflict);
        assert_eq!(Code::Unauthenticated.exit(), ExitStatus::Unauthorized);
        assert_eq!(Code::ServerUnreachable.exit(), ExitStatus::Unreachable);
    }
}

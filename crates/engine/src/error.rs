//! The reasons for which a part of the engine fails, and those for which a command is refused, in the form that API, CLI and UI show.

use gpuaas_model::{Code, Coded, IllegalTransition, Line, Reason};
use gpuaas_planner::ControlRefusal;
use gpuaas_store::StoreError;
use gpuaas_trust::SealError;

/// Why a part of the engine failed. Functions that only read or write rows return [`StoreError`].
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another replica took the operation's lease; nothing that this driver wanted to write is valid.
    #[error("another replica took the operation's lease")]
    LeaseLost,
    /// A member's present state does not allow the event of a step.
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
    /// The object does not exist, or not for the one who asked for it.
    #[error("there is no {what} {id}")]
    NotFound {
        /// Kind of the object.
        what: &'static str,
        /// Id or name of the object.
        id: String,
    },
    /// A secret could not be sealed.
    #[error("a secret could not be sealed: {0}")]
    Seal(#[from] SealError),
}

impl EngineError {
    /// The object does not exist, or not for the one who asked for it.
    pub(crate) fn not_found(what: &'static str, id: impl std::fmt::Display) -> Self {
        Self::NotFound { what, id: id.to_string() }
    }

    /// Returns whether the object that was asked for does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. } | Self::Store(StoreError::NotFound { .. }))
    }
}

/// A refused or failed command. Nothing was changed, unless the code is `internal` or `unavailable`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct CommandError {
    code: Code,
    detail: String,
    field: Option<String>,
    next: Option<String>,
    reasons: Vec<Reason>,
}

impl CommandError {
    /// Creates a refusal with a code and a one-sentence detail.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), field: None, next: None, reasons: Vec::new() }
    }

    /// Creates a `not_found`: the object does not exist for this caller.
    pub fn not_found(what: &str, id: impl std::fmt::Display) -> Self {
        // Several tokens can have the same name.
        if what == "token" {
            return Self::new(Code::NotFound, format!("{id} is not the id of a token"))
                .then("see the ids: gpuaas token list");
        }
        let refused = Self::new(Code::NotFound, format!("there is no {what} {id}"));
        match list_command(what) {
            Some(command) => refused.then(format!("see what exists: {command}")),
            None => refused,
        }
    }

    /// Creates a refusal with several reasons.
    pub fn because(code: Code, detail: impl Into<String>, reasons: Vec<Reason>) -> Self {
        Self { reasons, ..Self::new(code, detail) }
    }

    /// Creates a refusal from its only reason.
    pub fn from_reason(reason: Reason) -> Self {
        let Reason { field, code, detail, next } = reason;
        Self { next, ..Self::new(code, detail).about(field) }
    }

    /// Names `field` in every reason, instead of the fields of an inner request that the caller did not write.
    #[must_use]
    pub(crate) fn about_each(mut self, field: &str) -> Self {
        for reason in &mut self.reasons {
            field.clone_into(&mut reason.field);
        }
        self.about(field)
    }

    /// Names the request field that the refusal is about.
    #[must_use]
    pub fn about(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Sets the next action for the caller.
    #[must_use]
    pub fn then(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// The individual reasons, if there are several.
    pub fn reasons(&self) -> &[Reason] {
        &self.reasons
    }
}

/// Refuses a caller's text that is not a valid line of the given kind, naming its field.
pub fn check_line(line: Line, text: &str, field: &str) -> Result<(), CommandError> {
    line.check(text).map_err(|error| {
        let next = "use one line of printable characters, without leading or trailing spaces";
        CommandError::new(Code::FieldInvalid, error.to_string()).about(field).then(next)
    })
}

impl Coded for CommandError {
    fn code(&self) -> Code {
        self.code
    }

    fn field(&self) -> Option<String> {
        self.field.clone()
    }

    fn next(&self) -> Option<String> {
        self.next.clone()
    }
}

impl From<ControlRefusal> for CommandError {
    fn from(refusal: ControlRefusal) -> Self {
        let ControlRefusal { code, detail, next } = refusal;
        Self::new(code, detail).then(next)
    }
}

impl From<IllegalTransition> for CommandError {
    fn from(illegal: IllegalTransition) -> Self {
        Self::new(Code::StateConflict, illegal.to_string()).then("look at its present state and try again")
    }
}

impl From<EngineError> for CommandError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) => error.into(),
            EngineError::Illegal(illegal) => illegal.into(),
            EngineError::NotFound { what, id } => Self::not_found(what, id),
            error @ (EngineError::LeaseLost | EngineError::Seal(_)) => {
                tracing::error!(%error, "the engine failed");
                Self::new(Code::Internal, "the engine failed").then("search the server's log for the correlation id")
            }
        }
    }
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NameTaken { what, name } => Self::new(Code::NameTaken, format!("{what} {name} already exists"))
                .about("name")
                .then("choose another name"),
            StoreError::AllocationInUse { allocation, workload } => Self::new(
                Code::AllocationInUse,
                format!("allocation {allocation} is already used by workload {workload}"),
            )
            .then(format!("choose another node, or end that workload: gpuaas workload decommission {workload}")),
            StoreError::NodeAllocated { node } => {
                Self::new(Code::NodeUnavailable, format!("a project already holds node {node}"))
                    .then("choose another node")
            }
            StoreError::OperationInProgress { operation, kind } => Self::new(
                Code::OperationInProgress,
                format!("operation {operation} ({kind}) is under way on this workload"),
            )
            .then(format!("wait for it: gpuaas operation watch {operation}")),
            StoreError::NotFound { what, id } => Self::not_found(what, id),
            StoreError::Stale { what } => Self::new(Code::StateConflict, format!("{what} changed in the meantime"))
                .then("look at its present state and try again"),
            StoreError::EnrollmentRefused(refusal) => Self::from(refusal),
            StoreError::KeyReused => Self::new(Code::KeyReused, "a certificate was issued for this key before")
                .about("csr")
                .then("generate a new key: each enrollment and each renewal needs its own"),
            StoreError::SealingKeyMissing { id } => {
                tracing::error!(key = id, "this replica lacks a sealing key that the store uses");
                Self::new(
                    Code::SealingKeyMismatch,
                    format!("this replica does not hold the sealing key {id}, which the store uses"),
                )
                .then("copy the key files of another replica to it, then run: systemctl restart gpuaas-server")
            }
            StoreError::HistoryRolledBack(_) => Self::new(
                Code::HistoryRolledBack,
                "the control plane's database lacks acknowledged changes and accepts no new ones; nothing was changed",
            )
            .then("ask an operator to restore a backup or run gpuaas server accept-history"),
            StoreError::Busy => Self::new(Code::Unavailable, "the store is busy").then("try again"),
            StoreError::Unreachable(_) => {
                Self::new(Code::Unavailable, "the database cannot be reached").then("try again in a moment")
            }
            StoreError::Full(error) => {
                tracing::error!(%error, "the database's disk is full");
                Self::new(Code::DiskFull, "the disk of the control plane's database is full; nothing was changed")
                    .then("make room on the disk of the database, then try again")
            }
            StoreError::Damaged { place, detail } => {
                tracing::error!(place, detail, "the database is damaged");
                Self::new(Code::StoreDamaged, "the control plane's database is damaged")
                    .then("ask an operator to stop the control plane, copy its files and restore a backup")
            }
            StoreError::Corrupt(bad) => {
                tracing::error!(%bad, "a row cannot be read");
                Self::new(Code::RowUnreadable, "a row of the control plane's store cannot be read")
                    .then("ask an operator to run gpuaas server verify, which names the row")
            }
            StoreError::UnknownOutcome(_) => {
                Self::new(Code::Unavailable, "the database connection broke: the change may have been made")
                    .then("check whether it was made before you try again, or use an idempotency key")
            }
            error => {
                tracing::error!(%error, "the store failed");
                Self::new(Code::Internal, "the store failed").then("search the server's log for the correlation id")
            }
        }
    }
}

impl From<gpuaas_store::EnrollmentRefusal> for CommandError {
    fn from(refusal: gpuaas_store::EnrollmentRefusal) -> Self {
        use gpuaas_store::EnrollmentRefusal as R;
        let (code, detail) = match refusal {
            R::Used => (Code::EnrollmentUsed, "this enrollment token was already used"),
            R::Expired => (
                Code::EnrollmentExpired,
                "this enrollment token has expired or was replaced: it is valid for 15 minutes, unless a newer one is issued",
            ),
            R::OtherNode => (Code::EnrollmentTokenMismatch, "this enrollment token belongs to another node"),
            R::Unknown => (Code::EnrollmentInvalid, "this control plane did not issue this enrollment token"),
        };
        Self::new(code, detail).then("create a new one: gpuaas node enroll NAME")
    }
}

/// Returns the command that lists objects of a kind.
fn list_command(what: &str) -> Option<&'static str> {
    Some(match what {
        "access grant" => "gpuaas workload access NAME",
        "allocation" => "gpuaas allocation list",
        "app" => "gpuaas app list",
        "archive" => "gpuaas archive list",
        "authority" => "gpuaas keys list authority",
        "member" => "gpuaas workload members NAME",
        "node" => "gpuaas node list",
        "operation" => "gpuaas operation list",
        "project" => "gpuaas project list",
        "service account" => "gpuaas service-account list",
        "session" => "gpuaas session list",
        "signing key" => "gpuaas keys list",
        "task" => "gpuaas task list",
        "token" => "gpuaas token list",
        "workload" => "gpuaas workload list",
        _ => return None,
    })
}

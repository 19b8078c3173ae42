//! Turns events of a workload into lines that people read.

use std::collections::BTreeMap;

use gpuaas_model::{EventKind, LogSource, Name, OperationId, Recovery, StepState, TaskId, TaskState, WorkloadId};
use gpuaas_store::{EventRecord, Reader, StoreError};
use gpuaas_wire::task::TaskOutcome;
use serde_json::Value;

use super::line::TimedLine;

/// Operations of the project whose workload is remembered.
const OPERATIONS_KNOWN_MAX: usize = 256;
/// The recovery of a workload that needs none.
const NO_RECOVERY: &str = Recovery::None.as_str();

/// The objects whose events belong to a workload's logs.
#[derive(Clone, Copy)]
enum Subject {
    Workload,
    Member,
    Operation,
    Step,
    Task,
}

impl Subject {
    /// Returns the object of a kind of event; `None` for objects that belong to no workload.
    fn of(kind: EventKind) -> Option<Self> {
        match kind {
            EventKind::WorkloadRequested
            | EventKind::WorkloadChanged
            | EventKind::WorkloadReported
            | EventKind::AccessDelivered
            | EventKind::AccessRevoked => Some(Self::Workload),
            EventKind::MemberChanged => Some(Self::Member),
            EventKind::OperationStarted
            | EventKind::OperationCancelRequested
            | EventKind::OperationEnded
            | EventKind::OperationSuperseded => Some(Self::Operation),
            EventKind::StepChanged => Some(Self::Step),
            EventKind::TaskChanged => Some(Self::Task),
            EventKind::ReplicaJoined
            | EventKind::ReplicaLeft
            | EventKind::ReplicaLost
            | EventKind::ProjectCreated
            | EventKind::ProjectDeleted
            | EventKind::TokenCreated
            | EventKind::TokenRevoked
            | EventKind::SessionCreated
            | EventKind::SessionRevoked
            | EventKind::SignInLinkCreated
            | EventKind::ServiceAccountCreated
            | EventKind::ServiceAccountDeleted
            | EventKind::SigningKeyStateChanged
            | EventKind::SealingKeyStateChanged
            | EventKind::AuthorityStateChanged
            | EventKind::RowForged
            | EventKind::NodeRegistered
            | EventKind::NodeEnrolled
            | EventKind::NodeEnrollmentIssued
            | EventKind::NodeActivated
            | EventKind::NodeStateChanged
            | EventKind::NodeDeleted
            | EventKind::NodeConnectivityChanged
            | EventKind::NodeClockSkewChanged
            | EventKind::NodeAgentProblemChanged
            | EventKind::NodeInspected
            | EventKind::NodeFixed
            | EventKind::NodeMachineChanged
            | EventKind::NodeIdentityCloned
            | EventKind::ArtifactImported
            | EventKind::AllocationChanged => None,
        }
    }
}

/// Describes the events of one workload.
pub(super) struct Describer {
    workload: WorkloadId,
    name: Name,
    /// Operations, and whether each is of this workload.
    operations: BTreeMap<OperationId, bool>,
}

impl Describer {
    pub(super) fn new(workload: WorkloadId, name: Name) -> Self {
        Self { workload, name, operations: BTreeMap::new() }
    }

    /// Returns the line of an event; `None` if the event is not about this workload.
    pub(super) async fn describe(
        &mut self,
        reader: &mut Reader,
        event: &EventRecord,
    ) -> Result<Option<TimedLine>, StoreError> {
        let Some(kind) = Subject::of(event.kind) else { return Ok(None) };
        if !self.is_of_workload(reader, event).await? {
            return Ok(None);
        }
        let data = &event.data;
        let source = match kind {
            Subject::Task => LogSource::Task,
            Subject::Step if is_progress(data) => LogSource::Task,
            Subject::Workload | Subject::Member | Subject::Operation | Subject::Step => LogSource::Event,
        };
        let (subject, text) = match kind {
            Subject::Workload => (format!("workload {}", self.name), workload_text(event)),
            Subject::Member => (format!("member {}", field(data, "member")), member_text(data)),
            Subject::Operation => (format!("operation {}", event.subject_id), operation_text(event)),
            Subject::Step => (format!("step {}", field(data, "key")), step_text(data)),
            Subject::Task => (format!("task {}", field(data, "type")), task_text(reader, event).await?),
        };
        let mut described = TimedLine::about(event.at, source, subject, text);
        described.line.sequence = Some(event.sequence);
        described.line.member = self.member_of(event);
        described.line.code = data["fault"].as_str().map(str::to_owned);
        Ok(Some(described))
    }

    /// Returns the member that an event is about.
    pub(super) fn member_of(&self, event: &EventRecord) -> Option<String> {
        let member = event.data["member"].as_str().filter(|_| event.kind == EventKind::MemberChanged);
        member.map(str::to_owned)
    }

    async fn is_of_workload(&mut self, reader: &mut Reader, event: &EventRecord) -> Result<bool, StoreError> {
        let workload = self.workload.to_string();
        if event.subject_kind == "workload" {
            return Ok(event.subject_id == workload);
        }
        if let Some(of) = event.data["workload"].as_str() {
            return Ok(of == workload);
        }
        let operation = event.data["operation"].as_str().and_then(|id| id.parse().ok());
        match operation {
            Some(operation) => self.is_own(reader, operation).await,
            None => Ok(false),
        }
    }

    /// Returns whether an operation is of this workload; not if it was removed.
    async fn is_own(&mut self, reader: &mut Reader, id: OperationId) -> Result<bool, StoreError> {
        if let Some(is_own) = self.operations.get(&id) {
            return Ok(*is_own);
        }
        let is_own = match reader.operation(id).await {
            Ok(operation) => operation.workload == self.workload,
            Err(StoreError::NotFound { .. }) => false,
            Err(error) => return Err(error),
        };
        if self.operations.len() >= OPERATIONS_KNOWN_MAX {
            // The ids begin with their time: the first one is the oldest.
            self.operations.pop_first();
        }
        self.operations.insert(id, is_own);
        Ok(is_own)
    }
}

/// Returns whether an event of a step carries output of its running task.
fn is_progress(data: &Value) -> bool {
    data["state"] == StepState::Running.as_str() && data["detail"].is_string()
}

fn workload_text(event: &EventRecord) -> String {
    let data = &event.data;
    let access = |what: &str| {
        let given = format!("{} access {what}", field(data, "kind"));
        joined(&[&given, &prefixed("role ", field(data, "role")), &prefixed("reason: ", field(data, "reason"))])
    };
    match event.kind {
        EventKind::WorkloadRequested => "requested".to_owned(),
        EventKind::AccessDelivered => access("delivered"),
        EventKind::AccessRevoked => access("revoked"),
        _ => joined(&[
            field(data, "lifecycle"),
            &prefixed("phase ", field(data, "phase")),
            &progress_text(data),
            field(data, "health"),
            &prefixed("recovery ", Some(field(data, "recovery")).filter(|of| *of != NO_RECOVERY).unwrap_or_default()),
            field(data, "fault"),
        ]),
    }
}

/// Returns how many steps of a workload's operation have ended, for example `5/18`.
fn progress_text(data: &Value) -> String {
    let count = |name: &str| data["progress"][name].as_u64();
    count("completed").zip(count("total")).map_or_else(String::new, |(completed, total)| format!("{completed}/{total}"))
}

/// Describes a member by its state and health; by one of them if both have one name, as of a failed member.
fn member_text(data: &Value) -> String {
    let state = field(data, "state");
    let health = Some(field(data, "health")).filter(|health| *health != state).unwrap_or_default();
    joined(&[state, health, field(data, "fault")])
}

fn operation_text(event: &EventRecord) -> String {
    let operation = field(&event.data, "kind");
    match event.kind {
        EventKind::OperationStarted => {
            format!("{operation}: started{}", prefixed(", requested by ", field(&event.data, "requested_by")))
        }
        EventKind::OperationCancelRequested => format!("{operation}: cancellation requested"),
        _ => joined(&[&format!("{operation}: {}", field(&event.data, "state")), field(&event.data, "fault")]),
    }
}

fn step_text(data: &Value) -> String {
    if is_progress(data) {
        return field(data, "detail").to_owned();
    }
    let attempts = data["attempts"].as_u64().filter(|attempts| *attempts > 1);
    let attempt = attempts.map(|attempts| format!("attempt {attempts}")).unwrap_or_default();
    let not_before = prefixed("again at ", field(data, "not_before"));
    // The detail of a step that has ended is what it last waited for.
    let detail = if data["state"] == StepState::Backoff.as_str() { field(data, "detail") } else { "" };
    joined(&[field(data, "state"), &attempt, detail, &not_before, field(data, "fault")])
}

/// Describes a task that was sent or ended, with the message of its failure.
async fn task_text(reader: &mut Reader, event: &EventRecord) -> Result<String, StoreError> {
    let data = &event.data;
    let plain = format!("{} on {}", field(data, "state"), field(data, "node"));
    let Ok(id) = event.subject_id.parse::<TaskId>() else { return Ok(plain) };
    if field(data, "state") != TaskState::Failed.as_str() {
        return Ok(plain);
    }
    match reader.task(id).await.map(|task| task.outcome) {
        Ok(Some(TaskOutcome::Failed { failure })) => Ok(format!("{plain}: {} ({})", failure.message, failure.code)),
        Ok(Some(TaskOutcome::Succeeded { .. }) | None) | Err(StoreError::NotFound { .. }) => Ok(plain),
        Err(error) => Err(error),
    }
}

/// Returns a text field of the event's data; empty if it has none.
fn field<'a>(data: &'a Value, name: &str) -> &'a str {
    data[name].as_str().unwrap_or_default()
}

fn prefixed(prefix: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{prefix}{text}") }
}

/// Joins the parts that are not empty by commas.
fn joined(parts: &[&str]) -> String {
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(", ")
}

//! Reports of a workload's controller.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Reports about a workload. The report replaces the one before: what it leaves out is no longer reported.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportWorkload {
    /// Generation of the workload that the controller looked at. Only the present one is accepted.
    pub generation: u64,
    /// Number of the report within its generation, for controllers that send several at once: a lower one than before is refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sequence: Option<u64>,
    /// One of the app's phases. It is shown while no operation is open.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z_]+$")]
    pub phase: Option<String>,
    /// Progress of the app's own work. It is shown while no operation is open.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub progress: Option<ReportedProgress>,
    /// Health of members, each at most once. It counts for members that are ready.
    #[serde(default)]
    #[schema(max_items = 256)]
    pub members: Vec<ReportedMember>,
}

/// Progress of an app's own work.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportedProgress {
    /// What is done.
    pub completed: u32,
    /// All that there is to do.
    pub total: u32,
}

/// What a report says about one member.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportedMember {
    /// Name of the member, for example `agent-1`.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub member: String,
    /// Health: `progressing`, `healthy`, `degraded` or `failed`.
    #[schema(value_type = crate::schema::ReportedHealth)]
    pub health: String,
    /// The controller's own code for the reason.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 64, pattern = "^[a-z][a-z0-9_]*$")]
    pub code: Option<String>,
    /// The reason in one line.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 500, format = "line")]
    pub message: Option<String>,
    /// What the controller saw, for example a line of a log.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 1000, format = "line")]
    pub evidence: Option<String>,
}

/// The last report of a workload's controller.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ControllerReport {
    /// Name of the controller's service account, as audit records show it.
    pub by: String,
    /// Generation of the workload that the report is about.
    pub generation: u64,
    /// True if that is the workload's present generation. Otherwise nothing of the report counts.
    pub current: bool,
    /// Number of the report, if the controller counts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sequence: Option<u64>,
    /// Phase as reported.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub phase: Option<String>,
    /// Progress as reported.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub progress: Option<ReportedProgress>,
    /// Time of the controller's first report.
    #[schema(format = DateTime)]
    pub since: String,
    /// Time of its last report. Equal reports raise it once a minute.
    #[schema(format = DateTime)]
    pub reported_at: String,
}

/// An accepted report.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReportAccepted {
    /// The report.
    pub report: ControllerReport,
    /// False if everything in it was known already.
    pub changed: bool,
    /// What of it does not count at present, each with the reason.
    #[serde(default)]
    pub not_applied: Vec<String>,
}

/// What a workload's controller reported about a member.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MemberReport {
    /// Name of the controller's service account, as audit records show it.
    pub by: String,
    /// Health as reported. The member's health is the worse one of this and what the platform observes.
    #[schema(value_type = crate::schema::ReportedHealth)]
    pub health: String,
    /// The controller's own code for the reason.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<String>,
    /// The reason in one line.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<String>,
    /// What the controller saw.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evidence: Option<String>,
    /// Time of the first report that says this.
    #[schema(format = DateTime)]
    pub since: String,
}

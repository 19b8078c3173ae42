//! Shapes of the public API. Ids are UUIDs as text, times RFC 3339 in UTC with milliseconds, states the values that `docs/states.md` lists.
//!
//! [`coverage`] compares the OpenAPI document with the CLI, the client, the tests and the error pages.
//! [`error_pages`] contains the pages.
//!
//! Deliberately absent: conversions from rows (`api`), and shapes that only nodes or the store use.

mod access;
mod audit;
pub mod coverage;
mod diff;
pub mod error_pages;
mod list;
mod logs;
mod node;
mod plan;
mod platform;
mod problem;
mod report;
mod schema;
mod session;
mod waiting;
mod workload;

pub use access::{AccessAnswer, AccessGrant, AccessKind, OfferedRole};
pub use audit::{AuditChain, AuditDefect, AuditHead, AuditSeal, AuditVerification, VerifyAudit};
pub use diff::{Difference, Drift, NotKnown, WorkloadDiff};
pub use list::List;
pub use logs::{LogLine, WorkloadLogLine};
pub use node::{
    Allocation, AppliedFix, CreateAllocation, DataDisk, DefaultRoute, EnrollNode, Enrollment, FileSystem, FixNode,
    FixedNode, Gpu, MachineChange, MachineFacts, Node, NodeFacts, NodeLedger, NodeProblem, Ping, Preflight,
    PreflightFinding, RegisterNode, RegisteredNode, Task, WriteLatency,
};
pub use plan::{PlacementOption, PlannedMember, PlannedStep, Preview};
pub use platform::{
    Archive, AuditEntry, Authority, Bootstrap, CreateProject, CreateServiceAccount, CreateServiceAccountToken,
    CreateToken, CreatedToken, Event, ForceAuthority, Project, Replica, SealingKey, ServiceAccount, SigningKey, Token,
    WhoAmI,
};
pub use problem::{Problem, ProblemReason};
pub use report::{ControllerReport, MemberReport, ReportAccepted, ReportWorkload, ReportedMember, ReportedProgress};
pub use session::{BrowserSession, CurrentSession, SignIn, SignInLink};
pub use waiting::Waiting;
pub use workload::{
    AccessGranted, AddMembers, App, AppOperation, Artifact, Deploy, Endpoint, Fault, ImportRelease, Member,
    NodeResidue, Operation, OperationDetail, RefusedAction, RequestAccess, StartOperation, Started, Step, Workload,
    WorkloadDetail,
};

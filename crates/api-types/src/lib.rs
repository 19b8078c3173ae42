//! The public API's shapes. Ids are UUIDs as text, times RFC 3339 in UTC with milliseconds, enums the words of the model.
//!
//! Deliberately absent: conversions from rows (`api`), and anything that only a node or the store sees.

mod list;
mod node;
mod platform;
mod problem;
mod workload;

pub use list::List;
pub use node::{Allocation, CreateAllocation, Enrollment, Node, NodeFacts, Ping, RegisterNode, RegisteredNode, Task};
pub use platform::{AuditEntry, CreateProject, CreateToken, CreatedToken, Event, Project, Token, WhoAmI};
pub use problem::{Problem, ProblemReason};
pub use workload::{
    AccessGranted, AddMembers, App, Artifact, AskAccess, Deploy, Fault, ImportRelease, Member, Operation,
    OperationDetail, Started, Step, Workload, WorkloadDetail,
};

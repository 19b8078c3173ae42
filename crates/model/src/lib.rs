//! Domain types: identifiers, lifecycles, task types, stable codes, and the ports for time and randomness.
//!
//! Guarantees: no I/O, no clock and no randomness except through the ports. Nodes, allocations, members and signing keys each have one enum
//! of states with one transition function.
//!
//! Deliberately absent: storage (`store`), messages to nodes (`wire`), presentation to clients (`api-types`), and what an app's task types
//! mean (`app-*`).

mod actor;
mod allocation;
mod archive;
mod audit;
mod check;
mod code;
mod cut;
mod event;
mod fault;
mod fix;
mod id;
mod install;
mod line;
mod log;
mod member;
mod name;
mod node;
mod operation;
mod port;
mod principal;
mod rate_limiter;
mod release;
mod role;
mod sign_in;
mod signing_key;
mod site;
mod state;
mod task;
mod time;
mod waiting;
mod workload;

pub use actor::OwnActor;
pub use allocation::{AllocationEvent, AllocationState};
pub use archive::ArchiveKind;
pub use audit::{ActorType, AuditAction, AuditResult, ChainDefectKind, ChainResult};
pub use check::Check;
pub use code::{Code, Coded, ExitStatus, Reason};
pub use cut::{CUT_MARK, cut};
pub use event::{EventKind, StreamName};
pub use fault::{Evidence, Fault, FaultClass, NextAction};
pub use fix::FixKind;
pub use id::{
    AccessGrantId, AllocationId, ArchiveId, ArtifactId, BrowserSessionId, CorrelationId, EnrollmentId, IdParseError,
    MemberId, NodeId, OperationId, ProjectId, ReplicaId, SecretId, ServiceAccountId, SignInLinkId, StepId, TaskId,
    TokenId, WorkloadId,
};
pub use install::InstallFault;
pub use line::{LINE_FORMAT, Line, LineError, is_invisible, visible};
pub use log::{LogPosition, LogSource};
pub use member::{MemberEvent, MemberPlace, MemberState, MemberStateName};
pub use name::{Name, NameError};
pub use node::{Connectivity, EnrolledNode, NodeEvent, NodeState};
pub use operation::{OperationKind, OperationState, StepState, WorkloadAction};
pub use port::{Clock, Entropy, Runtime};
pub use principal::Principal;
pub use rate_limiter::RateLimiter;
pub use release::VerifiedBy;
pub use role::{Permission, Role};
pub use sign_in::SessionProof;
pub use signing_key::{KeyEvent, KeyState};
pub use site::PeerSite;
pub use state::IllegalTransition;
pub use task::{TaskState, TaskType};
pub use time::Timestamp;
pub use waiting::{Waiting, WaitingFrom};
pub use workload::{Endpoint, Health, Lifecycle, Progress, Recovery};

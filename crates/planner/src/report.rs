//! Reports of a workload's controller: a program outside of the platform that knows the app better than its units show it.
//!
//! All rules about them are here:
//! - Only a report about the workload's present generation is accepted, and within it none with an earlier sequence than an accepted one
//!   ([`Report::check`]).
//! - The health of a ready member is the worse one of what the platform observes and what the controller reported ([`Judgment::worse`]); as
//!   long as both are equally bad, the platform's own fault explains it.
//! - Phase and progress show only while no operation is open ([`ReportedStatus::shown`]). Nothing else of a workload changes.
//! - What was reported counts as long as its generation is the present one ([`ReportedStatus::is_current`]) and its account exists.

use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::{
    Code, Evidence, Fault, FaultClass, Health, Lifecycle, Line, MemberState, Name, NextAction, Progress, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::{
    status::{OperationView, Status},
    view::WorkloadView,
};

/// Most members in one report: five times as many as the largest app places.
pub const MEMBERS_MAX: usize = 256;
/// Longest code of a controller, in bytes: twice the platform's longest.
pub const CODE_BYTES_MAX: usize = 64;

/// What a controller reports. It replaces the report before: what it leaves out is no longer reported.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Generation of the workload that the controller looked at.
    pub generation: u64,
    /// Number of the report within its generation, if the controller counts them.
    pub sequence: Option<u64>,
    /// One of the app's phases.
    pub phase: Option<String>,
    /// How much of its work is done.
    pub progress: Option<Progress>,
    /// Health of members, each at most once.
    pub members: Vec<ReportedMember>,
}

/// What a report says about one member.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReportedMember {
    /// Name of the member, for example `agent-1`.
    pub member: String,
    /// Health, never [`Health::None`].
    pub health: Health,
    /// The controller's own code for the reason.
    pub code: Option<String>,
    /// The reason in one line.
    pub message: Option<String>,
    /// What the controller saw, for example a line of a log.
    pub evidence: Option<String>,
}

/// The last report that was accepted from the same controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastReport {
    /// Its generation.
    pub generation: u64,
    /// Its number.
    pub sequence: Option<u64>,
    /// True if it had the same content as the one to check.
    pub is_equal: bool,
}

/// What a report is checked against.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The workload with its members.
    pub workload: &'a WorkloadView,
    /// Position of the workload in its lifecycle.
    pub lifecycle: Lifecycle,
    /// The workload's present generation.
    pub generation: u64,
    /// The phases of its app.
    pub phases: &'a [String],
    /// The last report of the same controller.
    pub last: Option<&'a LastReport>,
}

/// Why a report is refused. Nothing of it counts then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportRefusal {
    /// The workload is removed from its nodes.
    #[error("{0} is decommissioned: there is nothing left to report about")]
    Decommissioned(Name),
    /// The report is older than what is known.
    #[error("{why}")]
    Stale {
        /// Field that shows it.
        field: &'static str,
        /// The older and the newer value.
        why: String,
    },
    /// A field has an impossible value.
    #[error("{why}")]
    Invalid {
        /// The field, as a path.
        field: String,
        /// What is wrong.
        why: String,
        /// What to send instead, or where to see it.
        next: String,
    },
}

impl ReportRefusal {
    fn invalid(field: impl Into<String>, why: impl Into<String>, next: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), why: why.into(), next: next.into() }
    }
}

impl Report {
    /// Refuses a report that is stale, early or about something that does not exist.
    pub fn check(&self, of: &Subject<'_>) -> Result<(), ReportRefusal> {
        if of.lifecycle == Lifecycle::Decommissioned {
            return Err(ReportRefusal::Decommissioned(of.workload.name.clone()));
        }
        self.check_generation(of)?;
        self.check_sequence(of)?;
        self.check_phase(of)?;
        self.check_members(of.workload)
    }

    fn check_generation(&self, of: &Subject<'_>) -> Result<(), ReportRefusal> {
        let (reported, present) = (self.generation, of.generation);
        if reported < present && !bugs::on(Bug::StaleReportAccepted) {
            let why = format!("the report is about generation {reported}; the workload is at generation {present}");
            return Err(ReportRefusal::Stale { field: "generation", why });
        }
        if reported > present {
            let why = format!("generation {reported} does not exist yet: the workload is at generation {present}");
            let next = format!("read it again: gpuaas workload show {}", of.workload.name);
            return Err(ReportRefusal::invalid("generation", why, next));
        }
        Ok(())
    }

    fn check_sequence(&self, of: &Subject<'_>) -> Result<(), ReportRefusal> {
        let last = of.last.filter(|last| last.generation == self.generation);
        let Some((last, newest)) = last.and_then(|last| Some((last, last.sequence?))) else { return Ok(()) };
        match self.sequence {
            Some(sequence) if sequence > newest || (sequence == newest && last.is_equal) => Ok(()),
            Some(sequence) if sequence == newest => {
                let why = format!("another report had the sequence {sequence} already");
                Err(ReportRefusal::Stale { field: "sequence", why })
            }
            Some(sequence) => {
                let why = format!("the report has the sequence {sequence}; one with {newest} was accepted before");
                Err(ReportRefusal::Stale { field: "sequence", why })
            }
            None => {
                let why = format!("the last report had the sequence {newest}, and this one has none to compare");
                let next = format!("send a sequence above {newest}, or begin without one at the next generation");
                Err(ReportRefusal::invalid("sequence", why, next))
            }
        }
    }

    fn check_phase(&self, of: &Subject<'_>) -> Result<(), ReportRefusal> {
        if let Some(phase) = self.phase.as_ref().filter(|phase| !of.phases.contains(phase)) {
            let why = format!("the app has no phase {:?}", gpuaas_model::cut(phase, CODE_BYTES_MAX));
            return Err(ReportRefusal::invalid("phase", why, format!("use one of {}", of.phases.join(", "))));
        }
        match self.progress {
            Some(Progress { completed, total }) if completed > total => Err(ReportRefusal::invalid(
                "progress.completed",
                format!("{completed} of {total} cannot be completed"),
                "send completed up to total",
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn check_members(&self, workload: &WorkloadView) -> Result<(), ReportRefusal> {
        if self.members.len() > MEMBERS_MAX {
            let why = format!("the report has {} members; at most {MEMBERS_MAX} are allowed", self.members.len());
            return Err(ReportRefusal::invalid("members", why, "report only members that the workload has"));
        }
        for (index, reported) in self.members.iter().enumerate() {
            if self.members[..index].iter().any(|earlier| earlier.member == reported.member) {
                let why = format!("{} is reported twice", gpuaas_model::cut(&reported.member, CODE_BYTES_MAX));
                return Err(ReportRefusal::invalid(format!("members[{index}].member"), why, "report it once"));
            }
            reported.check(index, workload)?;
        }
        Ok(())
    }
}

impl ReportedMember {
    fn check(&self, index: usize, workload: &WorkloadView) -> Result<(), ReportRefusal> {
        let field = |name: &str| format!("members[{index}].{name}");
        let members = format!("see its members: gpuaas workload members {}", workload.name);
        let Some(member) = workload.members.iter().find(|member| member.name == self.member) else {
            let name = gpuaas_model::cut(&self.member, CODE_BYTES_MAX);
            let why = format!("{} has no member {name:?}", workload.name);
            return Err(ReportRefusal::invalid(field("member"), why, members));
        };
        if member.state == MemberState::Removed {
            let why = format!("{} is removed", self.member);
            return Err(ReportRefusal::invalid(field("member"), why, members));
        }
        if self.health == Health::None {
            let why = "a controller cannot report the health none";
            let next = "use progressing, healthy, degraded or failed, or leave the member out";
            return Err(ReportRefusal::invalid(field("health"), why, next));
        }
        if let Some(code) = self.code.as_ref().filter(|code| !is_code(code)) {
            let why = format!("{:?} is no code", gpuaas_model::cut(code, CODE_BYTES_MAX));
            let next = format!("use 1 to {CODE_BYTES_MAX} of a-z, 0-9 and _, beginning with a letter");
            return Err(ReportRefusal::invalid(field("code"), why, next));
        }
        let texts =
            [("message", Line::REPORT_MESSAGE, &self.message), ("evidence", Line::REPORT_EVIDENCE, &self.evidence)];
        for (name, line, text) in texts {
            if let Some(Err(error)) = text.as_ref().map(|text| line.check(text)) {
                let next = "use one line of printable characters, without leading or trailing spaces";
                return Err(ReportRefusal::invalid(field(name), error.to_string(), next));
            }
        }
        Ok(())
    }
}

fn is_code(text: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    text.len() <= CODE_BYTES_MAX && text.starts_with(|first: char| first.is_ascii_lowercase()) && text.bytes().all(rest)
}

/// A judgment of a member: its health, with the fault that explains it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgment {
    /// The health.
    pub health: Health,
    /// The reason, where there is one to act on.
    pub fault: Option<Fault>,
}

impl Judgment {
    /// Returns the judgment that counts: the worse one, and the platform's own if both are equally bad.
    pub fn worse<'a>(own: &'a Self, reported: &'a Self) -> &'a Self {
        if severity(reported.health) > severity(own.health) { reported } else { own }
    }
}

const fn severity(health: Health) -> u8 {
    match health {
        Health::None => 0,
        Health::Healthy => 1,
        Health::Progressing => 2,
        Health::Degraded => 3,
        Health::Failed => 4,
    }
}

/// What a controller said about a member, with its author and time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberReport {
    /// Health as reported.
    pub health: Health,
    /// The controller's own code for the reason.
    pub code: Option<String>,
    /// The reason in one line.
    pub message: Option<String>,
    /// What the controller saw.
    pub evidence: Option<String>,
    /// Name of the controller's service account, as the audit shows it.
    pub by: String,
    /// When the controller first said so.
    pub since: Timestamp,
}

impl MemberReport {
    /// Returns what `reported` says, since `now` or, if `before` says the same, since then.
    pub fn of(reported: &ReportedMember, by: &str, before: Option<&Self>, now: Timestamp) -> Self {
        let said = Self {
            health: reported.health,
            code: reported.code.clone(),
            message: reported.message.clone(),
            evidence: reported.evidence.clone(),
            by: by.to_owned(),
            since: now,
        };
        let same = before.filter(|before| **before == Self { since: before.since, ..said.clone() });
        same.cloned().unwrap_or(said)
    }

    /// Returns the judgment of the member `name`. Its fault has the platform's code `controller_reported`: a controller cannot use a code
    /// that means something else.
    pub fn judgment(&self, name: &str, workload: &Name) -> Judgment {
        let fault = matches!(self.health, Health::Degraded | Health::Failed).then(|| {
            let code = self.code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
            let message = self.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
            Fault {
                code: Code::ControllerReported.to_string(),
                class: FaultClass::Manual,
                summary: format!("{name}: {} reports {}{code}{message}", self.by, self.health),
                evidence: self.evidence.as_ref().map(|text| Evidence::new(&self.by, Some(self.since), text)),
                next: NextAction::show_workload("look at the app, then at what its controller reports", workload),
            }
        });
        Judgment { health: self.health, fault }
    }
}

/// A report about a member that counts, with both judgments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CountedReport {
    /// What the controller said.
    pub report: MemberReport,
    /// The judgment that follows from it.
    pub reported: Judgment,
    /// The platform's own judgment, which counts alone once the report ends.
    pub own: Judgment,
}

/// Phase and progress as a controller reported them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedStatus {
    /// Generation of the workload that the report is about.
    pub generation: u64,
    /// Phase, one of the app's.
    pub phase: Option<String>,
    /// Progress of the app's own work.
    pub progress: Option<Progress>,
}

impl ReportedStatus {
    /// Returns whether the report still counts: the workload has had no other accepted change since.
    pub const fn is_current(&self, generation: u64) -> bool {
        self.generation == generation
    }

    /// Returns the status with the reported phase and progress in place of the newest operation's, unless that operation is open.
    #[must_use]
    pub fn shown(&self, status: Status, operation: Option<&OperationView<'_>>) -> Status {
        if operation.is_some_and(|operation| !operation.state.is_final()) {
            return status;
        }
        Status {
            phase: self.phase.clone().unwrap_or(status.phase),
            progress: self.progress.unwrap_or(status.progress),
            ..status
        }
    }
}

#[cfg(test)]
mod tests;

//! Deliberate bugs: mistakes that a developer could make in planner, engine, store or app, each behind a switch. `cargo xtask test --bugs`
//! switches them on one after the other and fails if the simulation does not notice one.
//!
//! Guarantees: without the feature `deliberate-bugs`, which `cargo xtask lint` permits only as a dependency of tests, [`on`] is constantly
//! false and the compiler removes the bug. With it, a bug is on only in the thread that has switched it on.
//!
//! Deliberately absent: a switch in the environment or in a file, so that no program can be started with a bug.

/// Defines the bugs with their names and texts.
macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident = $name:literal, $mistake:literal;)*) => {
        /// A deliberate bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $($(#[$doc])* $bug),*
        }

        impl Bug {
            /// Every bug, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$bug),*];

            /// Returns the name, as a replayed seed takes it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$bug => $name),* }
            }

            /// Describes the mistake.
            pub const fn mistake(self) -> &'static str {
                match self { $(Self::$bug => $mistake),* }
            }
        }
    };
}

bugs! {
    /// `planner::schedule`.
    AfterIgnored = "after-ignored", "a step begins before the steps in its `after` have ended";
    /// `planner::schedule`.
    CancelIgnored = "cancel-ignored", "steps begin although the operation's cancellation is requested";
    /// `planner::report`.
    StaleReportAccepted = "stale-report-accepted", "a controller's report about an earlier generation counts";
    /// `app::plan`.
    ResumeRepeatsSteps = "resume-repeats-steps", "a resumed deployment bootstraps members again that serve";
    /// `app::results`.
    ResidueIgnored = "residue-ignored", "a member is removed although its node has residue";
    /// `app::render`.
    StaleReadyAccepted = "stale-ready-accepted", "a started member counts as ready because its KubeNode was ready before";
    /// `engine::begin`.
    LeaseNotChecked = "lease-not-checked", "a driver writes after another replica has taken its operation's lease";
    /// `store::lease`.
    FenceNotRaised = "fence-not-raised", "tasks are signed under the fence of a dead replica";
    /// `store::operation`.
    CancelledCountsAsEnded = "cancelled-counts-as-ended", "an operation that is being cancelled does not exclude another one";
    /// `engine::step`.
    InterruptedIsDone = "interrupted-is-done", "a task that its agent's death interrupted counts as done";
    /// `engine::step`.
    SuccessRepeated = "success-repeated", "a step that succeeded in its second attempt is attempted again";
    /// `engine::step`.
    RetriesUnbounded = "retries-unbounded", "a failing step is retried more often than its plan permits";
    /// `engine::step`.
    DrainFailureIgnored = "drain-failure-ignored", "a removal continues although a budget blocks the drain";
    /// `engine::settle`.
    UnfinishedMembersLeft = "unfinished-members-left", "members stay in a transient state when their operation has ended";
    /// `engine::settle`.
    SecretsKept = "secrets-kept", "the secrets of a decommissioned workload are kept";
    /// `engine::members`.
    MemberEventMissing = "member-event-missing", "the removal of a member leaves no event";
    /// `engine::record`.
    AuditMissing = "audit-missing", "a failed task leaves no audit record";
    /// `engine::observe`.
    HealthNotRefreshed = "health-not-refreshed", "a unit's report changes its member and not the workload";
    /// `engine::drift`.
    DriftHintDropped = "drift-hint-dropped", "a hint of drift is forgotten when the check of its node fails";
    /// `engine::cluster_watch`.
    JudgmentOverwritten = "judgment-overwritten", "what a cluster shows of a member erases the loss of its node";
    /// `engine::commands::allocation`.
    ReleasedInUse = "released-in-use", "an allocation is released while a member uses it";
    /// `engine::commands::workload`.
    SupersedeSkipped = "supersede-skipped", "an operation needs attention although a later one took its place";
    /// `engine::commands::operation`.
    CancelAfterEnd = "cancel-after-end", "the cancellation of an operation that has ended is accepted";
    /// `engine::commands::plan_check`.
    StaleDigestAccepted = "stale-digest-accepted", "another plan runs than the one whose digest the caller sent";
}

/// Returns true if this thread has switched the bug on.
#[cfg(feature = "deliberate-bugs")]
pub fn on(bug: Bug) -> bool {
    ON.get() == Some(bug)
}

/// Returns false: this build has no bugs.
#[cfg(not(feature = "deliberate-bugs"))]
#[inline(always)]
pub const fn on(_bug: Bug) -> bool {
    false
}

#[cfg(feature = "deliberate-bugs")]
thread_local! {
    /// The bug that is on in this thread.
    static ON: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Keeps a bug on in the thread that created it; dropping it switches the bug off.
#[cfg(feature = "deliberate-bugs")]
#[derive(Debug)]
pub struct Switch {
    /// Ties the switch to its thread.
    _of_thread: std::marker::PhantomData<*const ()>,
}

/// Switches a bug on in this thread, instead of any other one.
#[cfg(feature = "deliberate-bugs")]
#[must_use]
pub fn switch_on(bug: Bug) -> Switch {
    ON.set(Some(bug));
    Switch { _of_thread: std::marker::PhantomData }
}

#[cfg(feature = "deliberate-bugs")]
impl Drop for Switch {
    fn drop(&mut self) {
        ON.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_has_a_name_of_its_own() {
        let mut names: Vec<&str> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Bug::ALL.len());
    }

    #[test]
    fn no_bug_is_on_unless_a_thread_switches_it_on() {
        assert!(Bug::ALL.iter().all(|bug| !on(*bug)));
    }

    #[cfg(feature = "deliberate-bugs")]
    #[test]
    fn switch_is_limited_to_one_bug_its_thread_and_its_life() {
        let switch = switch_on(Bug::LeaseNotChecked);
        assert!(on(Bug::LeaseNotChecked) && !on(Bug::FenceNotRaised));
        let elsewhere = std::thread::spawn(|| on(Bug::LeaseNotChecked)).join().expect("the thread ends");
        assert!(!elsewhere);
        drop(switch);
        assert!(!on(Bug::LeaseNotChecked));
    }
}

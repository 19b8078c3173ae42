//! How a workload recovers, as a table: the situation behind each value of [`Recovery`], who acts, and what is offered.
//!
//! `docs/recovery.md` prints it. Deliberately absent: which situation a workload is in (`status`), and the faults of each app (`apps/`).

use gpuaas_model::{FaultClass, Recovery};

/// What a value of [`Recovery`] means for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Situation {
    /// The value.
    pub recovery: Recovery,
    /// Class of the faults that lead to it, unless an operation decides.
    pub class: Option<FaultClass>,
    /// What happened.
    pub what: &'static str,
    /// Who acts.
    pub who: Actor,
    /// What they do.
    pub cure: &'static str,
    /// What is offered to the tenant.
    pub offers: &'static [Offer],
}

/// Who acts in a situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// Nobody needs to.
    Nobody,
    /// The platform, by itself.
    Platform,
    /// A person decides, and the platform does it.
    PersonThenPlatform,
    /// A person, outside of the platform.
    Person,
}

/// A command that a situation offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// End the operation.
    Cancel,
    /// Run the ended operation again, from what is missing.
    Resume,
    /// Restart and reinstall within a scope.
    Repair,
    /// Write files and settings again, without a restart.
    Reconcile,
    /// Remove the workload.
    Decommission,
}

impl Actor {
    /// Returns the text for a table.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Platform => "platform",
            Self::PersonThenPlatform => "a person chooses, the platform executes",
            Self::Person => "a person",
        }
    }
}

impl Offer {
    /// Returns the command line with placeholders.
    pub const fn command(self) -> &'static str {
        match self {
            Self::Cancel => "gpuaas operation cancel ID",
            Self::Resume => "gpuaas workload resume NAME",
            Self::Repair => "gpuaas workload repair NAME --scope SCOPE",
            Self::Reconcile => "gpuaas workload reconcile NAME",
            Self::Decommission => "gpuaas workload decommission NAME",
        }
    }
}

/// Every situation, from the lightest to the gravest.
pub const SITUATIONS: &[Situation] = &[
    Situation {
        recovery: Recovery::None,
        class: None,
        what: "nothing is wrong",
        who: Actor::Nobody,
        cure: "nothing",
        offers: &[],
    },
    Situation {
        recovery: Recovery::Retrying,
        class: None,
        what: "a step failed in a way that may pass",
        who: Actor::Platform,
        cure: "repeats the same step, with growing waits; if the last attempt fails, too, a person resumes the operation once it has ended",
        offers: &[Offer::Cancel],
    },
    Situation {
        recovery: Recovery::Reconciling,
        class: None,
        what: "files, settings or records deviate, and the desired ones are known",
        who: Actor::Platform,
        cure: "writes them again, at most three times within an hour; restarts and reinstalls nothing, and yields to every request",
        offers: &[],
    },
    Situation {
        recovery: Recovery::Resumable,
        class: Some(FaultClass::Retryable),
        what: "the operation ended before all its steps were done, and the cause may have passed",
        who: Actor::PersonThenPlatform,
        cure: "resumes it: what is done is not repeated",
        offers: &[Offer::Resume, Offer::Decommission],
    },
    Situation {
        recovery: Recovery::RepairAvailable,
        class: Some(FaultClass::Repairable),
        what: "services must be restarted or reinstalled",
        who: Actor::PersonThenPlatform,
        cure: "repairs within a scope: member, control-plane or whole-runtime; before the first deployment has ended, resumes it",
        offers: &[Offer::Repair, Offer::Resume, Offer::Decommission],
    },
    Situation {
        recovery: Recovery::ManualIntervention,
        class: Some(FaultClass::Manual),
        what: "something outside of the platform must change",
        who: Actor::Person,
        cure: "changes it, then resumes, which checks the preconditions again; after a drift, reconciles",
        offers: &[Offer::Resume, Offer::Reconcile, Offer::Decommission],
    },
    Situation {
        recovery: Recovery::Terminal,
        class: Some(FaultClass::Terminal),
        what: "the workload cannot be saved",
        who: Actor::Person,
        cure: "decommissions it and deploys it again",
        offers: &[Offer::Decommission],
    },
];

/// Returns the situation behind a value.
pub fn situation(recovery: Recovery) -> &'static Situation {
    SITUATIONS.iter().find(|of| of.recovery == recovery).expect("a test finds a situation for every value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_and_every_class_has_one_situation() {
        for recovery in Recovery::ALL {
            assert_eq!(SITUATIONS.iter().filter(|of| of.recovery == *recovery).count(), 1, "{recovery}");
            assert_eq!(situation(*recovery).recovery, *recovery);
        }
        for class in FaultClass::ALL {
            assert_eq!(SITUATIONS.iter().filter(|of| of.class == Some(*class)).count(), 1, "{class}");
        }
    }

    #[test]
    fn whatever_is_wrong_offers_a_way_out() {
        for of in SITUATIONS {
            let is_calm = matches!(of.recovery, Recovery::None | Recovery::Reconciling);
            assert_eq!(of.offers.is_empty(), is_calm, "{}", of.recovery);
            let waits_for_person = matches!(of.who, Actor::Person | Actor::PersonThenPlatform);
            assert_eq!(of.offers.contains(&Offer::Decommission), waits_for_person, "{}", of.recovery);
        }
    }
}

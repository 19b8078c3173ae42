//! What keeps a pod from being evicted.

use std::fmt;

use serde::Deserialize;

use crate::object_name::ObjectName;

/// Most budgets that a text names.
const BUDGETS_NAMED_MAX: usize = 3;

/// What keeps a pod from being evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// A PodDisruptionBudget allows no disruption now; `None` if it could not be identified.
    Budget(Option<Budget>),
    /// Several PodDisruptionBudgets select the pod, and Kubernetes evicts no such pod. Empty if they could not be read.
    Budgets(Vec<ObjectName>),
    /// The apiserver gives this reason, for example that of an admission webhook.
    Refusal(String),
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Its name, for example `web/api`.
    pub name: ObjectName,
    /// Its state, if it could be read.
    pub status: Option<BudgetStatus>,
}

/// The state of a PodDisruptionBudget, as Kubernetes' controller last computed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetStatus {
    /// Number of pods that may be disrupted now.
    #[serde(default)]
    pub disruptions_allowed: i32,
    /// Number of healthy pods.
    #[serde(default)]
    pub current_healthy: i32,
    /// Number of pods that must stay healthy.
    #[serde(default)]
    pub desired_healthy: i32,
}

impl Hold {
    /// Returns false for a hold by budgets whose names are unknown.
    pub(crate) fn is_identified(&self) -> bool {
        match self {
            Self::Budget(budget) => budget.is_some(),
            Self::Budgets(names) => !names.is_empty(),
            Self::Refusal(_) => true,
        }
    }
}

impl fmt::Display for Hold {
    /// Completes the sentence "POD is held by …".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget(None) => f.write_str("a budget that could not be read"),
            Self::Budget(Some(budget)) => budget.fmt(f),
            Self::Budgets(names) => {
                f.write_str("more than one budget, with which Kubernetes evicts no pod")?;
                for (index, name) in names.iter().take(BUDGETS_NAMED_MAX).enumerate() {
                    write!(f, "{}{name}", if index == 0 { ": " } else { ", " })?;
                }
                match names.len().saturating_sub(BUDGETS_NAMED_MAX) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
            Self::Refusal(message) => write!(f, "the apiserver: {message}"),
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "budget {}", self.name)?;
        let Some(BudgetStatus { disruptions_allowed, current_healthy, desired_healthy }) = self.status else {
            return Ok(());
        };
        write!(f, " (allows {disruptions_allowed} disruptions: {current_healthy} healthy, {desired_healthy} needed)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_names_its_budgets() {
        let name = |name: &str| ObjectName::new("web", name).unwrap();
        let status = BudgetStatus { disruptions_allowed: 0, current_healthy: 2, desired_healthy: 2 };
        let hold = |status| Hold::Budget(Some(Budget { name: name("api"), status })).to_string();
        assert_eq!(hold(Some(status)), "budget web/api (allows 0 disruptions: 2 healthy, 2 needed)");
        assert_eq!(hold(None), "budget web/api");
        let many = Hold::Budgets(["a", "b", "c", "d", "e"].map(name).into()).to_string();
        assert!(many.ends_with(": web/a, web/b, web/c and 2 more"), "{many}");
    }
}

//! The platform's own judgments of a member, one for each source: none overwrites another, and when one clears, the others remain.

use gpuaas_model::{Code, Health};
use serde::{Deserialize, Serialize};

use crate::report::Judgment;

/// What the platform judges a member by. If several show the same health, the first in this order explains it, because it causes the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The connection to the member's node.
    Node,
    /// The member's unit, as its agent reports it, and steps that checked the member's services.
    Unit,
    /// The app's cluster.
    Cluster,
}

/// What each source found. A source that finds the member well has no entry. Boxed, because most members are well and every row has this.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Judgments {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<Box<Judgment>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unit: Option<Box<Judgment>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster: Option<Box<Judgment>>,
}

impl Judgments {
    /// Returns the judgments of a member whose row has only the worst one, as earlier versions wrote it.
    pub fn of_sum(sum: Judgment) -> Self {
        let is_of_node = sum.fault.as_ref().is_some_and(|fault| fault.code == Code::NodeUnreachable.as_str());
        let mut judgments = Self::default();
        judgments.set(if is_of_node { Source::Node } else { Source::Unit }, sum);
        judgments
    }

    /// Returns true if no source finds anything.
    pub const fn is_empty(&self) -> bool {
        self.node.is_none() && self.unit.is_none() && self.cluster.is_none()
    }

    /// Returns what a source found; healthy if it found nothing.
    pub fn of(&self, source: Source) -> Judgment {
        let found = match source {
            Source::Node => &self.node,
            Source::Unit => &self.unit,
            Source::Cluster => &self.cluster,
        };
        found.as_deref().cloned().unwrap_or_else(well)
    }

    /// Replaces what a source found.
    pub fn set(&mut self, source: Source, judgment: Judgment) {
        let found = match source {
            Source::Node => &mut self.node,
            Source::Unit => &mut self.unit,
            Source::Cluster => &mut self.cluster,
        };
        *found = is_unwell(&judgment).then(|| Box::new(judgment));
    }

    /// Returns the worst judgment; healthy if no source finds anything.
    pub fn gravest(&self) -> Judgment {
        let found = [&self.node, &self.unit, &self.cluster].into_iter().flatten().map(AsRef::as_ref);
        found.reduce(Judgment::worse).cloned().unwrap_or_else(well)
    }
}

const fn well() -> Judgment {
    Judgment { health: Health::Healthy, fault: None }
}

/// Returns true if the judgment is `degraded` or `failed`.
pub(crate) const fn is_unwell(judgment: &Judgment) -> bool {
    matches!(judgment.health, Health::Degraded | Health::Failed)
}

#[cfg(test)]
mod tests {
    use gpuaas_model::{Fault, FaultClass, NextAction};

    use super::*;

    fn unwell(health: Health, code: &str) -> Judgment {
        let (class, next) = (FaultClass::Manual, NextAction::text("look"));
        let fault = Fault { code: code.to_owned(), class, summary: code.to_owned(), evidence: None, next };
        Judgment { health, fault: Some(fault) }
    }

    fn code(judgments: &Judgments) -> Option<String> {
        judgments.gravest().fault.map(|fault| fault.code)
    }

    #[test]
    fn judgment_that_clears_leaves_the_others() {
        let mut judgments = Judgments::default();
        assert_eq!(judgments.gravest(), well());
        judgments.set(Source::Cluster, unwell(Health::Degraded, "kube_node_not_ready"));
        judgments.set(Source::Unit, unwell(Health::Degraded, "rke2_service_down"));
        judgments.set(Source::Node, unwell(Health::Degraded, "node_unreachable"));
        for (expected, source) in [
            (Some("node_unreachable"), Source::Node),
            (Some("rke2_service_down"), Source::Unit),
            (Some("kube_node_not_ready"), Source::Cluster),
        ] {
            assert_eq!(code(&judgments).as_deref(), expected);
            judgments.set(source, well());
        }
        assert!(judgments.is_empty() && judgments.gravest() == well());
    }

    #[test]
    fn gravest_judgment_counts_before_the_order_of_sources() {
        let mut judgments = Judgments::default();
        judgments.set(Source::Node, unwell(Health::Degraded, "node_unreachable"));
        judgments.set(Source::Cluster, unwell(Health::Failed, "lost"));
        assert_eq!(code(&judgments).as_deref(), Some("lost"));
    }

    #[test]
    fn sum_of_an_earlier_version_belongs_to_the_source_that_can_clear_it() {
        let of = |code: &str| Judgments::of_sum(unwell(Health::Degraded, code));
        assert_eq!(of("node_unreachable").of(Source::Unit), well());
        assert_eq!(of("rke2_service_down").of(Source::Node), well());
        assert!(Judgments::of_sum(well()).is_empty());
    }
}

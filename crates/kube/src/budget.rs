//! PodDisruptionBudgets: identifies those that hold a pod, so that a person can be shown their names and what they allow.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{
    calls::Call,
    cluster::Cluster,
    error::KubeError,
    hold::{Budget, BudgetStatus},
    json::{AtMost, TextsAtMost},
    limits::{BUDGETS_MAX, BUDGETS_PER_PAGE, EVENT_BYTES_MAX, LABELS_MAX, PAGE_BYTES_MAX},
    list::Selection,
    object_name::ObjectName,
};

/// Most expressions of a selector, and most values of an expression.
const SELECTOR_MAX: usize = 64;

/// The parts of a PodDisruptionBudget that are read.
#[derive(Deserialize)]
struct FoundBudget {
    #[serde(default)]
    metadata: FoundMetadata,
    #[serde(default)]
    spec: FoundSpec,
    status: Option<BudgetStatus>,
}

#[derive(Default, Deserialize)]
struct FoundMetadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    labels: TextsAtMost<LABELS_MAX>,
}

#[derive(Default, Deserialize)]
struct FoundSpec {
    selector: Option<Selector>,
}

/// An object of which only the metadata is read.
#[derive(Deserialize)]
struct Labelled {
    #[serde(default)]
    metadata: FoundMetadata,
}

/// A label selector; an empty one selects every pod of the namespace.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Selector {
    #[serde(default)]
    match_labels: TextsAtMost<LABELS_MAX>,
    #[serde(default)]
    match_expressions: AtMost<Expression, SELECTOR_MAX>,
}

#[derive(Deserialize)]
struct Expression {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: AtMost<String, SELECTOR_MAX>,
}

#[derive(Clone, Copy, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Selector {
    fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.0.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.0.iter().all(|expression| expression.holds(labels))
    }
}

impl Expression {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let is_listed = value.is_some_and(|value| self.values.0.contains(value));
        match self.operator {
            Operator::In => is_listed,
            Operator::NotIn => !is_listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

impl Cluster {
    /// Returns a budget with its state.
    pub(crate) async fn budget(&self, name: &ObjectName) -> Result<Budget, KubeError> {
        let path = format!("{}/{}", path(&name.namespace), name.name);
        let found: FoundBudget = self.calls.make(Call::get(path).up_to(PAGE_BYTES_MAX)).await?.object()?;
        Ok(Budget { name: name.clone(), status: found.status })
    }

    /// Returns the budgets that select this pod, at its present labels. Budgets without a valid name are left out.
    pub(crate) async fn budgets_of(&self, pod: &ObjectName) -> Result<Vec<Budget>, KubeError> {
        let of = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        let call = Call::get(of).metadata().up_to(EVENT_BYTES_MAX);
        let labels = self.calls.make(call).await?.object::<Labelled>()?.metadata.labels.0;
        let path = path(&pod.namespace);
        let selection = Selection { path: &path, fields: "", noun: "PodDisruptionBudgets in this namespace" };
        let keep = |found: FoundBudget| {
            let name = ObjectName::new(&pod.namespace, &found.metadata.name);
            let selects = found.spec.selector.is_some_and(|selector| selector.selects(&labels));
            Ok(name.filter(|_| selects).map(|name| Budget { name, status: found.status }))
        };
        let listed = self.list::<_, _, BUDGETS_PER_PAGE>(&selection, BUDGETS_MAX, keep).await?;
        Ok(listed.items.into_iter().flatten().collect())
    }
}

/// Returns the API path of a namespace's PodDisruptionBudgets.
fn path(namespace: &str) -> String {
    format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(selector: serde_json::Value) -> bool {
        let labels = BTreeMap::from([("app".to_owned(), "api".to_owned()), ("tier".to_owned(), "web".to_owned())]);
        serde_json::from_value::<Selector>(selector).unwrap().selects(&labels)
    }

    #[test]
    fn a_selector_selects_as_kubernetes_does() {
        let expression = |key: &str, operator: &str, values: &[&str]| {
            selects(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
        };
        assert!(selects(json!({})) && selects(json!({"matchLabels": {"app": "api"}})));
        assert!(!selects(json!({"matchLabels": {"app": "api", "tier": "db"}})));
        assert!(expression("app", "In", &["db", "api"]) && !expression("app", "In", &["db"]));
        assert!(expression("app", "NotIn", &["db"]) && !expression("app", "NotIn", &["api"]));
        assert!(expression("absent", "NotIn", &["db"]), "an absent label is in no list");
        assert!(expression("app", "Exists", &[]) && !expression("absent", "Exists", &[]));
        assert!(expression("absent", "DoesNotExist", &[]) && !expression("app", "DoesNotExist", &[]));
    }
}

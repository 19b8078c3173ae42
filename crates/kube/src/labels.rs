//! Sets labels of KubeNodes.

use std::collections::BTreeMap;

use serde_json::json;

use crate::{cluster::Cluster, error::KubeError};

impl Cluster {
    /// Gives the KubeNode these labels and leaves all others. Returns the keys of those that it lacked or that had another value; if there
    /// are none, it changes nothing. Fails with [`KubeError::NoKubeNode`] if there is no such KubeNode.
    pub async fn label_kube_node(
        &self,
        name: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, KubeError> {
        let present = self.kube_node(name).await?.labels;
        let differing = differing(labels, &present);
        if !differing.is_empty() {
            self.patch_kube_node(name, json!({ "metadata": { "labels": differing } })).await?;
        }
        Ok(differing.into_keys().cloned().collect())
    }
}

/// Returns the labels that `present` lacks or has with another value.
fn differing<'a>(
    labels: &'a BTreeMap<String, String>,
    present: &BTreeMap<String, String>,
) -> BTreeMap<&'a String, &'a String> {
    labels.iter().filter(|(key, value)| present.get(*key) != Some(*value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_that_differ_are_set() {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let wanted = map(&[("rack", "b12"), ("row", "4"), ("zone", "")]);
        let present = map(&[("rack", "b12"), ("row", "5"), ("other", "stays")]);
        assert_eq!(differing(&wanted, &present).into_keys().collect::<Vec<_>>(), ["row", "zone"]);
        assert!(differing(&wanted, &wanted).is_empty());
    }
}

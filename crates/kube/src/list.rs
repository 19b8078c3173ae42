//! Reads lists page by page, with a limit for the number of objects and of pages.

use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    calls::Call,
    cluster::Cluster,
    error::KubeError,
    json::AtMost,
    limits::{CONTINUE_BYTES_MAX, PAGE_BYTES_MAX, WATCH_SECONDS},
};

/// Objects of one kind.
pub(crate) struct Selection<'a> {
    /// API path of the list.
    pub(crate) path: &'a str,
    /// Field selector, for example `metadata.name=gpu-1`; empty for all objects.
    pub(crate) fields: &'a str,
    /// The objects in a text, for example `KubeNodes`.
    pub(crate) noun: &'static str,
}

/// A list, and its version, from which a watch continues.
pub(crate) struct Listed<T> {
    pub(crate) items: Vec<T>,
    pub(crate) version: String,
}

/// A page of at most `MAX` objects.
#[derive(Debug, Deserialize)]
pub(crate) struct Page<T, const MAX: usize> {
    #[serde(default)]
    metadata: ListMetadata,
    #[serde(default = "AtMost::default")]
    items: AtMost<T, MAX>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    #[serde(default)]
    resource_version: String,
    /// Token of the next page; empty on the last page.
    #[serde(default, rename = "continue")]
    next: String,
}

impl Selection<'_> {
    fn target(&self, pairs: &[(&str, &str)]) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if !self.fields.is_empty() {
            query.append_pair("fieldSelector", self.fields);
        }
        format!("{}?{}", self.path, query.extend_pairs(pairs).finish())
    }

    fn page(&self, limit: usize, next: &str) -> Call {
        let limit = limit.to_string();
        Call::get(self.target(&[("limit", &limit), ("continue", next)])).up_to(PAGE_BYTES_MAX)
    }

    /// Returns the call that watches these objects from a version on.
    pub(crate) fn watch(&self, version: &str) -> Call {
        Call::get(self.target(&[
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &WATCH_SECONDS.to_string()),
            ("resourceVersion", version),
        ]))
    }
}

impl Cluster {
    /// Returns what `keep` makes of each object, in the cluster's order. Reads pages of `PER_PAGE` objects, and smaller ones where objects
    /// are so large that a page exceeds its limit. Fails if there are more than `items_max` objects, or more pages than that.
    pub(crate) async fn list<T: DeserializeOwned, U, const PER_PAGE: usize>(
        &self,
        of: &Selection<'_>,
        items_max: usize,
        keep: impl Fn(T) -> Result<U, KubeError>,
    ) -> Result<Listed<U>, KubeError> {
        let mut items = Vec::new();
        let (mut limit, mut next) = (PER_PAGE, String::new());
        for _ in 0..=items_max {
            let page = loop {
                match self.calls.make(of.page(limit, &next)).await {
                    Err(KubeError::TooLong { .. }) if limit > 1 => limit /= 2,
                    answer => break answer?.object::<Page<T, PER_PAGE>>()?,
                }
            };
            for item in page.items.0 {
                items.push(keep(item)?);
            }
            next = page.metadata.next;
            if next.is_empty() && items.len() <= items_max {
                return Ok(Listed { items, version: page.metadata.resource_version });
            }
            if items.len() > items_max || next.len() > CONTINUE_BYTES_MAX {
                break;
            }
        }
        Err(KubeError::Unreadable(format!("the cluster has more than {items_max} {}", of.noun)))
    }
}

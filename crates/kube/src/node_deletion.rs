//! Deletes a KubeNode and waits until it is gone.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::{
    calls::Call,
    cluster::{Cluster, Progress},
    error::KubeError,
    events::{self, EventKind},
    json::AtMost,
    limits::EVENT_BYTES_MAX,
    list::Selection,
    node::{NODES, node_path},
    text::bounded,
    wait::{REWATCH_AFTER, Wait},
};

/// Most finalizers of a KubeNode; storage and cloud controllers set one each.
const FINALIZERS_MAX: usize = 64;

/// The parts of a KubeNode that its deletion needs.
#[derive(Debug, Default, Deserialize)]
struct Remnant {
    #[serde(default)]
    metadata: RemnantMetadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RemnantMetadata {
    #[serde(default)]
    resource_version: String,
    deletion_timestamp: Option<Timestamp>,
    #[serde(default)]
    finalizers: AtMost<String, FINALIZERS_MAX>,
}

impl Cluster {
    /// Deletes the KubeNode with this name, and watches until it is gone: controllers can hold it with finalizers. Returns `false` if there
    /// was none, and fails with [`KubeError::NotReady`] after `timeout`. With a `uid` only this KubeNode is deleted: one that has registered
    /// under its name since stays, and the result is `false`.
    ///
    /// Stop the kubelet first. A kubelet that still runs creates the KubeNode again when it restarts, and then without its cordon
    /// (measured).
    pub async fn delete_kube_node(
        &self,
        name: &str,
        uid: Option<&str>,
        timeout: Duration,
        progress: Progress<'_>,
    ) -> Result<bool, KubeError> {
        let path = node_path(name)?;
        match self.calls.make(deletion(&path, uid)).await?.success() {
            Ok(_) => {}
            Err(KubeError::NotFound(_)) => return Ok(false),
            Err(KubeError::Conflict(_)) if uid.is_some() => return Ok(false),
            Err(error) => return Err(error),
        }
        let wait = Wait::new(progress);
        tokio::select! {
            biased;
            gone = self.await_deletion(name, &path, &wait) => gone.map(|()| true),
            never = wait.report() => match never {},
            () = tokio::time::sleep(timeout) => Err(wait.timeout_error()),
        }
    }

    async fn await_deletion(&self, name: &str, path: &str, wait: &Wait<'_>) -> Result<(), KubeError> {
        loop {
            match self.watch_deletion(name, path, wait).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) if events::is_too_old(&error) => {}
                Err(error) if events::is_transient(&error) => wait.set_reason(error.to_string()),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(REWATCH_AFTER).await;
        }
    }

    /// Reads the KubeNode and watches it; returns true when it is gone, and false if the watch ended before.
    async fn watch_deletion(&self, name: &str, path: &str, wait: &Wait<'_>) -> Result<bool, KubeError> {
        let read = self.calls.make(Call::get(path).metadata().up_to(EVENT_BYTES_MAX)).await?;
        let remnant: Remnant = match read.object() {
            Err(KubeError::NotFound(_)) => return Ok(true),
            read => read?,
        };
        // A KubeNode that is not being deleted is another one: its kubelet has registered again.
        if remnant.metadata.deletion_timestamp.is_none() {
            return Ok(true);
        }
        wait.set_reason(held(name, &remnant.metadata.finalizers.0));
        let fields = format!("metadata.name={name}");
        let selection = Selection { path: NODES, fields: &fields, noun: "KubeNodes of one name" };
        let call = selection.watch(&remnant.metadata.resource_version).metadata().up_to(EVENT_BYTES_MAX);
        let mut watch = self.calls.watch(call).await?;
        while let Some(event) = events::next::<Remnant>(&mut watch).await? {
            match event.kind {
                EventKind::Deleted => return Ok(true),
                EventKind::Added | EventKind::Modified => {
                    wait.set_reason(held(name, &event.object.metadata.finalizers.0));
                }
                EventKind::Bookmark => {}
            }
        }
        Ok(false)
    }
}

/// Returns the call that deletes the KubeNode; with a `uid` only that one.
fn deletion(path: &str, uid: Option<&str>) -> Call {
    let Some(uid) = uid else { return Call::delete(format!("{path}?propagationPolicy=Background")) };
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "preconditions": { "uid": uid },
    });
    Call::delete(path).with("application/json", options)
}

/// Describes a KubeNode that is being deleted.
fn held(name: &str, finalizers: &[String]) -> String {
    match finalizers {
        [] => format!("KubeNode {name} is being deleted"),
        [one] => format!("KubeNode {name} is held by finalizer {}", bounded(one)),
        [one, more @ ..] => format!("KubeNode {name} is held by finalizer {} and {} more", bounded(one), more.len()),
    }
}

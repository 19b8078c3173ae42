//! Waits for a KubeNode to become ready, with a watch that is opened again when it ends.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    cluster::{Cluster, Progress},
    error::KubeError,
    events::{self, EventKind},
    limits::{EVENT_BYTES_MAX, NODES_PER_PAGE},
    list::Selection,
    node::{KubeNode, NODES, Node},
    wait::{REWATCH_AFTER, Wait},
};

/// The KubeNode that a wait is about.
#[derive(Clone, Copy, Debug)]
struct Awaited<'a> {
    name: &'a str,
    started_at: Option<Timestamp>,
}

impl Cluster {
    /// Watches until the KubeNode with this name is ready, and returns it.
    ///
    /// With `started_at`, the time at which its kubelet was started by its node's clock, only what that kubelet reports counts: an apiserver
    /// shows the last report of a kubelet that has ended for about 44 s, and for longer if it was down itself.
    ///
    /// Opens a watch again if it ends, breaks or becomes too old. Fails at once if waiting cannot help (credentials, rights, certificate),
    /// and with [`KubeError::NotReady`] after `timeout`. `progress` receives changes such as `no KubeNode yet (3 s)` or `kubelet not
    /// ready: … (31 s)`, at most four a second, and at least one report every five seconds or so.
    pub async fn await_kube_node_ready(
        &self,
        name: &str,
        started_at: Option<Timestamp>,
        timeout: Duration,
        progress: Progress<'_>,
    ) -> Result<KubeNode, KubeError> {
        let wait = Wait::new(progress);
        tokio::select! {
            biased;
            node = self.follow(Awaited { name, started_at }, &wait) => node,
            never = wait.report() => match never {},
            () = tokio::time::sleep(timeout) => Err(wait.timeout_error()),
        }
    }

    async fn follow(&self, awaited: Awaited<'_>, wait: &Wait<'_>) -> Result<KubeNode, KubeError> {
        loop {
            match self.list_then_watch(awaited, wait).await {
                Ok(node) => return Ok(node),
                Err(error) if events::is_too_old(&error) => {}
                Err(error) if events::is_transient(&error) => wait.set_reason(error.to_string()),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(REWATCH_AFTER).await;
        }
    }

    /// Lists and watches until the KubeNode is ready.
    async fn list_then_watch(&self, awaited: Awaited<'_>, wait: &Wait<'_>) -> Result<KubeNode, KubeError> {
        let fields = format!("metadata.name={}", awaited.name);
        let selection = Selection { path: NODES, fields: &fields, noun: "KubeNodes of one name" };
        let list = self.list::<Node, Node, NODES_PER_PAGE>(&selection, NODES_PER_PAGE, Ok).await?;
        let mut version = list.version;
        if let Some(node) = check_ready(wait, awaited, list.items.into_iter().next()) {
            return Ok(node);
        }
        loop {
            let mut watch = self.calls.watch(selection.watch(&version).up_to(EVENT_BYTES_MAX)).await?;
            while let Some(event) = events::next::<Node>(&mut watch).await? {
                let node = event.object;
                if !node.metadata.resource_version.is_empty() {
                    version.clone_from(&node.metadata.resource_version);
                }
                let seen = match event.kind {
                    EventKind::Bookmark => continue,
                    EventKind::Added | EventKind::Modified => Some(node),
                    EventKind::Deleted => None,
                };
                if let Some(node) = check_ready(wait, awaited, seen) {
                    return Ok(node);
                }
            }
            tokio::time::sleep(REWATCH_AFTER).await;
        }
    }
}

/// Returns the node if it is ready; otherwise records the reason.
fn check_ready(wait: &Wait<'_>, awaited: Awaited<'_>, node: Option<Node>) -> Option<KubeNode> {
    let Some(node) = node.map(KubeNode::from) else {
        wait.set_reason("no KubeNode yet".into());
        return None;
    };
    let reason = match awaited.started_at {
        Some(started_at) => node.not_ready_reason_since(started_at),
        None => node.not_ready_reason(),
    };
    match reason {
        None => Some(node),
        Some(why) => {
            wait.set_reason(why);
            None
        }
    }
}

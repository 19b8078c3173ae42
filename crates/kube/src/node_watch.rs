//! Waits for a KubeNode to become ready, with a watch that is opened again when it ends.

use std::time::Duration;

use crate::{
    cluster::{Cluster, Progress},
    error::KubeError,
    events::{self, EventKind},
    limits::{EVENT_BYTES_MAX, NODES_PER_PAGE},
    list::Selection,
    node::{KubeNode, NODES, Node},
    wait::{REWATCH_AFTER, Wait},
};

impl Cluster {
    /// Watches until the KubeNode with this name is ready, and returns it.
    ///
    /// Opens a watch again if it ends, breaks or becomes too old. Fails at once if waiting cannot help (credentials, rights, certificate),
    /// and with [`KubeError::NotReady`] after `timeout`. `progress` receives changes such as `no KubeNode yet (3 s)` or `kubelet not
    /// ready: … (31 s)`, at most four a second, and at least one report every five seconds or so.
    pub async fn await_kube_node_ready(
        &self,
        name: &str,
        timeout: Duration,
        progress: Progress<'_>,
    ) -> Result<KubeNode, KubeError> {
        let wait = Wait::new(progress);
        tokio::select! {
            biased;
            node = self.follow(name, &wait) => node,
            never = wait.report() => match never {},
            () = tokio::time::sleep(timeout) => Err(wait.timeout_error()),
        }
    }

    async fn follow(&self, name: &str, wait: &Wait<'_>) -> Result<KubeNode, KubeError> {
        loop {
            match self.list_then_watch(name, wait).await {
                Ok(node) => return Ok(node),
                Err(error) if events::is_too_old(&error) => {}
                Err(error) if events::is_transient(&error) => wait.set_reason(error.to_string()),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(REWATCH_AFTER).await;
        }
    }

    /// Lists and watches until the KubeNode is ready.
    async fn list_then_watch(&self, name: &str, wait: &Wait<'_>) -> Result<KubeNode, KubeError> {
        let fields = format!("metadata.name={name}");
        let selection = Selection { path: NODES, fields: &fields, noun: "KubeNodes of one name" };
        let list = self.list::<Node, Node, NODES_PER_PAGE>(&selection, NODES_PER_PAGE, Ok).await?;
        let mut version = list.version;
        if let Some(node) = check_ready(wait, list.items.into_iter().next()) {
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
                if let Some(node) = check_ready(wait, seen) {
                    return Ok(node);
                }
            }
            tokio::time::sleep(REWATCH_AFTER).await;
        }
    }
}

/// Returns the node if it is ready; otherwise records the reason.
fn check_ready(wait: &Wait<'_>, node: Option<Node>) -> Option<KubeNode> {
    let Some(node) = node.map(KubeNode::from) else {
        wait.set_reason("no KubeNode yet".into());
        return None;
    };
    match node.not_ready_reason() {
        None => Some(node),
        Some(why) => {
            wait.set_reason(why);
            None
        }
    }
}

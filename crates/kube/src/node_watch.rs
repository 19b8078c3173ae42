//! Waiting for a KubeNode to become ready, by a watch that survives its own ends.

use std::{convert::Infallible, sync::Mutex, time::Duration};

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use tokio::time::Instant;

use crate::{
    answer,
    cluster::{Cluster, Progress},
    error::{KubeError, answered},
    node::KubeNode,
};

/// The pause before a watch that ended or broke is opened anew.
const REWATCH_AFTER: Duration = Duration::from_millis(250);
/// An unchanged wait is told again this often, with its age.
const RETELL_EVERY: Duration = Duration::from_secs(5);
/// The apiserver's word for a resource version that is too old to watch from.
const GONE: u16 = 410;

impl Cluster {
    /// Watches until the KubeNode of that name is ready, and returns it.
    ///
    /// Watches that end, break or become too old are opened anew. Ends at once when waiting cannot help (credentials, rights,
    /// certificate), and with [`KubeError::NotReady`] when `patience` is over. `progress` hears each change, such as
    /// `no KubeNode yet (3 s)` or `kubelet not ready: … (31 s)`.
    pub async fn await_kube_node_ready(
        &self,
        name: &str,
        patience: Duration,
        progress: Progress<'_>,
    ) -> Result<KubeNode, KubeError> {
        let wait = Wait::new(progress);
        tokio::select! {
            node = self.follow(name, &wait) => node,
            never = wait.retell() => match never {},
            () = tokio::time::sleep(patience) => Err(wait.over()),
        }
    }

    async fn follow(&self, name: &str, wait: &Wait<'_>) -> Result<KubeNode, KubeError> {
        loop {
            match self.list_then_watch(name, wait).await {
                Ok(Some(node)) => return Ok(node),
                Ok(None) => {}
                Err(error) if passes(&error) => wait.sees(error.to_string()),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(REWATCH_AFTER).await;
        }
    }

    /// `None`: the watch became too old, list again.
    async fn list_then_watch(&self, name: &str, wait: &Wait<'_>) -> Result<Option<KubeNode>, KubeError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let selector = format!("metadata.name={name}");
        let list = answer::in_time(api.list(&ListParams::default().fields(&selector))).await?;
        let mut version = list.metadata.resource_version.clone().unwrap_or_default();
        if let Some(node) = wait.judges(list.items.into_iter().next()) {
            return Ok(Some(node));
        }
        let params = WatchParams::default().fields(&selector);
        loop {
            let events = answer::in_time(api.watch(&params, &version)).await?;
            pin_mut!(events);
            while let Some(event) = events.next().await {
                let node = match event? {
                    WatchEvent::Added(node) | WatchEvent::Modified(node) => Some(node),
                    WatchEvent::Deleted(_) => None,
                    WatchEvent::Bookmark(bookmark) => {
                        version = bookmark.metadata.resource_version;
                        continue;
                    }
                    WatchEvent::Error(status) if status.code == GONE => return Ok(None),
                    WatchEvent::Error(status) => return Err(answered(status.code, &status.message)),
                };
                if let Some(seen) = node.as_ref().and_then(|node| node.metadata.resource_version.clone()) {
                    version = seen;
                }
                if let Some(node) = wait.judges(node) {
                    return Ok(Some(node));
                }
            }
            tokio::time::sleep(REWATCH_AFTER).await;
        }
    }
}

/// Whether a new watch may do better: the connection, an apiserver that restarts or is busy, a version too old.
fn passes(error: &KubeError) -> bool {
    error.is_transport() || matches!(error, KubeError::Answered { status: 429 | GONE | 500.., .. })
}

/// One wait: what it waits for now, and since when.
struct Wait<'a> {
    began: Instant,
    waits_for: Mutex<String>,
    progress: Progress<'a>,
}

impl<'a> Wait<'a> {
    fn new(progress: Progress<'a>) -> Self {
        Self { began: Instant::now(), waits_for: Mutex::new("no answer yet".into()), progress }
    }

    fn current(&self) -> String {
        self.waits_for.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn tell(&self, text: &str) {
        (self.progress)(format!("{text} ({} s)", self.began.elapsed().as_secs()));
    }

    fn sees(&self, text: String) {
        if self.current() != text {
            self.tell(&text);
            *self.waits_for.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = text;
        }
    }

    /// The node when it is ready; otherwise notes why it is not.
    fn judges(&self, node: Option<Node>) -> Option<KubeNode> {
        let Some(node) = node.map(KubeNode::from) else {
            self.sees("no KubeNode yet".into());
            return None;
        };
        match node.not_ready_because() {
            None => Some(node),
            Some(why) => {
                self.sees(why);
                None
            }
        }
    }

    /// For a person who watches: nothing has changed, and it is still going on.
    async fn retell(&self) -> Infallible {
        loop {
            tokio::time::sleep(RETELL_EVERY).await;
            self.tell(&self.current());
        }
    }

    fn over(&self) -> KubeError {
        KubeError::NotReady { last: self.current(), seconds: self.began.elapsed().as_secs() }
    }
}

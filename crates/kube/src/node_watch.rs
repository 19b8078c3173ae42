//! Waits for a KubeNode to become ready, with a watch that is opened again when it ends.

use std::{convert::Infallible, sync::Mutex, time::Duration};

use serde::Deserialize;
use tokio::{sync::Notify, time::Instant};

use crate::{
    calls::Call,
    cluster::{Cluster, Progress},
    error::{KubeError, status_error},
    json,
    limits::{EVENT_BYTES_MAX, NODES_BYTES_MAX, NODES_PER_PAGE, WATCH_SECONDS},
    node::{KubeNode, NODES, Node, NodeList},
};

/// Pause before a watch that ended or broke is opened again.
const REWATCH_AFTER: Duration = Duration::from_millis(250);
/// An unchanged wait is reported again after this time, with its age.
const REPEAT_EVERY: Duration = Duration::from_secs(5);
/// Shortest time between two reports; the newest state is reported. Each report changes rows, and a cluster may change its state at any
/// rate.
const REPORT_EVERY_MIN: Duration = Duration::from_millis(250);
/// HTTP status for a resource version that is too old to watch from.
const GONE: u16 = 410;

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
            node = self.follow(name, &wait) => node,
            never = wait.report() => match never {},
            () = tokio::time::sleep(timeout) => Err(wait.timeout_error()),
        }
    }

    async fn follow(&self, name: &str, wait: &Wait<'_>) -> Result<KubeNode, KubeError> {
        loop {
            match self.list_then_watch(name, wait).await {
                Ok(Some(node)) => return Ok(node),
                Ok(None) => {}
                Err(error) if is_transient(&error) => wait.set_reason(error.to_string()),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(REWATCH_AFTER).await;
        }
    }

    /// Lists and watches; returns `None` if the watch became too old and the list must be read again.
    async fn list_then_watch(&self, name: &str, wait: &Wait<'_>) -> Result<Option<KubeNode>, KubeError> {
        let selector = format!("metadata.name={name}");
        let query = |pairs: &[(&str, &str)]| {
            let mut query = form_urlencoded::Serializer::new(String::new());
            format!("{NODES}?{}", query.append_pair("fieldSelector", &selector).extend_pairs(pairs).finish())
        };
        let call = Call::get(query(&[("limit", &NODES_PER_PAGE.to_string())])).up_to(NODES_BYTES_MAX);
        let list: NodeList = self.calls.make(call).await?.object()?;
        let mut version = list.metadata.resource_version;
        if let Some(node) = wait.check_ready(list.items.0.into_iter().next()) {
            return Ok(Some(node));
        }
        loop {
            let target = query(&[
                ("watch", "true"),
                ("allowWatchBookmarks", "true"),
                ("timeoutSeconds", &WATCH_SECONDS.to_string()),
                ("resourceVersion", &version),
            ]);
            let mut watch = self.calls.watch(Call::get(target).up_to(EVENT_BYTES_MAX)).await?;
            while let Some(line) = watch.next().await? {
                let kind = json::read::<EventType>(&line)?.kind;
                if let EventKind::Error = kind {
                    let status = json::read::<Event<Status>>(&line)?.object;
                    return if status.code == GONE {
                        Ok(None)
                    } else {
                        Err(status_error(status.code, &status.message))
                    };
                }
                let node = json::read::<Event<Node>>(&line)?.object;
                let seen = node.metadata.resource_version.clone();
                if let EventKind::Bookmark = kind {
                    version = seen;
                    continue;
                }
                if !seen.is_empty() {
                    version = seen;
                }
                let is_there = !matches!(kind, EventKind::Deleted);
                if let Some(node) = wait.check_ready(is_there.then_some(node)) {
                    return Ok(Some(node));
                }
            }
            tokio::time::sleep(REWATCH_AFTER).await;
        }
    }
}

/// The type of a line; read before the object, whose structure depends on it.
#[derive(Deserialize)]
struct EventType {
    #[serde(rename = "type")]
    kind: EventKind,
}

#[derive(Deserialize)]
struct Event<T> {
    object: T,
}

/// Kubernetes' object for an error.
#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum EventKind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

/// Returns true if a new watch may succeed: after a connection error, with an apiserver that restarts or is busy, or after a too old
/// version.
fn is_transient(error: &KubeError) -> bool {
    error.is_transport()
        || matches!(error, KubeError::Busy { .. } | KubeError::Answered { status: 429 | GONE | 500.., .. })
}

/// A wait: its current reason and its start.
struct Wait<'a> {
    began: Instant,
    reason: Mutex<String>,
    changed: Notify,
    progress: Progress<'a>,
}

impl<'a> Wait<'a> {
    fn new(progress: Progress<'a>) -> Self {
        Self { began: Instant::now(), reason: Mutex::new("no answer yet".into()), changed: Notify::new(), progress }
    }

    fn current(&self) -> String {
        self.reason.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn set_reason(&self, text: String) {
        let mut reason = self.reason.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *reason != text {
            *reason = text;
            self.changed.notify_one();
        }
    }

    /// Returns the node if it is ready; otherwise records the reason.
    fn check_ready(&self, node: Option<Node>) -> Option<KubeNode> {
        let Some(node) = node.map(KubeNode::from) else {
            self.set_reason("no KubeNode yet".into());
            return None;
        };
        match node.not_ready_reason() {
            None => Some(node),
            Some(why) => {
                self.set_reason(why);
                None
            }
        }
    }

    /// Reports the reason of the wait: when it changes, and from time to time if it does not, for people who follow it.
    async fn report(&self) -> Infallible {
        loop {
            // A timeout is a reason to report too: the age has changed.
            let _ = tokio::time::timeout(REPEAT_EVERY, self.changed.notified()).await;
            (self.progress)(format!("{} ({} s)", self.current(), self.began.elapsed().as_secs()));
            tokio::time::sleep(REPORT_EVERY_MIN).await;
        }
    }

    fn timeout_error(&self) -> KubeError {
        KubeError::NotReady { last: self.current(), seconds: self.began.elapsed().as_secs() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn progress_is_throttled_and_the_last_reason_is_reported() {
        let reported = Mutex::new(Vec::new());
        let progress = |text: String| reported.lock().unwrap().push(text);
        let wait = Wait::new(&progress);
        let flood = async {
            for number in 0..10_000 {
                wait.set_reason(format!("reason {number}"));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(REPORT_EVERY_MIN).await;
        };
        tokio::select! {
            never = wait.report() => match never {},
            () = flood => {}
        }
        let reported = reported.into_inner().unwrap();
        assert!((30..=45).contains(&reported.len()), "{}", reported.len());
        assert!(reported.last().unwrap().starts_with("reason 9999 "), "{reported:?}");
    }
}

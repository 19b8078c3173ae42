//! Waiting for a KubeNode to become ready, by a watch that survives its own ends.

use std::{convert::Infallible, sync::Mutex, time::Duration};

use serde::Deserialize;
use tokio::{sync::Notify, time::Instant};

use crate::{
    calls::Call,
    cluster::{Cluster, Progress},
    error::{KubeError, answered},
    json,
    limits::{EVENT_BYTES_MAX, NODES_BYTES_MAX, NODES_PER_PAGE, WATCH_SECONDS},
    node::{KubeNode, NODES, Node, NodeList},
};

/// The pause before a watch that ended or broke is opened anew.
const REWATCH_AFTER: Duration = Duration::from_millis(250);
/// An unchanged wait is told again this often, with its age.
const RETELL_EVERY: Duration = Duration::from_secs(5);
/// Changes are told at most this often, the newest of them: each is a change of rows, and a cluster may report as quickly as it likes.
const TELL_EVERY: Duration = Duration::from_millis(250);
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
            never = wait.report() => match never {},
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
        let selector = format!("metadata.name={name}");
        let query = |pairs: &[(&str, &str)]| {
            let mut query = form_urlencoded::Serializer::new(String::new());
            format!("{NODES}?{}", query.append_pair("fieldSelector", &selector).extend_pairs(pairs).finish())
        };
        let call = Call::get(query(&[("limit", &NODES_PER_PAGE.to_string())])).up_to(NODES_BYTES_MAX);
        let list: NodeList = self.calls.make(call).await?.object()?;
        let mut version = list.metadata.resource_version;
        if let Some(node) = wait.judges(list.items.0.into_iter().next()) {
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
                    let told = json::read::<Event<Status>>(&line)?.object;
                    return if told.code == GONE { Ok(None) } else { Err(answered(told.code, &told.message)) };
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
                if let Some(node) = wait.judges(is_there.then_some(node)) {
                    return Ok(Some(node));
                }
            }
            tokio::time::sleep(REWATCH_AFTER).await;
        }
    }
}

/// What a line of a watch is; looked at before its object, whose shape depends on it.
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

/// Whether a new watch may do better: the connection, an apiserver that restarts or is busy, a version too old.
fn passes(error: &KubeError) -> bool {
    error.is_transport()
        || matches!(error, KubeError::Busy { .. } | KubeError::Answered { status: 429 | GONE | 500.., .. })
}

/// One wait: what it waits for now, and since when.
struct Wait<'a> {
    began: Instant,
    waits_for: Mutex<String>,
    changed: Notify,
    progress: Progress<'a>,
}

impl<'a> Wait<'a> {
    fn new(progress: Progress<'a>) -> Self {
        Self { began: Instant::now(), waits_for: Mutex::new("no answer yet".into()), changed: Notify::new(), progress }
    }

    fn current(&self) -> String {
        self.waits_for.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn sees(&self, text: String) {
        let mut waits_for = self.waits_for.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *waits_for != text {
            *waits_for = text;
            self.changed.notify_one();
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

    /// Reports what is waited for: what changed, and, for a person who watches, that it is still waited for.
    async fn report(&self) -> Infallible {
        loop {
            // Whether it changed or only grew older, it is reported.
            let _ = tokio::time::timeout(RETELL_EVERY, self.changed.notified()).await;
            (self.progress)(format!("{} ({} s)", self.current(), self.began.elapsed().as_secs()));
            tokio::time::sleep(TELL_EVERY).await;
        }
    }

    fn over(&self) -> KubeError {
        KubeError::NotReady { last: self.current(), seconds: self.began.elapsed().as_secs() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_changes_its_mind_all_the_time_is_reported_four_times_a_second_and_at_last() {
        let reported = Mutex::new(Vec::new());
        let progress = |text: String| reported.lock().unwrap().push(text);
        let wait = Wait::new(&progress);
        let flood = async {
            for number in 0..10_000 {
                wait.sees(format!("reason {number}"));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(TELL_EVERY).await;
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

//! Follows the KubeNodes of a cluster for as long as the caller wants: a list, and a watch from there on.
//!
//! Guarantees, whatever the apiserver sends: the follower keeps at most [`NODES_MAX`] values, which its caller chose; it shows changes at
//! most twice a second; it begins a list once in [`FOLLOW_AGAIN_MAX`] and a watch once in [`WATCH_AGAIN_AFTER`]; and it reads at most
//! [`NODES_WATCH_BYTES_MAX`] of each watch. It works only while its caller polls it: what is not read stays in the tunnel.
//!
//! A watch that was served from the apiserver's memory says nothing about the store behind it, so each one begins with `/readyz`.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::{
    calls::Watch,
    cluster::Cluster,
    error::KubeError,
    events::{self, Event, EventKind},
    limits::{
        CHANGES_TOGETHER, EVENT_BYTES_MAX, FOLLOW_AGAIN_MAX, NODES_MAX, NODES_PER_PAGE, NODES_WATCH_BYTES_MAX,
        WATCH_AGAIN_AFTER,
    },
    list::Selection,
    node::{KubeNode, NODES, Node},
    readyz::Readiness,
    wait::REWATCH_AFTER,
};

/// The KubeNodes of a cluster.
const SELECTION: Selection<'static> = Selection { path: NODES, fields: "", noun: "KubeNodes" };
/// Most failing checks of `/readyz` that an error names.
const FAILING_NAMED_MAX: usize = 3;

/// What the caller keeps of a KubeNode.
type Keep<T> = Box<dyn Fn(KubeNode) -> T + Send + Sync>;

/// Follows the KubeNodes of a cluster.
pub struct NodeFollower<T> {
    cluster: Cluster,
    keep: Keep<T>,
    nodes: BTreeMap<String, T>,
    /// The version from which a watch continues; `None` if the list must be read.
    version: Option<String>,
    watch: Option<Watch>,
    /// Time at which the last list began.
    listed_at: Option<Instant>,
    /// Time at which the last watch began.
    watched_at: Option<Instant>,
    /// Time of the first change that was not shown yet.
    changed_at: Option<Instant>,
    /// Number of failures since the last answer.
    failures: u32,
}

impl<T: Clone + PartialEq> NodeFollower<T> {
    /// Creates a follower that keeps of each KubeNode what `keep` returns. Makes no call yet.
    pub fn new(cluster: Cluster, keep: impl Fn(KubeNode) -> T + Send + Sync + 'static) -> Self {
        Self {
            cluster,
            keep: Box::new(keep),
            nodes: BTreeMap::new(),
            version: None,
            watch: None,
            listed_at: None,
            watched_at: None,
            changed_at: None,
            failures: 0,
        }
    }

    /// Waits for the next change of what is kept, and returns it for all KubeNodes, by name: at first when they are listed, and again when
    /// the apiserver answers after a failure.
    ///
    /// Fails if the apiserver cannot be asked; what was returned before is then not known to hold any more. The next call tries again,
    /// after a pause that grows to ten seconds. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Vec<T>, KubeError> {
        match self.follow().await {
            Ok(()) => {
                (self.failures, self.changed_at) = (0, None);
                Ok(self.nodes.values().cloned().collect())
            }
            Err(error) => {
                self.watch = None;
                self.failures = self.failures.saturating_add(1);
                Err(error)
            }
        }
    }

    /// Follows until there is something to show.
    async fn follow(&mut self) -> Result<(), KubeError> {
        tokio::time::sleep(self.pause()).await;
        loop {
            if self.version.is_none() {
                self.list().await?;
                return Ok(());
            }
            if self.watch.is_none() {
                self.open_watch().await?;
                if self.failures > 0 && self.watch.is_some() {
                    return Ok(());
                }
            } else if self.read_event().await? {
                return Ok(());
            }
        }
    }

    fn pause(&self) -> Duration {
        let pause = |doublings| CHANGES_TOGETHER.saturating_mul(2_u32.saturating_pow(doublings));
        self.failures.checked_sub(1).map_or(Duration::ZERO, |doublings| pause(doublings).min(FOLLOW_AGAIN_MAX))
    }

    async fn list(&mut self) -> Result<(), KubeError> {
        if self.listed_at.is_some() {
            wait_after(self.listed_at, FOLLOW_AGAIN_MAX).await;
        }
        check_ready(&self.cluster).await?;
        self.listed_at = Some(Instant::now());
        let keep = |node: Node| {
            let node = KubeNode::from(node);
            Ok((node.name.clone(), (self.keep)(node)))
        };
        let list = self.cluster.list::<Node, _, NODES_PER_PAGE>(&SELECTION, NODES_MAX, keep).await?;
        self.nodes = list.items.into_iter().collect();
        self.version = Some(list.version);
        Ok(())
    }

    /// Opens a watch; leaves neither watch nor version if the version is too old.
    async fn open_watch(&mut self) -> Result<(), KubeError> {
        wait_after(self.watched_at, WATCH_AGAIN_AFTER).await;
        check_ready(&self.cluster).await?;
        self.watched_at = Some(Instant::now());
        let version = self.version.clone().unwrap_or_default();
        let call = SELECTION.watch(&version).up_to(EVENT_BYTES_MAX).stream_up_to(NODES_WATCH_BYTES_MAX);
        match self.cluster.calls.watch(call).await {
            Ok(watch) => self.watch = Some(watch),
            Err(error) if events::is_too_old(&error) => self.version = None,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads an event; true if changes are to be shown now.
    async fn read_event(&mut self) -> Result<bool, KubeError> {
        let Some(watch) = &mut self.watch else { return Ok(false) };
        let shown_in = self.changed_at.map(|at| (at + CHANGES_TOGETHER).saturating_duration_since(Instant::now()));
        // A read that is dropped loses nothing: the watch keeps what has arrived of an event.
        let event = match shown_in {
            Some(time) if time.is_zero() => return Ok(true),
            Some(time) => match tokio::time::timeout(time, events::next::<Node>(watch)).await {
                Ok(event) => event,
                Err(_) => return Ok(true),
            },
            None => events::next::<Node>(watch).await,
        };
        match event {
            Ok(Some(event)) => self.see(event),
            Ok(None) => {
                self.watch = None;
                Ok(self.changed_at.is_some())
            }
            Err(error) if events::is_too_old(&error) => {
                self.list_again();
                Ok(false)
            }
            // Events that exceed their limits: a list shows the same.
            Err(KubeError::Unreadable(_) | KubeError::TooLong { .. }) => {
                self.list_again();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn list_again(&mut self) {
        (self.watch, self.version) = (None, None);
    }

    /// Applies an event. Does not show the change, so that several are shown together.
    fn see(&mut self, event: Event<Node>) -> Result<bool, KubeError> {
        let Event { kind, object } = event;
        if !object.metadata.resource_version.is_empty() {
            self.version = Some(object.metadata.resource_version.clone());
        }
        let node = KubeNode::from(object);
        let is_changed = match kind {
            EventKind::Bookmark => false,
            EventKind::Deleted => self.nodes.remove(&node.name).is_some(),
            EventKind::Added | EventKind::Modified => {
                let name = node.name.clone();
                let kept = (self.keep)(node);
                let is_changed = self.nodes.get(&name) != Some(&kept);
                self.nodes.insert(name, kept);
                is_changed
            }
        };
        if self.nodes.len() > NODES_MAX {
            self.list_again();
            self.nodes.clear();
            return Err(KubeError::Unreadable(format!("the cluster has more than {NODES_MAX} KubeNodes")));
        }
        if is_changed && self.changed_at.is_none() {
            self.changed_at = Some(Instant::now());
        }
        Ok(false)
    }
}

/// Waits until `time` has passed since `last`, but at least for a moment.
async fn wait_after(last: Option<Instant>, time: Duration) {
    let soon = Instant::now() + REWATCH_AFTER;
    tokio::time::sleep_until(last.map_or(soon, |last| soon.max(last + time))).await;
}

/// Fails with the names of failing checks if the apiserver does not serve.
async fn check_ready(cluster: &Cluster) -> Result<(), KubeError> {
    match cluster.readyz().await? {
        Readiness::Ready => Ok(()),
        Readiness::NotReady { failing } => {
            let named = failing.iter().take(FAILING_NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!("{} checks of /readyz fail, among them {named}", failing.len());
            Err(KubeError::Answered { status: 500, message })
        }
    }
}

//! Empties a KubeNode: evicts its pods and waits until they have ended.
//!
//! One part follows the pods, with a list and a watch from there on; the other evicts those that are due. Both work on one
//! [`DrainState`], and end with the call: nothing runs after it was dropped. What was done is read from the cluster, so a drain that was
//! interrupted continues when it is called again.

use std::{
    convert::Infallible,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{sync::Notify, time::Instant};

use crate::{
    cluster::{Cluster, Progress},
    drain_error::{DrainBlock, PODS_NAMED_MAX},
    drain_state::{self, DrainState},
    error::KubeError,
    events::{self, Event, EventKind},
    eviction::{EVICT_AGAIN_AFTER, Eviction},
    hold::{Budget, Hold},
    limits::{EVENT_BYTES_MAX, PODS_WATCH_BYTES_MAX},
    node::{KubeNode, node_path},
    object_name::ObjectName,
    pods::{self, DrainOptions, Pod},
    wait::{REWATCH_AFTER, Wait},
};

/// Evictions in progress at a time.
const EVICTIONS_MAX: usize = 8;
/// Evictions after which the answers are looked at together.
const ROUND_MAX: usize = 4 * EVICTIONS_MAX;
/// Pods of a round whose budgets are looked for by their selectors.
const BUDGET_SEARCHES_MAX: usize = 4;
/// Shortest time between two lists while pods are left, if the watch cannot be used for longer.
const LIST_EVERY_MIN: Duration = Duration::from_secs(5);

/// The result of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Drained {
    /// Number of pods that ended during this call.
    pub evicted: usize,
    /// Number of pods of DaemonSets, which stay.
    pub of_daemon_sets: usize,
    /// Number of mirror pods, which stay.
    pub mirrors: usize,
}

impl Cluster {
    /// Cordons the KubeNode, evicts its pods, and waits until they have ended.
    ///
    /// Decides about pods as `kubectl drain --ignore-daemonsets` does: pods of DaemonSets and mirror pods stay; pods that no controller
    /// replaces and pods with `emptyDir` volumes need an option. If any needs one that `options` does not have, fails with
    /// [`KubeError::DrainRefused`], which names all, and evicts none; a pod that appears later ends the drain in the same way.
    ///
    /// PodDisruptionBudgets hold. An eviction that a budget forbids is repeated every two seconds, because only another eviction shows
    /// whether it still does. After `timeout` the drain fails with [`KubeError::DrainBlocked`], which names the pods that are left and
    /// what holds them, or with [`KubeError::NotReady`] if the apiserver did not answer at the end. `progress` receives texts such as `3
    /// of 12 pods left; web/api-1 is held by budget web/api …`, at most four a second.
    pub async fn drain(
        &self,
        name: &str,
        options: DrainOptions,
        timeout: Duration,
        progress: Progress<'_>,
    ) -> Result<Drained, KubeError> {
        node_path(name)?;
        let drain = Drain {
            cluster: self,
            name,
            options,
            fields: pods::fields_on(name),
            wait: Wait::new(progress),
            state: Mutex::default(),
            is_cordoned: AtomicBool::new(false),
            more_due: Notify::new(),
            all_ended: Notify::new(),
        };
        tokio::select! {
            biased;
            drained = drain.follow() => drained,
            failed = drain.evict_due() => failed.map(|never| match never {}),
            never = drain.wait.report() => match never {},
            () = tokio::time::sleep(timeout) => Err(drain.timeout_error()),
        }
    }
}

/// How a look at the pods ended.
enum Look {
    /// No pod is left that must leave.
    Empty(Drained),
    /// All pods of the list have ended; others may have appeared.
    AllEnded,
    /// The watch ended or cannot be read.
    WatchEnded,
}

/// The parts of a pod that the watch reads.
#[derive(Deserialize)]
struct WatchedPod {
    #[serde(default)]
    metadata: WatchedMetadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WatchedMetadata {
    #[serde(default)]
    uid: String,
    deletion_timestamp: Option<Timestamp>,
}

struct Drain<'a> {
    cluster: &'a Cluster,
    name: &'a str,
    options: DrainOptions,
    /// Selects the pods of the KubeNode.
    fields: String,
    wait: Wait<'a>,
    state: Mutex<DrainState>,
    is_cordoned: AtomicBool,
    more_due: Notify,
    all_ended: Notify,
}

impl Drain<'_> {
    fn state(&self) -> MutexGuard<'_, DrainState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known and reports it.
    fn change(&self, change: impl FnOnce(&mut DrainState)) {
        let (text, is_empty) = {
            let mut state = self.state();
            change(&mut state);
            (state.describe(), state.is_empty())
        };
        self.wait.set_reason(text);
        if is_empty {
            self.all_ended.notify_one();
        }
    }

    fn timeout_error(&self) -> KubeError {
        let state = self.state();
        if !state.is_current() {
            return self.wait.timeout_error();
        }
        KubeError::DrainBlocked(Box::new(DrainBlock {
            kube_node: self.name.to_owned(),
            seconds: self.wait.seconds(),
            remains: state.remains(PODS_NAMED_MAX),
        }))
    }

    /// Follows the pods until none is left that must leave.
    async fn follow(&self) -> Result<Drained, KubeError> {
        loop {
            let began = Instant::now();
            let pause = match self.list_then_watch().await {
                Ok(Look::Empty(drained)) => return Ok(drained),
                Ok(Look::AllEnded) => REWATCH_AFTER.saturating_sub(began.elapsed()),
                Ok(Look::WatchEnded) => LIST_EVERY_MIN.saturating_sub(began.elapsed()).max(REWATCH_AFTER),
                Err(error) if events::is_too_old(&error) => REWATCH_AFTER,
                Err(error) if events::is_transient(&error) => {
                    self.change(|state| state.set_trouble(error.to_string()));
                    REWATCH_AFTER
                }
                Err(error) => return Err(error),
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn list_then_watch(&self) -> Result<Look, KubeError> {
        let node = self.cluster.kube_node(self.name).await?;
        self.cordon_once(&node).await?;
        let listed = self.cluster.pods_on(&self.fields).await?;
        let daemon_sets = self.cluster.daemon_sets_of(&listed.items).await?;
        let sorted = drain_state::sort(listed.items, &daemon_sets, self.options, self.name)
            .map_err(|refusal| KubeError::DrainRefused(Box::new(refusal)))?;
        self.change(|state| state.update(sorted.leaving, not_ready(&node), Instant::now()));
        if self.state().is_empty() {
            let evicted = self.state().ended();
            let (of_daemon_sets, mirrors) = (sorted.of_daemon_sets, sorted.mirrors);
            return Ok(Look::Empty(Drained { evicted, of_daemon_sets, mirrors }));
        }
        self.more_due.notify_one();
        self.watch(&listed.version).await
    }

    /// Cordons the KubeNode at the first look. It is not cordoned again: a person may have uncordoned it since.
    async fn cordon_once(&self, node: &KubeNode) -> Result<(), KubeError> {
        if !node.unschedulable && !self.is_cordoned.load(Ordering::Relaxed) {
            self.cluster.patch_kube_node(self.name, json!({ "spec": { "unschedulable": true } })).await?;
        }
        self.is_cordoned.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn watch(&self, version: &str) -> Result<Look, KubeError> {
        let call = pods::pods(&self.fields).watch(version).metadata();
        let call = call.up_to(EVENT_BYTES_MAX).stream_up_to(PODS_WATCH_BYTES_MAX);
        let mut watch = self.cluster.calls.watch(call).await?;
        loop {
            let event = tokio::select! {
                biased;
                () = self.all_ended.notified() => {
                    // It may have been sent before the present list.
                    if self.state().is_empty() {
                        return Ok(Look::AllEnded);
                    }
                    continue;
                }
                event = events::next::<WatchedPod>(&mut watch) => event,
            };
            match event {
                Ok(Some(event)) => self.see(&event),
                // An event that exceeds its limit, or too many of them: lists show the same.
                Ok(None) | Err(KubeError::Unreadable(_)) => return Ok(Look::WatchEnded),
                Err(error) => return Err(error),
            }
        }
    }

    fn see(&self, event: &Event<WatchedPod>) {
        let WatchedMetadata { uid, deletion_timestamp } = &event.object.metadata;
        // New pods are read with the next list.
        if !self.state().waits_for(uid) {
            return;
        }
        match event.kind {
            EventKind::Deleted => self.change(|state| state.set_ended(uid)),
            EventKind::Added | EventKind::Modified if deletion_timestamp.is_some() => {
                self.change(|state| state.set_ending(uid, *deletion_timestamp));
            }
            EventKind::Added | EventKind::Modified | EventKind::Bookmark => {}
        }
    }

    /// Evicts pods as they become due.
    async fn evict_due(&self) -> Result<Infallible, KubeError> {
        loop {
            let (due, next) = {
                let state = self.state();
                (state.due(Instant::now(), ROUND_MAX), state.next_due())
            };
            if !due.is_empty() {
                self.evict_round(due).await?;
                continue;
            }
            let wake = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.more_due.notified() => {}
                () = wake => {}
            }
        }
    }

    async fn evict_round(&self, due: Vec<Pod>) -> Result<(), KubeError> {
        let evictions = due.into_iter().map(|pod| async move {
            let eviction = self.cluster.evict(&pod).await?;
            Ok::<_, KubeError>((pod, eviction))
        });
        let mut evictions = stream::iter(evictions).buffer_unordered(EVICTIONS_MAX);
        let mut held = Vec::new();
        while let Some((pod, eviction)) = evictions.try_next().await? {
            let again_at = |after| Instant::now() + after;
            match eviction {
                Eviction::Accepted => self.change(|state| state.set_ending(&pod.uid, None)),
                Eviction::Gone => self.change(|state| state.set_ended(&pod.uid)),
                Eviction::Refused(why) => {
                    let again_at = again_at(EVICT_AGAIN_AFTER);
                    self.change(|state| state.set_held(&pod.uid, Hold::Refusal(why), again_at));
                }
                Eviction::Later { why, after } => {
                    let again_at = again_at(after);
                    self.change(|state| state.set_delayed(&pod.uid, why, again_at));
                }
                Eviction::Budget(name) => held.push((pod, HeldBy::Budget(name))),
                Eviction::SeveralBudgets => held.push((pod, HeldBy::Several)),
            }
        }
        self.name_budgets(held).await;
        Ok(())
    }

    /// Records the holds with their budgets. A budget that cannot be read is shown without its state.
    async fn name_budgets(&self, held: Vec<(Pod, HeldBy)>) {
        let mut known: Vec<Budget> = Vec::new();
        let mut searches = 0;
        for (pod, by) in held {
            let named = match &by {
                HeldBy::Budget(Some(name)) => ObjectName::new(&pod.name.namespace, name),
                HeldBy::Budget(None) | HeldBy::Several => None,
            };
            let hold = match named {
                Some(name) => Hold::Budget(Some(self.read_budget(name, &mut known).await)),
                None if searches < BUDGET_SEARCHES_MAX => {
                    searches += 1;
                    by.hold(self.cluster.budgets_of(&pod.name).await.unwrap_or_default())
                }
                None => by.hold(Vec::new()),
            };
            let again_at = Instant::now() + EVICT_AGAIN_AFTER;
            self.change(|state| state.set_held(&pod.uid, hold, again_at));
        }
    }

    /// Returns the budget, which is read once per round.
    async fn read_budget(&self, name: ObjectName, known: &mut Vec<Budget>) -> Budget {
        if let Some(budget) = known.iter().find(|budget| budget.name == name) {
            return budget.clone();
        }
        let read = self.cluster.budget(&name).await;
        let budget = read.unwrap_or(Budget { name, status: None });
        known.push(budget.clone());
        budget
    }
}

/// The answer to an eviction that budgets forbid.
enum HeldBy {
    Budget(Option<String>),
    Several,
}

impl HeldBy {
    fn hold(&self, found: Vec<Budget>) -> Hold {
        match self {
            Self::Budget(_) => Hold::Budget(found.into_iter().next()),
            Self::Several => Hold::Budgets(found.into_iter().map(|budget| budget.name).collect()),
        }
    }
}

/// Describes a KubeNode that is not ready: nothing reports the end of its pods.
fn not_ready(node: &KubeNode) -> Option<String> {
    let why = node.not_ready_reason()?;
    let since = node.ready_condition().map(|condition| condition.since.as_str()).filter(|since| !since.is_empty());
    let since = since.map(|since| format!(" since {since}")).unwrap_or_default();
    Some(format!("KubeNode {} is not ready{since} ({why}), so its pods do not end", node.name))
}

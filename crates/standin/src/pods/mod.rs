//! The pods of a sandbox node: runs one process per pod that is bound to the node, and reports it to the apiserver as a kubelet does.
//!
//! Scheduling, evictions, disruption budgets, deployments and garbage collection are the genuine control plane's. A deleted pod gets
//! SIGTERM, then SIGKILL after its grace period, and its object is deleted when the process has ended. Processes outlive `rke2`; a later
//! start adopts them, and restarts those that are gone.
//!
//! Deliberately absent: containers, images, probes, volumes, networks, logs and `exec`. A pod is ready while its process runs, and does not
//! end by itself.

mod process;
mod status;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use camino::Utf8Path;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use rustix::process::Pid;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::api_client::{Client, ClientError};
use crate::component::Handle;
use crate::identity::Identity;
use crate::log;
use crate::node_facts::PODS_MAX;
use crate::settings::Settings;
use process::Place;
pub(crate) use process::{COMMAND, run as run_process};
use status::{Pod, State};

/// Delay before an interrupted watch is opened again, and before a failed request is repeated.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Delay before a pod whose process ended by itself is restarted: a kubelet's first back-off.
const RESTART_AFTER: Duration = Duration::from_secs(10);
/// Limit of one watch event; the apiserver limits a pod to 1.5 MiB.
const EVENT_BYTES_MAX: usize = 2 << 20;
/// Processes whose end waits to be handled; a node has at most 110 pods.
const ENDS_MAX: usize = 128;

/// The pods of one node.
struct Pods {
    client: Arc<Client>,
    node: String,
    address: String,
    place: Place,
    known: HashMap<String, Known>,
    ends: mpsc::Sender<End>,
}

/// A pod of this node and what is done with it.
struct Known {
    pod: Pod,
    activity: Activity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Runs {
        restarts: u64,
    },
    /// The process has ended; a restart follows.
    WaitsForRestart {
        restarts: u64,
    },
    /// The pod was deleted; a task ends its process.
    Ends,
}

/// A report of a background task about the pod with this UID.
enum End {
    ProcessEnded(String),
    Restart(String),
}

/// Runs the pods of a registered node in a task that lasts until `rke2` ends. `bin` is the folder of the release's programs.
pub(crate) fn start(settings: &Settings, node: &Identity, bin: &Utf8Path) -> anyhow::Result<()> {
    let (ends, mut ended) = mpsc::channel(ENDS_MAX);
    let place =
        Place { bin: bin.to_owned(), data_root: settings.paths.data("data"), logs: settings.paths.at("/var/log/pods") };
    let (client, address) = (node.client()?, node.address.to_string());
    let mut pods = Pods { client, node: node.name.clone(), address, place, known: HashMap::new(), ends };
    tokio::spawn(async move {
        loop {
            if let Err(error) = pods.watch(&mut ended).await {
                log::warning!("Watch of pods ended: {error:#}");
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    });
    Ok(())
}

impl Pods {
    /// Lists the pods, then follows their changes until the watch ends.
    async fn watch(&mut self, ended: &mut mpsc::Receiver<End>) -> anyhow::Result<()> {
        let selector = format!("fieldSelector=spec.nodeName%3D{}", self.node);
        let mut list = self.client.get_json(&format!("/api/v1/pods?{selector}")).await?;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let items = match list["items"].take() {
            Value::Array(items) => items.into_iter().map(Pod).collect(),
            _ => Vec::new(),
        };
        self.reconcile(items).await?;
        let path = format!("/api/v1/pods?watch=true&{selector}&resourceVersion={version}");
        let mut body = self.client.stream(&path).await?;
        let mut pending = Vec::new();
        loop {
            tokio::select! {
                biased;
                Some(end) = ended.recv() => self.ended(end).await,
                frame = body.frame() => {
                    let Some(frame) = frame else { return Ok(()) };
                    pending.extend_from_slice(&frame?.into_data().unwrap_or_default());
                    self.events(&mut pending).await?;
                }
            }
        }
    }

    /// Handles the complete lines of `pending` and removes them.
    async fn events(&mut self, pending: &mut Vec<u8>) -> anyhow::Result<()> {
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let mut event: Value = serde_json::from_slice(&line)?;
            let object = Pod(event["object"].take());
            match event["type"].as_str() {
                Some("ADDED" | "MODIFIED") => self.sync(object).await,
                Some("DELETED") => self.forget(object.uid()).await,
                // For example that the version is too old: listed again.
                _ => anyhow::bail!("{}", object.0["message"]),
            }
        }
        anyhow::ensure!(pending.len() <= EVENT_BYTES_MAX, "an event is too long");
        Ok(())
    }

    /// Ends the processes of pods that no longer exist and starts those that are missing.
    async fn reconcile(&mut self, items: Vec<Pod>) -> anyhow::Result<()> {
        let uids: Vec<&str> = items.iter().map(Pod::uid).collect();
        for (uid, pid) in self.place.running()? {
            if !uids.contains(&uid.as_str()) {
                log::info!("Ending pod {uid}: it no longer exists");
                end_at_once(pid).await?;
            }
        }
        self.known.retain(|uid, _| uids.contains(&uid.as_str()));
        for pod in items {
            self.sync(pod).await;
        }
        Ok(())
    }

    /// Ends the process of a pod whose object is gone, which a forced deletion or the garbage collector causes.
    async fn forget(&mut self, uid: &str) {
        self.known.remove(uid);
        let running = self.place.running().unwrap_or_default();
        if let Some(pid) = running.get(uid)
            && let Err(error) = end_at_once(*pid).await
        {
            log::error!("Failed to end pod {uid}: {error:#}");
        }
    }

    /// Makes the process fit the pod's object, and the object's status fit the process.
    async fn sync(&mut self, pod: Pod) {
        let uid = pod.uid().to_owned();
        let activity = self.known.get(&uid).map(|known| known.activity);
        let next = match activity {
            Some(Activity::Ends) => Ok(Activity::Ends),
            _ if pod.is_deleted() => self.begin_end(&pod),
            Some(waiting @ Activity::WaitsForRestart { .. }) => Ok(waiting),
            _ if pod.is_finished() => return,
            Some(running @ Activity::Runs { .. }) => Ok(running),
            None => self.adopt_or_start(&pod),
        };
        let activity = match next {
            Ok(activity) => activity,
            Err(error) => {
                log::error!("Error syncing pod {}/{}: {error:#}", pod.namespace(), pod.name());
                return;
            }
        };
        if let Activity::Runs { restarts } = activity
            && !pod.reports(State::Running { restarts })
        {
            self.post(&pod, State::Running { restarts }).await;
        }
        self.known.insert(uid, Known { pod, activity });
    }

    fn adopt_or_start(&self, pod: &Pod) -> anyhow::Result<Activity> {
        let running = self.place.running()?;
        if let Some(handle) = running.get(pod.uid()).copied().and_then(Handle::of) {
            self.report_end(pod.uid(), handle);
            return Ok(Activity::Runs { restarts: pod.restarts().unwrap_or_default() });
        }
        // The scheduler keeps to the node's capacity; a pod that names its node does not.
        let running = running.len();
        anyhow::ensure!(running < PODS_MAX as usize, "the node runs {running} pods already");
        // A pod that ran before is restarted: the kill-all script or the machine's end has ended its process.
        self.start(pod, pod.restarts().map_or(0, |before| before + 1))
    }

    fn start(&self, pod: &Pod, restarts: u64) -> anyhow::Result<Activity> {
        let log = process::log_folder(pod.namespace(), pod.name(), pod.uid());
        match self.place.start(pod.uid(), &log)? {
            Some(handle) => self.report_end(pod.uid(), handle),
            None => anyhow::bail!("its process ended at once"),
        }
        Ok(Activity::Runs { restarts })
    }

    /// Reports the end of a process to the main loop.
    fn report_end(&self, uid: &str, handle: Handle) {
        let (ends, uid) = (self.ends.clone(), uid.to_owned());
        tokio::spawn(async move {
            handle.ended().await;
            // Fails only when `rke2` ends.
            let _ = ends.send(End::ProcessEnded(uid)).await;
        });
    }

    async fn ended(&mut self, end: End) {
        match end {
            End::ProcessEnded(uid) => {
                let Some(known) = self.known.get_mut(&uid) else { return };
                let Activity::Runs { restarts } = known.activity else { return };
                known.activity = Activity::WaitsForRestart { restarts };
                let pod = known.pod.clone();
                log::error!("Pod {}/{} ended by itself", pod.namespace(), pod.name());
                self.post(&pod, State::BackOff { restarts }).await;
                let ends = self.ends.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(RESTART_AFTER).await;
                    let _ = ends.send(End::Restart(uid)).await;
                });
            }
            End::Restart(uid) => {
                let Some(Known { pod, activity: Activity::WaitsForRestart { restarts } }) = self.known.get(&uid) else {
                    return;
                };
                let (pod, restarts) = (pod.clone(), restarts + 1);
                match self.start(&pod, restarts) {
                    Ok(activity) => {
                        self.post(&pod, State::Running { restarts }).await;
                        self.known.insert(uid, Known { pod, activity });
                    }
                    Err(error) => {
                        log::error!("Error syncing pod {}/{}: {error:#}", pod.namespace(), pod.name());
                        // As if it had ended again.
                        self.known.insert(uid.clone(), Known { pod, activity: Activity::Runs { restarts } });
                        let _ = self.ends.try_send(End::ProcessEnded(uid));
                    }
                }
            }
        }
    }

    /// Ends a deleted pod in a task, because its process may take the whole grace period.
    fn begin_end(&self, pod: &Pod) -> anyhow::Result<Activity> {
        let handle = self.place.running()?.get(pod.uid()).copied().and_then(Handle::of);
        let (client, pod, address) = (self.client.clone(), pod.clone(), self.address.clone());
        tokio::spawn(async move {
            if let Some(handle) = handle
                && let Err(error) = handle.end(Duration::from_secs(pod.grace_seconds())).await
            {
                log::error!("Failed to end pod {}/{}: {error:#}", pod.namespace(), pod.name());
            }
            while let Err(error) = delete(&client, &pod, &address).await {
                log::error!("Failed to delete pod {}/{}: {error}", pod.namespace(), pod.name());
                tokio::time::sleep(RETRY_AFTER).await;
            }
        });
        Ok(Activity::Ends)
    }

    /// Posts a status. A failure is only logged: the next event or list of the pod posts it again.
    async fn post(&self, pod: &Pod, state: State) {
        if let Err(error) = post(&self.client, pod, state, &self.address).await {
            log::error!("Failed to update status for pod {}/{}: {error}", pod.namespace(), pod.name());
        }
    }
}

async fn end_at_once(pid: Pid) -> anyhow::Result<()> {
    match Handle::of(pid) {
        Some(handle) => handle.end(Duration::ZERO).await,
        None => Ok(()),
    }
}

async fn post(client: &Client, pod: &Pod, state: State, address: &str) -> Result<(), ClientError> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let patch = pod.patch(state, address, &now);
    match client.send_json(Method::PATCH, &format!("{}/status", pod.path()), &patch).await {
        Ok(_) => Ok(()),
        Err(error) if is_gone(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Reports the end of a pod, then deletes its object, which its grace period has kept until now.
async fn delete(client: &Client, pod: &Pod, address: &str) -> Result<(), ClientError> {
    post(client, pod, State::Ended { restarts: pod.restarts().unwrap_or_default() }, address).await?;
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": { "uid": pod.uid() },
    });
    match client.send_json(Method::DELETE, &pod.path(), &options).await {
        Ok(_) => Ok(()),
        Err(error) if is_gone(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether the object no longer exists, or another has taken its name.
fn is_gone(error: &ClientError) -> bool {
    error.is(StatusCode::NOT_FOUND) || error.is(StatusCode::CONFLICT)
}

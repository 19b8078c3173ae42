//! A model of the cluster for the app's effects: it is ready when the units on the machines are up. A control plane that follows it is
//! notified of every change; a notice may be late, and is lost with the channel that carries it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use futures::stream::{self, StreamExt};
use gpuaas_app_rke2::{ObservedCluster, ObservedKubeNode, Rke2Call, names};
use gpuaas_engine::effects::{AccessRequest, AppEffects, CallContext, Delivered, Observations};
use gpuaas_model::{Code, OperationId, Timestamp};
use gpuaas_planner::{ClusterCall, MemberView};
use gpuaas_wire::task::TaskFailure;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use zeroize::Zeroizing;

use crate::{
    node::{Link, Node},
    oracles::Oracle,
    scheduler::Process,
    simulation::{Scenario, Simulation},
};

/// The label that the KubeNodes of a followed cluster have by the workload's settings.
pub(crate) const LABEL: (&str, &str) = ("rack", "b12");
/// A kubelet reports this time after its unit is up. Until then its KubeNode shows what the kubelet before it has reported.
const REPORTS_AFTER: Duration = Duration::from_secs(10);
/// A change of a followed cluster is sent within this time.
const NOTICED_WITHIN: Duration = Duration::from_secs(1);

/// The objects of the cluster.
#[derive(Debug, Default)]
pub(crate) struct KubeModel {
    /// KubeNodes by name.
    nodes: BTreeMap<String, KubeNode>,
    /// Until then a PodDisruptionBudget allows no eviction.
    pub(crate) budget_blocks_until: Option<Timestamp>,
    /// KubeNodes whose last drain a budget has blocked, with the operation that wanted it.
    blocked: BTreeMap<String, OperationId>,
}

#[derive(Clone, Copy, Debug, Default)]
struct KubeNode {
    is_cordoned: bool,
    /// When the kubelet that was started last reports.
    reports_at: Option<Timestamp>,
    /// When the one before it has reported.
    reported_before: Option<Timestamp>,
    /// Until then it is not Ready, although its kubelet runs.
    not_ready_until: Option<Timestamp>,
    /// True after a person has removed its labels.
    has_lost_labels: bool,
}

impl KubeModel {
    /// A kubelet starts: it registers, without a cordon, unless its KubeNode exists. Its unit will be up at `up_at`.
    pub(crate) fn register(&mut self, name: &str, now: Timestamp, up_at: Timestamp) {
        let node = self.nodes.entry(name.to_owned()).or_default();
        node.reported_before = node.reported_at(now);
        node.reports_at = Some(up_at.plus(REPORTS_AFTER));
    }

    /// The server's data is removed, and with it every object.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
    }

    /// Deletes a KubeNode behind the platform's back or at its request.
    pub(crate) fn delete(&mut self, name: &str) -> bool {
        self.nodes.remove(name).is_some()
    }

    /// Lets a KubeNode be not Ready until then; returns false if it does not exist.
    pub(crate) fn set_not_ready(&mut self, name: &str, until: Timestamp) -> bool {
        let found = self.nodes.get_mut(name);
        found.map(|node| node.not_ready_until = Some(until)).is_some()
    }

    /// Removes the labels of a KubeNode behind the platform's back, or sets them; returns false if it does not exist.
    pub(crate) fn set_labelled(&mut self, name: &str, is_labelled: bool) -> bool {
        let found = self.nodes.get_mut(name);
        found.map(|node| node.has_lost_labels = !is_labelled).is_some()
    }

    /// Returns true if a person has removed the labels of this KubeNode, and nothing has set them since.
    pub(crate) fn has_lost_labels(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(|node| node.has_lost_labels)
    }

    /// Ends what has an end: budgets permit evictions, and KubeNodes whose kubelets run are Ready.
    pub(crate) fn calm_down(&mut self) {
        self.budget_blocks_until = None;
        self.nodes.values_mut().for_each(|node| node.not_ready_until = None);
    }

    fn set_cordoned(&mut self, name: &str, is_cordoned: bool) -> Result<(), TaskFailure> {
        let missing = || TaskFailure::new(Code::KubeNodeMissing, format!("there is no KubeNode {name}"));
        self.nodes.get_mut(name).ok_or_else(missing)?.is_cordoned = is_cordoned;
        Ok(())
    }
}

/// The cluster as one control plane reaches it.
pub(crate) struct Cluster {
    pub(crate) simulation: Weak<Simulation>,
    pub(crate) plane: Process,
}

#[async_trait]
impl AppEffects for Cluster {
    async fn call(&self, call: ClusterCall, context: CallContext) -> Result<Value, TaskFailure> {
        let (name, call) = (call.call.as_str(), call.parse::<Rke2Call>()?);
        let Some(simulation) = self.simulation.upgrade() else {
            return Err(TaskFailure::new(Code::Internal, "the seed is over"));
        };
        (context.progress)(format!("{name}: waiting"));
        simulation.scheduler.sleep_until(next_check(&simulation)).await;
        (context.progress)(format!("{name}: looking"));
        // Every call needs the admin kubeconfig.
        admin_kubeconfig(&context).await?;
        if let Some(code) = simulation.faults().of_call(name) {
            simulation.count("calls failed");
            return Err(TaskFailure::new(code, "injected by the seed"));
        }
        let server = context.workload.component(names::SERVER).next();
        if simulation.scenario == Scenario::TwoTenants {
            echo(&simulation, &context, server, 1).await?;
        }
        check_up(&simulation, server)?;
        match call {
            Rke2Call::ApiReady {} | Rke2Call::DeliverAccess {} => {}
            Rke2Call::KubeNodeReady { kube_node, started_at } => {
                let is_its = |member: &&MemberView| member.machine.name == kube_node && member.is_present();
                let member = context.workload.members.iter().find(is_its);
                check_up(&simulation, member)?;
                check_registered(&simulation, kube_node.as_str())?;
                await_report(&simulation, kube_node.as_str(), started_at, &context).await?;
                check_up(&simulation, server)?;
                check_up(&simulation, member)?;
                check_registered(&simulation, kube_node.as_str())?;
            }
            Rke2Call::CordonKubeNode { kube_node, may_be_missing } => {
                let cordoned = simulation.kube().set_cordoned(kube_node.as_str(), true);
                cordoned.or_else(|missing| if may_be_missing { Ok(()) } else { Err(missing) })?;
            }
            Rke2Call::UncordonKubeNode { kube_node } => simulation.kube().set_cordoned(kube_node.as_str(), false)?,
            Rke2Call::DrainKubeNode { kube_node, may_be_missing, .. } => {
                let is_missing = !simulation.kube().nodes.contains_key(kube_node.as_str());
                if !(may_be_missing && is_missing) {
                    drain(&simulation, kube_node.as_str(), &context).await?;
                }
            }
            Rke2Call::DeleteKubeNode { kube_node, .. } => {
                check_budget(&simulation, kube_node.as_str()).await;
                simulation.kube().delete(kube_node.as_str());
            }
            Rke2Call::LabelKubeNode { kube_node, .. } => {
                check_registered(&simulation, kube_node.as_str())?;
                simulation.kube().set_labelled(kube_node.as_str(), true);
            }
            Rke2Call::ForgetNodePassword { .. } | Rke2Call::KubeNodes {} => {}
        }
        Ok(json!({ "call": name }))
    }

    async fn deliver_access(&self, request: AccessRequest, context: CallContext) -> Result<Delivered, TaskFailure> {
        let Some(simulation) = self.simulation.upgrade() else {
            return Err(TaskFailure::new(Code::Internal, "the seed is over"));
        };
        let server = context.workload.component(names::SERVER).next();
        echo(&simulation, &context, server, 20).await?;
        check_up(&simulation, server)?;
        Ok(Delivered {
            kubeconfig: Zeroizing::new("kind: Config".to_owned()),
            service_account: request.name,
            expires_at: context.now.plus(Duration::from_secs(request.ttl_seconds)),
        })
    }

    async fn revoke_access(&self, _service_account: &str, _context: CallContext) -> Result<(), TaskFailure> {
        Err(TaskFailure::new(Code::TaskUnknown, "access is not simulated"))
    }

    async fn observe(&self, context: CallContext) -> Result<Value, TaskFailure> {
        let Some(simulation) = self.simulation.upgrade() else {
            return Err(TaskFailure::new(Code::Internal, "the seed is over"));
        };
        simulation.scheduler.sleep(simulation.latency()).await;
        observed(&simulation, &context)
    }

    fn follow(&self, context: CallContext) -> Observations {
        let followed = Followed { simulation: self.simulation.clone(), plane: self.plane, context, shown: None };
        stream::unfold(followed, |mut followed| async move {
            let shown = followed.next().await?;
            Some((shown, followed))
        })
        .boxed()
    }
}

/// A cluster that a control plane follows.
struct Followed {
    simulation: Weak<Simulation>,
    plane: Process,
    context: CallContext,
    /// What the last notice said.
    shown: Option<Result<Value, TaskFailure>>,
}

impl Followed {
    /// Returns the next notice: the state of the cluster at first and after each change. `None` if the seed is over.
    async fn next(&mut self) -> Option<Result<Value, TaskFailure>> {
        loop {
            let simulation = self.simulation.upgrade()?;
            let link = self.link(&simulation);
            let present = match &link {
                Some(_) => observed(&simulation, &self.context),
                None => Err(TaskFailure::new(Code::Unavailable, "the channel of the server's node is not here")),
            };
            if self.shown.as_ref() == Some(&present) {
                simulation.scheduler.sleep(NOTICED_WITHIN).await;
                continue;
            }
            if let Some(link) = &link
                && simulation.happens(|faults| faults.lost)
            {
                // A stream loses data only with its connection.
                link.ended.cancel();
            }
            simulation.scheduler.sleep(simulation.latency()).await;
            if link.is_some_and(|link| link.ended.is_cancelled()) {
                simulation.count("notices of a cluster lost");
                continue;
            }
            simulation.count("notices of a cluster");
            self.shown = Some(present.clone());
            return Some(present);
        }
    }

    /// Returns the channel of the server's node, if it is here.
    fn link(&self, simulation: &Simulation) -> Option<Link> {
        let server = self.context.workload.component(names::SERVER).next()?.place.node()?;
        let is_usable = |link: &Link| link.plane == self.plane && !link.ended.is_cancelled();
        simulation.node(server).link().filter(is_usable)
    }
}

/// Returns what the apiserver shows.
fn observed(simulation: &Arc<Simulation>, context: &CallContext) -> Result<Value, TaskFailure> {
    check_up(simulation, context.workload.component(names::SERVER).next())?;
    let registered = simulation.kube().nodes.clone();
    let now = simulation.scheduler.now();
    let shown = registered.into_iter().map(|(name, kube_node)| {
        let is_up = simulation.nodes().iter().any(|node| node.name == name && node.machine().is_up(now));
        let ready = is_up && kube_node.may_be_ready(now);
        let label = (!kube_node.has_lost_labels).then(|| (LABEL.0.to_owned(), LABEL.1.to_owned()));
        ObservedKubeNode {
            name,
            ready,
            not_ready_reason: (!ready).then(|| "the model says so".to_owned()),
            ready_since: None,
            unschedulable: kube_node.is_cordoned,
            kubelet_version: context.workload.release.version.clone(),
            labels: label.into_iter().collect(),
        }
    });
    Ok(json!(ObservedCluster { kube_nodes: shown.collect() }))
}

impl KubeNode {
    fn may_be_ready(&self, now: Timestamp) -> bool {
        self.not_ready_until.is_none_or(|until| until <= now)
    }

    /// Returns the time of the report that it shows.
    fn reported_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.reports_at.filter(|at| *at <= now).or(self.reported_before)
    }
}

/// Returns the fault that a member on this node must have by the state of its KubeNode; `None` if that is Ready.
pub(crate) fn fault_of(simulation: &Simulation, node: &Node) -> Option<&'static str> {
    let now = simulation.scheduler.now();
    let kube_node = simulation.kube().nodes.get(&node.name).copied();
    let Some(kube_node) = kube_node else { return Some("kube_node_missing") };
    let is_ready = node.machine().is_up(now) && kube_node.may_be_ready(now);
    (!is_ready).then_some("kube_node_not_ready")
}

/// Fails if a KubeNode does not exist: it was deleted, and its kubelet has not restarted since.
fn check_registered(simulation: &Simulation, name: &str) -> Result<(), TaskFailure> {
    let is_there = simulation.kube().nodes.contains_key(name);
    let missing = || TaskFailure::new(Code::KubeNodeMissing, format!("there is no KubeNode {name}"));
    if is_there { Ok(()) } else { Err(missing()) }
}

/// Waits for a report that counts, at most until shortly before the deadline.
async fn await_report(
    simulation: &Simulation,
    name: &str,
    started_at: Option<Timestamp>,
    context: &CallContext,
) -> Result<(), TaskFailure> {
    let now = simulation.scheduler.now();
    let Some(kube_node) = simulation.kube().nodes.get(name).copied() else { return Ok(()) };
    let reports_at = kube_node.reports_at.unwrap_or(now);
    if kube_node.reported_at(now).is_some_and(|at| started_at.is_none_or(|started_at| started_at <= at)) {
        if now < reports_at {
            let what = format!("{name} counts as ready by a report from before its kubelet was started");
            simulation.report_violation(Oracle::Order, what);
        }
        return Ok(());
    }
    let give_up = Timestamp::from_millis(context.deadline.as_millis() - 500);
    simulation.scheduler.sleep_until(reports_at.min(give_up)).await;
    if give_up < reports_at {
        return Err(TaskFailure::new(Code::ClusterNotReady, "kubelet has not reported yet"));
    }
    Ok(())
}

/// Waits for the budget, at most until shortly before the deadline.
async fn drain(simulation: &Simulation, name: &str, context: &CallContext) -> Result<(), TaskFailure> {
    check_registered(simulation, name)?;
    let blocked_until = simulation.kube().budget_blocks_until.unwrap_or(context.now);
    let give_up = Timestamp::from_millis(context.deadline.as_millis() - 500);
    simulation.scheduler.sleep_until(blocked_until.min(give_up)).await;
    simulation.kube().blocked.remove(name);
    if blocked_until >= give_up {
        simulation.count("drains blocked");
        if let Some(operation) = open_operation(simulation).await {
            simulation.kube().blocked.insert(name.to_owned(), operation);
        }
        return Err(TaskFailure::new(Code::DrainBlocked, "web/api is held by the budget web/api"));
    }
    Ok(())
}

/// No operation deletes a KubeNode whose drain a budget has blocked in this operation.
async fn check_budget(simulation: &Simulation, name: &str) {
    let blocked = simulation.kube().blocked.remove(name);
    if blocked.is_some() && open_operation(simulation).await == blocked {
        simulation.report_violation(Oracle::Budgets, format!("{name} is deleted, although a budget blocks its drain"));
    }
}

/// Returns the operation that makes the present call; there is one workload.
async fn open_operation(simulation: &Simulation) -> Option<OperationId> {
    let open = async { simulation.store.read().await?.open_operations().await };
    open.await.ok()?.last().map(|operation| operation.id)
}

/// Sends `times` bytes through a tunnel to the server's port 6443, up to 1 s apart, and reads each back.
async fn echo(
    simulation: &Arc<Simulation>,
    context: &CallContext,
    server: Option<&MemberView>,
    times: u32,
) -> Result<(), TaskFailure> {
    let broken = |error: std::io::Error| TaskFailure::new(Code::ClusterUnreachable, error.to_string());
    let Some(node) = server.and_then(|server| server.place.node()) else {
        return Err(TaskFailure::new(Code::ClusterUnreachable, "there is no server"));
    };
    let mut tunnel = context.tunnels.open(node, 6_443).await.map_err(broken)?;
    for _ in 0..times {
        tunnel.write_all(b"?").await.map_err(broken)?;
        tunnel.read_exact(&mut [0]).await.map_err(broken)?;
        simulation.scheduler.sleep(Duration::from_millis(simulation.between(1, 1_000))).await;
    }
    Ok(())
}

/// Returns the next time at which calls check the cluster. All calls share these times, so that they coincide.
fn next_check(simulation: &Simulation) -> Timestamp {
    let (passed, every) = (simulation.scheduler.now().as_millis(), simulation.faults().check_interval_ms);
    Timestamp::from_millis(passed - passed % every + every)
}

fn check_up(simulation: &Arc<Simulation>, member: Option<&MemberView>) -> Result<(), TaskFailure> {
    let node = member.and_then(|member| member.place.node());
    let up = node.is_some_and(|node| simulation.node(node).machine().is_up(simulation.scheduler.now()));
    if up { Ok(()) } else { Err(TaskFailure::new(Code::ClusterUnreachable, "its service is not up")) }
}

/// Checks that the admin kubeconfig secret holds what the server's node deposited.
async fn admin_kubeconfig(context: &CallContext) -> Result<(), TaskFailure> {
    let secret = context.workload.secrets.get(names::ADMIN_KUBECONFIG);
    let secret =
        secret.ok_or_else(|| TaskFailure::new(Code::Internal, "the workload has no secret for a kubeconfig"))?;
    let opened = context.secrets.open(secret.id).await;
    let opened = opened.map_err(|why| TaskFailure::new(Code::ClusterNotReady, why))?;
    let is_one = opened.starts_with(b"kubeconfig of ");
    if is_one { Ok(()) } else { Err(TaskFailure::new(Code::Internal, "the secret is not a kubeconfig")) }
}

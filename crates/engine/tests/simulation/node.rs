//! A simulated node: a disk and a machine, which persist; an agent, which dies and restarts; and the agent's connection.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::channel::oneshot;
use gpuaas_agent::simulation::SimulatedAgent;
use gpuaas_engine::commands;
use gpuaas_model::{Clock, EnrolledNode, NodeId, NodeState, Runtime};
use gpuaas_trust::NodeIdentity;
use gpuaas_wire::session::{ConnectionKind, Hello, PROTOCOL};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    disk::Disk,
    machine::{self, Machine, Unit},
    oracles::{self, Oracle},
    plane::{Plane, signing_keys},
    scheduler::{Process, ProcessRuntime, SimulatedClock},
    simulation::Simulation,
};

/// A node without a connection counts as unreachable after this long.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(15);
/// An agent that fails to start because its disk is full is started again after this long.
const RESTART_DELAY: Duration = Duration::from_secs(2);
/// An agent gives up dialing a control plane that does not answer after this long.
const DIAL_TIMEOUT: Duration = Duration::from_secs(8);

pub(crate) struct Node {
    pub(crate) index: usize,
    pub(crate) id: NodeId,
    pub(crate) name: String,
    identity: Mutex<NodeIdentity>,
    pub(crate) disk: Disk,
    machine: Mutex<Machine>,
    agent: Mutex<Option<(Process, Arc<SimulatedAgent>)>>,
    link: Mutex<Option<Link>>,
    /// The node does not dial before this time.
    cut_until: Mutex<gpuaas_model::Timestamp>,
}

/// A connection between a node and a control plane.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) plane: Process,
    /// The enrollment with which the agent authenticated.
    pub(crate) enrolled: EnrolledNode,
    connection: Uuid,
    pub(crate) ended: CancellationToken,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    pub(crate) fn new(index: usize, name: String, identity: NodeIdentity) -> Arc<Self> {
        Arc::new(Self {
            index,
            id: identity.node,
            name,
            identity: Mutex::new(identity),
            disk: Disk::default(),
            machine: Mutex::default(),
            agent: Mutex::default(),
            link: Mutex::default(),
            cut_until: Mutex::new(gpuaas_model::Timestamp::from_millis(0)),
        })
    }

    /// Returns the node id and epoch of the agent's identity. The enrollment may have ended.
    pub(crate) fn enrolled(&self) -> EnrolledNode {
        locked(&self.identity).enrolled()
    }

    /// Replaces the node's identity and kills the agent, which restarts with the new one. Wipes disk and machine if `is_reimaged`;
    /// otherwise they stay as the last tenant left them.
    pub(crate) fn enroll_again(&self, simulation: &Simulation, identity: NodeIdentity, is_reimaged: bool) {
        *locked(&self.identity) = identity;
        if is_reimaged {
            self.disk.wipe();
            *self.machine() = Machine::default();
        }
        if let Some((process, _)) = self.agent() {
            simulation.scheduler.kill(process);
        }
    }

    pub(crate) fn address(&self) -> String {
        format!("10.0.0.{}", self.index + 1)
    }

    pub(crate) fn machine(&self) -> MutexGuard<'_, Machine> {
        locked(&self.machine)
    }

    /// Returns the agent and its process, if it runs.
    pub(crate) fn agent(&self) -> Option<(Process, Arc<SimulatedAgent>)> {
        locked(&self.agent).clone()
    }

    pub(crate) fn link(&self) -> Option<Link> {
        locked(&self.link).clone()
    }

    /// Closes the node's connection; with `from`, only if it leads to that control plane.
    pub(crate) fn disconnect(&self, from: Option<Process>) {
        let link = self.link().filter(|link| from.is_none_or(|plane| link.plane == plane));
        if let Some(link) = link {
            link.ended.cancel();
        }
    }

    /// Reads the node's row again, as a control plane does after a node has changed, and closes the connection if its enrollment ended.
    pub(crate) fn recheck(self: &Arc<Self>, simulation: &Arc<Simulation>, plane: Process) {
        let Some(link) = self.link().filter(|link| link.plane == plane) else { return };
        let (node, within) = (self.clone(), simulation.clone());
        simulation.scheduler.spawn(plane, async move {
            let Some(plane) = within.plane_of(plane) else { return };
            let looked = async { plane.engine.store().read().await?.node(node.id).await };
            match looked.await {
                Ok(row) => {
                    let is_in = matches!(row.state, NodeState::Enrolled | NodeState::Active);
                    if row.epoch != link.enrolled.epoch || !is_in {
                        link.ended.cancel();
                    }
                }
                Err(error) => within.report_violation(Oracle::Run, format!("a node's row cannot be read: {error}")),
            }
        });
    }

    /// Disconnects the node from every control plane for the given time.
    pub(crate) fn cut(&self, simulation: &Simulation, outage: Duration) {
        *locked(&self.cut_until) = simulation.scheduler.now().plus(outage);
        self.disconnect(None);
    }

    /// Starts the agent in a new process, as an init would.
    pub(crate) fn start_agent(self: &Arc<Self>, simulation: &Arc<Simulation>) {
        let process = simulation.scheduler.process();
        let (node, within) = (self.clone(), simulation.clone());
        simulation.scheduler.spawn(process, async move {
            let clock: Arc<dyn Clock> = Arc::new(SimulatedClock(within.scheduler.clone()));
            let runtime: Arc<dyn Runtime> = Arc::new(ProcessRuntime { scheduler: within.scheduler.clone(), process });
            let handler = machine::handler(&within, &node);
            loop {
                let host = Arc::new(node.disk.clone());
                let identity = locked(&node.identity).clone();
                let ports = (clock.clone(), runtime.clone());
                match SimulatedAgent::open(host, &identity, signing_keys().clone(), ports, &handler).await {
                    Ok(agent) => {
                        *locked(&node.agent) = Some((process, Arc::new(agent)));
                        return node.reconnect_forever(within, process).await;
                    }
                    // The agent cannot open its ledger on a full disk.
                    Err(_) if node.disk.is_full() => within.scheduler.sleep(RESTART_DELAY).await,
                    Err(error) => {
                        return within.report_violation(
                            Oracle::Run,
                            format!("the agent of {} does not start: {error}", node.name),
                        );
                    }
                }
            }
        });
    }

    /// Closes the node's connection if the dead process was its agent. Returns whether it was.
    pub(crate) fn agent_died(&self, process: Process) -> bool {
        let was = locked(&self.agent).take_if(|(running, _)| *running == process).is_some();
        if was {
            self.disconnect(None);
        }
        was
    }

    async fn reconnect_forever(self: Arc<Self>, simulation: Arc<Simulation>, me: Process) {
        loop {
            let dial_at = (*locked(&self.cut_until)).plus(Duration::from_millis(simulation.between(5, 500)));
            simulation.scheduler.sleep_until(dial_at.max(simulation.scheduler.now())).await;
            let Some(plane) = simulation.any_plane() else {
                simulation.scheduler.sleep(Duration::from_millis(simulation.between(100, 1_500))).await;
                continue;
            };
            if let Some(ended) = self.clone().connect(simulation.clone(), me, plane).await {
                ended.cancelled().await;
                // The agent notices at once, or with the next heartbeat.
                simulation.scheduler.sleep(Duration::from_millis(simulation.between(1, 1_000))).await;
            }
        }
    }

    /// Connects to the control plane. Returns the token that is cancelled when the connection ends, or `None` if connecting failed.
    async fn connect(
        self: Arc<Self>,
        simulation: Arc<Simulation>,
        me: Process,
        plane: Plane,
    ) -> Option<CancellationToken> {
        let (_, agent) = self.agent()?;
        let (support, fence) = agent.hello().await;
        let hello = Hello {
            agent_version: "1".to_owned(),
            protocols: vec![PROTOCOL],
            connection: ConnectionKind::Control,
            instance: format!("{me:?}"),
            machine_id: format!("machine-{}", self.name),
            boot_id: "first".to_owned(),
            addresses: vec![self.address()],
            support,
            fence,
            key_set_version: 1,
            clock: Some(simulation.scheduler.now()),
            problem: None,
            ledger: None,
        };
        let ended = CancellationToken::new();
        let enrolled = self.enrolled();
        let link = Link { plane: plane.process, enrolled, connection: simulation.uuid(), ended: ended.clone() };
        let (accepted, is_accepted) = oneshot::channel();
        let (node, within) = (self.clone(), simulation.clone());
        simulation.scheduler.sleep(Duration::from_millis(simulation.between(1, 30))).await;
        simulation
            .scheduler
            .spawn(plane.process, async move { node.serve(&within, &plane, link, hello, accepted).await });
        let recorded = tokio::select! {
            biased;
            recorded = is_accepted => recorded.unwrap_or(false),
            () = simulation.scheduler.sleep(DIAL_TIMEOUT) => false,
        };
        if !recorded {
            ended.cancel();
            simulation
                .scheduler
                .sleep(Duration::from_millis(simulation.between(100, 1_500) * simulation.redial_factor()))
                .await;
            return None;
        }
        Some(ended)
    }

    /// Runs the control plane's side of a connection, from the hello to the end.
    async fn serve(
        self: &Arc<Self>,
        simulation: &Arc<Simulation>,
        plane: &Plane,
        link: Link,
        hello: Hello,
        accepted: oneshot::Sender<bool>,
    ) {
        let before = locked(&self.link).replace(link.clone());
        if let Some(before) = before {
            before.ended.cancel();
        }
        if let Err(error) = commands::node::connected(&plane.engine, link.enrolled, link.connection, &hello).await {
            simulation.log(&format!("{}: its connection was not recorded: {error}", self.name));
            self.remove_link(&link);
            let _ = accepted.send(false);
            return;
        }
        simulation.log(&format!("{} connected to {}", self.name, plane.name));
        commands::inspect::inspect_new(&plane.engine, self.id);
        let _ = accepted.send(true);
        self.report_units(simulation, plane).await;
        self.begin_observation(simulation);
        link.ended.cancelled().await;
        self.remove_link(&link);
        simulation.log(&format!("{} disconnected from {}", self.name, plane.name));
        let ended = commands::node::disconnected(&plane.engine, self.id, link.connection).await;
        oracles::check_disconnected(simulation, self, link.connection).await;
        match ended {
            Ok(true) => self.expect_reconnect(simulation, plane),
            Ok(false) => {}
            Err(error) => {
                simulation.report_violation(Oracle::Run, format!("the end of a connection was not recorded: {error}"))
            }
        }
    }

    async fn report_units(&self, simulation: &Simulation, plane: &Plane) {
        let now = simulation.scheduler.now();
        let is_up = self.machine().is_up(now);
        let is_down = self.machine().is_down();
        let units = plane.engine.units_on(self.id).await.unwrap_or_default();
        for unit in units.iter().filter(|_| is_up || is_down) {
            let report = if is_up { self.unit_report(unit, now) } else { self.down_report(unit, now) };
            if let Err(error) = plane.engine.units_changed(self.enrolled(), &[report]).await {
                simulation.report_violation(Oracle::Run, format!("a unit's report was not recorded: {error}"));
            }
        }
    }

    /// Ends the unit, and reports it if the node is connected.
    pub(crate) async fn end_unit(&self, simulation: &Simulation, is_damaged: bool) {
        {
            let mut machine = self.machine();
            machine.unit = Unit::Stopped;
            machine.is_damaged |= is_damaged;
        }
        simulation.log(&format!("the unit of {} ends{}", self.name, if is_damaged { ", damaged" } else { "" }));
        if let Some(plane) = self.link().and_then(|link| simulation.plane_of(link.plane)) {
            self.report_units(simulation, &plane).await;
        }
    }

    fn remove_link(&self, link: &Link) {
        locked(&self.link).take_if(|present| present.connection == link.connection);
    }

    /// Makes the control plane record the node as unreachable after [`UNREACHABLE_AFTER`], unless a control plane holds its channel then.
    pub(crate) fn expect_reconnect(self: &Arc<Self>, simulation: &Arc<Simulation>, plane: &Plane) {
        let (node, within, plane) = (self.clone(), simulation.clone(), plane.clone());
        simulation.scheduler.spawn(plane.process, async move {
            within.scheduler.sleep(UNREACHABLE_AFTER).await;
            if node.link().is_some_and(|link| link.plane == plane.process) {
                return;
            }
            if let Err(error) = commands::node::mark_unreachable(&plane.engine, node.id).await {
                within.report_violation(Oracle::Run, format!("a node's absence was not recorded: {error}"));
            }
        });
    }
}

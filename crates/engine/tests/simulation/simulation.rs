//! The state of one simulated seed: nodes, control planes, the store, the trace, and the faults to inject.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use futures::{channel::oneshot, future::BoxFuture};
use gpuaas_crash_points::{Point, StepKind};
use gpuaas_engine::Engine;
use gpuaas_model::{NodeId, Timestamp};
use gpuaas_store::{Gate, Store};
use uuid::Uuid;

use crate::{
    cluster::KubeModel,
    faults::{Faults, Strike, Timed},
    node::Node,
    oracles::{self, Oracle, Violation},
    people,
    plane::{self, Plane},
    scheduler::{Process, Scheduler, die_here},
};
use gpuaas_test_support::Chance;

/// A request to a control plane counts as unanswered after this long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The sequence of requests that a seed simulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// One project deploys onto all nodes; the deployment must succeed in the end.
    OneDeployment,
    /// Two projects and an operator send random requests.
    TwoTenants,
    /// Two people of one project use one workload as it pleases them, and its services fail.
    WholeLife,
}

pub(crate) struct Simulation {
    pub(crate) scenario: Scenario,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) store: Store,
    /// Runs what belongs to no simulated process: the network, inits, people. It is never killed or frozen.
    pub(crate) outside: Process,
    nodes: OnceLock<Vec<Arc<Node>>>,
    planes: Mutex<BTreeMap<Process, PlaneProcess>>,
    chance: Mutex<Chance>,
    faults: Mutex<Faults>,
    /// True while faults are injected: from [`Simulation::start_faults`], after the nodes have enrolled, to [`Simulation::stop_faults`].
    armed: Mutex<bool>,
    trace: Mutex<Vec<String>>,
    violations: Mutex<Vec<Violation>>,
    /// Processes that cannot reach the database, each with the time at which the outage ends.
    stalled: Mutex<BTreeMap<Process, Timestamp>>,
    /// The KubeNodes of the cluster.
    kube: Mutex<KubeModel>,
    /// Contents of archive files by SHA-256.
    archives: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Why the workload neither runs nor is decommissioned at the end of its life.
    unsettled: Mutex<Option<String>>,
    /// Counts of injected faults and other notable events, by description.
    pub(crate) injected: Mutex<BTreeMap<&'static str, u32>>,
    me: Weak<Simulation>,
}

/// A control-plane process. `plane` is `None` until the process serves requests.
struct PlaneProcess {
    slot: usize,
    plane: Option<Plane>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Simulation {
    pub(crate) fn new(
        scenario: Scenario,
        scheduler: Arc<Scheduler>,
        store: Store,
        chance: Chance,
        faults: Faults,
    ) -> Arc<Self> {
        let outside = scheduler.process();
        Arc::new_cyclic(|me| Self {
            scenario,
            scheduler,
            store,
            outside,
            nodes: OnceLock::new(),
            planes: Mutex::default(),
            chance: Mutex::new(chance),
            faults: Mutex::new(faults),
            armed: Mutex::new(false),
            trace: Mutex::default(),
            violations: Mutex::default(),
            stalled: Mutex::default(),
            kube: Mutex::default(),
            archives: Mutex::default(),
            unsettled: Mutex::default(),
            injected: Mutex::default(),
            me: me.clone(),
        })
    }

    /// The state of the cluster's objects.
    pub(crate) fn kube(&self) -> MutexGuard<'_, KubeModel> {
        locked(&self.kube)
    }

    /// Appends a line to the trace, prefixed with the simulated seconds since the start.
    pub(crate) fn log(&self, text: &str) {
        let passed = self.scheduler.now().since(Self::START);
        locked(&self.trace).push(format!("{:>9.3} {text}", passed.as_secs_f64()));
    }

    pub(crate) fn take_trace(&self) -> Vec<String> {
        std::mem::take(&mut locked(&self.trace))
    }

    /// Stores the content of an archive file.
    pub(crate) fn keep_archive(&self, sha256: &str, lines: Vec<u8>) {
        locked(&self.archives).insert(sha256.to_owned(), lines);
    }

    /// Returns the content of an archive file.
    pub(crate) fn archive_file(&self, sha256: &str) -> Option<Vec<u8>> {
        locked(&self.archives).get(sha256).cloned()
    }

    /// Records a violation; the seed fails.
    pub(crate) fn report_violation(&self, oracle: Oracle, what: String) {
        let violation = Violation { oracle, what };
        self.log(&format!("VIOLATED {violation}"));
        locked(&self.violations).push(violation);
    }

    /// Records why the workload did not settle.
    pub(crate) fn set_unsettled(&self, why: String) {
        self.log(&format!("UNSETTLED {why}"));
        *locked(&self.unsettled) = Some(why);
    }

    pub(crate) fn unsettled(&self) -> Option<String> {
        locked(&self.unsettled).clone()
    }

    pub(crate) fn violations(&self) -> Vec<Violation> {
        locked(&self.violations).clone()
    }

    pub(crate) fn faults(&self) -> MutexGuard<'_, Faults> {
        locked(&self.faults)
    }

    /// Counts one occurrence of `what`.
    pub(crate) fn count(&self, what: &'static str) {
        *locked(&self.injected).entry(what).or_default() += 1;
    }

    /// Returns the factor by which an agent waits longer before it dials again after its connection was not accepted.
    /// With two tenants it is larger, because an agent whose enrollment has ended keeps dialing for minutes.
    pub(crate) fn redial_factor(&self) -> u64 {
        match self.scenario {
            Scenario::OneDeployment => 1,
            Scenario::TwoTenants | Scenario::WholeLife => 10,
        }
    }

    pub(crate) fn pick<T: Clone>(&self, among: &[T]) -> Option<T> {
        if among.is_empty() { None } else { Some(locked(&self.chance).pick(among)) }
    }

    pub(crate) fn between(&self, from: u64, to: u64) -> u64 {
        locked(&self.chance).between(from, to)
    }

    pub(crate) fn fork(&self) -> Chance {
        locked(&self.chance).fork()
    }

    pub(crate) fn uuid(&self) -> Uuid {
        let mut chance = locked(&self.chance);
        Uuid::from_u64_pair(chance.next(), chance.next())
    }

    /// Decides whether a fault with the given rate per mille occurs now. Always false while faults are off.
    pub(crate) fn happens(&self, rate: impl Fn(&Faults) -> u64) -> bool {
        let often = rate(&locked(&self.faults));
        *locked(&self.armed) && locked(&self.chance).per_mille(often)
    }

    /// Draws the latency of one message: 1 to 19 ms, or 200 ms to 8 s if it is slow.
    pub(crate) fn latency(&self) -> Duration {
        let slow = self.happens(|faults| faults.slow);
        if slow {
            self.count("messages late");
        }
        Duration::from_millis(if slow { self.between(200, 8_000) } else { self.between(1, 20) })
    }

    pub(crate) fn set_nodes(&self, nodes: Vec<Arc<Node>>) {
        assert!(self.nodes.set(nodes).is_ok(), "nodes are set once");
    }

    pub(crate) fn nodes(&self) -> &[Arc<Node>] {
        self.nodes.get().map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn node(&self, id: NodeId) -> Arc<Node> {
        self.nodes().iter().find(|node| node.id == id).expect("the node exists").clone()
    }

    /// Returns whether the server's unit is up. The server runs on the first node.
    pub(crate) fn server_is_up(&self) -> bool {
        self.nodes()[0].machine().is_up(self.scheduler.now())
    }

    pub(crate) fn expect_plane(&self, slot: usize, process: Process) {
        locked(&self.planes).insert(process, PlaneProcess { slot, plane: None });
    }

    pub(crate) fn plane_serves(&self, plane: Plane) {
        locked(&self.planes).insert(plane.process, PlaneProcess { slot: plane.slot, plane: Some(plane) });
    }

    pub(crate) fn plane_of(&self, process: Process) -> Option<Plane> {
        locked(&self.planes).get(&process)?.plane.clone()
    }

    pub(crate) fn plane_name(&self, process: Process) -> String {
        self.plane_of(process).map_or_else(|| "unknown".to_owned(), |plane| plane.name)
    }

    /// Picks a serving control plane. It may be frozen, because a client cannot tell.
    pub(crate) fn any_plane(&self) -> Option<Plane> {
        let serving: Vec<Plane> = locked(&self.planes).values().filter_map(|seat| seat.plane.clone()).collect();
        if serving.is_empty() { None } else { Some(locked(&self.chance).pick(&serving)) }
    }

    /// Sends a request to a random control plane. Returns `None` if no control plane serves, or if it dies or does not answer in time;
    /// the request may have been carried out nevertheless.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        what: impl FnOnce(Arc<Engine>) -> BoxFuture<'static, T> + Send,
    ) -> Option<T> {
        let plane = self.any_plane()?;
        let asked = what(plane.engine.clone());
        let (answer, answered) = oneshot::channel();
        self.scheduler.sleep(self.latency()).await;
        self.scheduler.spawn(plane.process, async move {
            // The receiver is dropped if the caller timed out.
            let _ = answer.send(asked.await);
        });
        tokio::select! {
            biased;
            answer = answered => answer.ok(),
            () = self.scheduler.sleep(ANSWER_TIMEOUT) => None,
        }
    }

    /// Starts fault injection as the seed defines it.
    pub(crate) fn start_faults(self: &Arc<Self>) {
        *locked(&self.armed) = true;
        let timed = locked(&self.faults).timed.clone();
        for (at, what) in timed {
            let simulation = self.clone();
            self.scheduler.spawn(self.outside, async move {
                simulation.scheduler.sleep(at).await;
                if *locked(&simulation.armed) {
                    simulation.strike_timed(what);
                }
            });
        }
    }

    /// Stops fault injection.
    pub(crate) fn stop_faults(&self) {
        *locked(&self.armed) = false;
        locked(&self.faults).clear();
        self.log("calm");
    }

    fn strike_timed(self: &Arc<Self>, what: Timed) {
        let seats: Vec<(Process, usize)> =
            locked(&self.planes).iter().map(|(process, seat)| (*process, seat.slot)).collect();
        let process_of = |slot| seats.iter().find(|(_, of)| *of == slot).map(|(process, _)| *process);
        match what {
            Timed::KillPlane(slot) => {
                if let Some(process) = process_of(slot) {
                    self.count("control planes killed");
                    self.log(&format!("cp-{slot} is killed"));
                    self.scheduler.kill(process);
                }
            }
            Timed::FreezePlane(slot, wait) => {
                if let Some(process) = process_of(slot) {
                    self.freeze(process, wait);
                }
            }
            Timed::KillAgent(index) => {
                if let Some((process, _)) = self.nodes()[index].agent() {
                    self.count("agents killed");
                    self.log(&format!("the agent of {} is killed", self.nodes()[index].name));
                    self.scheduler.kill(process);
                }
            }
            Timed::Cut(index, outage) => {
                self.count("nodes cut off");
                self.log(&format!("{} is cut off for {} ms", self.nodes()[index].name, outage.as_millis()));
                self.nodes()[index].cut(self, outage);
            }
            Timed::FillDisk(index, wait) => {
                self.count("disks full");
                let node = self.nodes()[index].clone();
                self.log(&format!("the disk of {} is full for {} ms", node.name, wait.as_millis()));
                node.disk.fill(true);
                let simulation = self.clone();
                self.scheduler.spawn(self.outside, async move {
                    simulation.scheduler.sleep(wait).await;
                    node.disk.fill(false);
                });
            }
        }
    }

    fn stall(&self, process: Process, wait: Duration) {
        self.count("databases out of reach");
        let name = self.plane_name(process);
        self.log(&format!("{name} cannot reach the database for {} ms", wait.as_millis()));
        locked(&self.stalled).insert(process, self.scheduler.now().plus(wait));
    }

    /// Returns the gate that a control plane passes before each access to the database: it blocks while the database is out of reach.
    pub(crate) fn gate(&self, process: Process) -> Gate {
        let simulation = self.me.clone();
        Arc::new(move || {
            let simulation = simulation.upgrade();
            Box::pin(async move {
                let Some(simulation) = simulation else { return Ok(()) };
                let until = locked(&simulation.stalled).get(&process).copied();
                if let Some(until) = until {
                    simulation.scheduler.sleep_until(until).await;
                }
                Ok(())
            })
        })
    }

    fn freeze(self: &Arc<Self>, process: Process, wait: Duration) {
        self.count("control planes frozen");
        self.log(&format!("{} is frozen for {} ms", self.plane_name(process), wait.as_millis()));
        self.scheduler.freeze(process);
        let simulation = self.clone();
        self.scheduler.spawn(self.outside, async move {
            // A long freeze breaks the connections first, because heartbeats go unanswered.
            let beats = Duration::from_millis(simulation.between(5_000, 15_000)).min(wait);
            simulation.scheduler.sleep(beats).await;
            if simulation.scheduler.is_frozen(process) && beats < wait {
                simulation.nodes().iter().for_each(|node| node.disconnect(Some(process)));
            }
            simulation.scheduler.sleep(wait - beats).await;
            simulation.log(&format!("{} continues", simulation.plane_name(process)));
            simulation.scheduler.thaw(process);
        });
    }

    /// Kills all processes.
    pub(crate) fn shut_down(&self) {
        self.scheduler.kill_all();
        locked(&self.planes).clear();
    }

    /// Handles a crash point that the running process reached: applies the seed's strike for it, if there is one.
    pub(crate) fn reached(&self, point: Point) {
        let (Some(simulation), Some(process)) = (self.me.upgrade(), self.scheduler.running()) else { return };
        if let (Scenario::OneDeployment | Scenario::WholeLife, Point::StepSettled(_), Some(plane)) =
            (self.scenario, point, self.plane_of(process))
        {
            let check = oracles::check_lease_holder(simulation.clone(), plane);
            self.scheduler.spawn_first(self.outside, check);
        }
        if !*locked(&self.armed) {
            return;
        }
        if let Point::StepBegun(kind) = point {
            match kind {
                StepKind::NodeTask => self.count("node tasks begun"),
                StepKind::ClusterCall => self.count("cluster calls begun"),
                StepKind::Record => {}
            }
        }
        let Some(strike) = locked(&self.faults).reach(point) else { return };
        match strike {
            Strike::Freeze(wait) => simulation.freeze(process, wait),
            Strike::Stall(wait) => simulation.stall(process, wait),
            Strike::Cancel => self.scheduler.spawn(self.outside, people::cancel_open(simulation.clone())),
            Strike::Die | Strike::LosePower => {
                self.log(&format!("death at {point}{}", if strike == Strike::Die { "" } else { ", with power loss" }));
                match self.nodes().iter().find(|node| node.agent().is_some_and(|(agent, _)| agent == process)) {
                    Some(node) if strike == Strike::LosePower => node.disk.lose_power(&mut self.fork()),
                    Some(_) | None => {}
                }
                let of_plane = matches!(point, Point::StepBegun(_) | Point::StepAnswered(_) | Point::StepSettled(_));
                self.count(if of_plane { "control planes killed" } else { "agents killed" });
                drop(simulation);
                die_here()
            }
        }
    }

    /// Restarts processes that died, as an init would, after 100 ms to 8 s.
    pub(crate) fn restart_dead(self: &Arc<Self>) {
        for process in self.scheduler.take_dead() {
            let simulation = self.clone();
            let wait = Duration::from_millis(self.between(100, 8_000));
            if let Some(seat) = locked(&self.planes).remove(&process) {
                self.nodes().iter().for_each(|node| node.disconnect(Some(process)));
                let predecessor = seat.plane.map(|plane| plane.engine.replica());
                self.scheduler.spawn(self.outside, async move {
                    simulation.scheduler.sleep(wait).await;
                    plane::start(&simulation, seat.slot, predecessor);
                });
            } else if let Some(node) = self.nodes().iter().find(|node| node.agent_died(process)).cloned() {
                self.scheduler.spawn(self.outside, async move {
                    simulation.scheduler.sleep(wait).await;
                    simulation.log(&format!("the agent of {} starts again", node.name));
                    node.start_agent(&simulation);
                });
            }
        }
    }
}

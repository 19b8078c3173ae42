//! The faults of a seed, drawn before it starts.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use gpuaas_crash_points::{Point, StepKind};
use gpuaas_model::{Code, TaskType};

use gpuaas_test_support::Chance;

/// Task types that a deployment uses.
const USED: [TaskType; 7] = [
    TaskType::Inspect,
    TaskType::Preflight,
    TaskType::ArtifactFetch,
    TaskType::Rke2Install,
    TaskType::Rke2Configure,
    TaskType::Rke2Start,
    TaskType::Rke2KubeconfigRead,
];
/// Task types that later operations use, too.
const USED_LATER: [TaskType; 7] = [
    TaskType::Rke2Stop,
    TaskType::Rke2Enable,
    TaskType::Rke2Start,
    TaskType::Rke2Configure,
    TaskType::Rke2Install,
    TaskType::Rke2Uninstall,
    TaskType::Residue,
];
/// Calls to the cluster that later operations make.
const CALLS_LATER: [&str; 7] = [
    "cordon_kube_node",
    "drain_kube_node",
    "uncordon_kube_node",
    "delete_kube_node",
    "forget_node_password",
    "label_kube_node",
    "kube_node_ready",
];
/// Calls to the cluster that a deployment makes.
const CALLS: [&str; 3] = ["api_ready", "kube_node_ready", "deliver_access"];
/// Timed faults strike within this time after fault injection starts. Most deployments end earlier.
const TIMED_FAULTS_MS: u64 = 240_000;

/// A fault that hits a process when it reaches a crash point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strike {
    /// The process dies at the point.
    Die,
    /// The process dies, and the node's disk loses unsynced writes.
    LosePower,
    /// The process is frozen for this long, from its next await on.
    Freeze(Duration),
    /// The process cannot reach the database for this long.
    Stall(Duration),
    /// A person cancels the open operation.
    Cancel,
}

/// A fault at a fixed time. Control planes are given by slot, nodes by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    KillPlane(usize),
    FreezePlane(usize, Duration),
    KillAgent(usize),
    /// The node is disconnected from the network for this long.
    Cut(usize, Duration),
    /// The node's disk is full for this long.
    FillDisk(usize, Duration),
}

/// A failure that a task or a cluster call reports as its result, the first `times` times.
#[derive(Clone, Debug)]
pub(crate) struct Failing {
    pub(crate) code: Code,
    pub(crate) times: u32,
}

/// The size of a simulation and all its faults.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    pub(crate) replicas: usize,
    pub(crate) nodes: usize,
    /// Calls to the cluster check its state at multiples of this interval.
    pub(crate) check_interval_ms: i64,
    /// True if the control planes follow the cluster. A seed takes longer with it.
    pub(crate) follows_clusters: bool,
    /// Rate per mille of messages; so are the next three.
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    pub(crate) slow: u64,
    pub(crate) old_leader: u64,
    /// Rate per mille at which a residue check reports residue although the uninstall is complete.
    pub(crate) residue: u64,
    /// Each strikes once, when the point is reached for the nth time, counted over all processes.
    pub(crate) strikes: Vec<(Point, u32, Strike)>,
    pub(crate) timed: Vec<(Duration, Timed)>,
    pub(crate) tasks: BTreeMap<(usize, TaskType), Failing>,
    pub(crate) calls: BTreeMap<&'static str, Failing>,
    /// Nodes on which the next removal of the app leaves something behind.
    pub(crate) leftovers: BTreeSet<usize>,
    /// How often each point was reached since fault injection started.
    reached: BTreeMap<String, u32>,
}

impl Faults {
    pub(crate) fn of(chance: &mut Chance) -> Self {
        let replicas = chance.pick(&[1, 1, 2, 2, 2]);
        let nodes = chance.pick(&[1, 2, 2, 3, 3, 8]);
        let mut faults = Self {
            replicas,
            lost: chance.pick(&[0, 0, 20, 60]),
            duplicated: chance.pick(&[0, 50, 200]),
            slow: chance.pick(&[0, 30, 100]),
            old_leader: chance.pick(&[0, 200]),
            check_interval_ms: chance.pick(&[500, 4_000, 20_000]),
            ..Self::none(nodes)
        };
        for _ in 0..chance.below(4) {
            faults.strikes.push(strike_plane(chance));
        }
        for _ in 0..chance.below(4) {
            faults.strikes.push(strike_agent(chance));
        }
        for _ in 0..chance.below(3) {
            let at = Duration::from_millis(chance.below(TIMED_FAULTS_MS));
            faults.timed.push((at, timed(chance, replicas, nodes)));
        }
        faults.timed.sort_by_key(|(at, _)| *at);
        for _ in 0..chance.below(3) {
            let node = usize::try_from(chance.below(nodes as u64)).expect("an index fits");
            let failing = failing(chance, &[Code::ServerUnreachable, Code::HostFailed, Code::ArtifactTruncated]);
            faults.tasks.insert((node, chance.pick(&USED)), failing);
        }
        if chance.per_mille(300) {
            let failing = failing(chance, &[Code::ClusterNotReady, Code::ClusterUnreachable, Code::Internal]);
            faults.calls.insert(chance.pick(&CALLS), failing);
        }
        faults
    }

    /// Adapts the faults to two tenants who share `nodes` nodes: drops timed faults of other nodes, and makes residue checks find residue
    /// in 15 % of cases.
    pub(crate) fn of_tenants(mut self, nodes: usize) -> Self {
        (self.nodes, self.residue) = (nodes, 150);
        self.timed.retain(|(_, what)| match what {
            Timed::KillAgent(node) | Timed::Cut(node, _) | Timed::FillDisk(node, _) => *node < nodes,
            Timed::KillPlane(_) | Timed::FreezePlane(_, _) => true,
        });
        self
    }

    /// Adapts the faults to the whole life of a workload on `nodes` nodes: they also hit the tasks and calls of its later operations.
    pub(crate) fn of_life(mut self, nodes: usize, chance: &mut Chance) -> Self {
        self = self.of_tenants(nodes);
        self.residue = 20;
        self.tasks.retain(|(node, _), _| *node < nodes);
        for _ in 0..chance.below(4) {
            let node = usize::try_from(chance.below(nodes as u64)).expect("an index fits");
            let failing = failing(chance, &[Code::ServerUnreachable, Code::HostFailed, Code::DiskFull]);
            self.tasks.insert((node, chance.pick(&USED_LATER)), failing);
        }
        for _ in 0..chance.below(3) {
            let failing = failing(chance, &[Code::ClusterNotReady, Code::ClusterUnreachable, Code::Internal]);
            self.calls.insert(chance.pick(&CALLS_LATER), failing);
        }
        for _ in 0..chance.below(3) {
            let kind = chance.pick(&StepKind::ALL);
            let nth_max = if kind == StepKind::NodeTask { 60 } else { 20 };
            let nth = u32::try_from(chance.between(1, nth_max)).expect("it is small");
            self.strikes.push((Point::StepBegun(kind), nth, Strike::Cancel));
        }
        if chance.per_mille(400) {
            self.leftovers.insert(usize::try_from(chance.below(nodes as u64)).expect("an index fits"));
        }
        self
    }

    /// Shows every fault to `keep`, always in the same order, and removes those for which it returns false.
    pub(crate) fn retain(&mut self, keep: &mut dyn FnMut(String) -> bool) {
        let rates = [
            ("messages lost", &mut self.lost),
            ("messages repeated", &mut self.duplicated),
            ("messages late", &mut self.slow),
            ("tasks of old leaders", &mut self.old_leader),
            ("residue reported", &mut self.residue),
        ];
        for (what, rate) in rates {
            if *rate > 0 && !keep(format!("{what}: {rate} per mille")) {
                *rate = 0;
            }
        }
        self.strikes.retain(|(point, nth, strike)| keep(format!("{strike:?} when {point} is reached for time {nth}")));
        self.timed.retain(|(at, what)| keep(format!("after {:.3} s: {what:?}", at.as_secs_f64())));
        self.tasks.retain(|(node, task), failing| {
            keep(format!("{task} on gpu-{} fails {} times: {}", node + 1, failing.times, failing.code))
        });
        self.calls.retain(|call, failing| keep(format!("{call} fails {} times: {}", failing.times, failing.code)));
        self.leftovers.retain(|node| keep(format!("a removal leaves something on gpu-{}", node + 1)));
    }

    /// Returns one control plane with `nodes` nodes and no faults.
    pub(crate) fn none(nodes: usize) -> Self {
        Self {
            replicas: 1,
            nodes,
            check_interval_ms: 60_000,
            follows_clusters: false,
            lost: 0,
            duplicated: 0,
            slow: 0,
            old_leader: 0,
            residue: 0,
            strikes: Vec::new(),
            timed: Vec::new(),
            tasks: BTreeMap::new(),
            calls: BTreeMap::new(),
            leftovers: BTreeSet::new(),
            reached: BTreeMap::new(),
        }
    }

    /// Removes the faults that messages, points, tasks and calls would still meet. The residue rate and timed faults stay; `Simulation::stop_faults`
    /// disables them.
    pub(crate) fn clear(&mut self) {
        (self.lost, self.duplicated, self.slow, self.old_leader) = (0, 0, 0, 0);
        self.strikes.clear();
        self.tasks.clear();
        self.calls.clear();
        self.leftovers.clear();
    }

    /// Counts that a process reached the point, and returns the strike for it, if any.
    pub(crate) fn reach(&mut self, point: Point) -> Option<Strike> {
        let reached = self.reached.entry(point.to_string()).or_default();
        *reached += 1;
        let at = self.strikes.iter().position(|(armed, nth, _)| *armed == point && nth == reached)?;
        Some(self.strikes.remove(at).2)
    }

    /// Returns the failure that this attempt of a task must report, if any.
    pub(crate) fn of_task(&mut self, node: usize, task: TaskType) -> Option<Code> {
        self.tasks.get_mut(&(node, task)).and_then(Failing::next)
    }

    /// Returns true if this removal of the app leaves something on the node.
    pub(crate) fn leaves_something(&mut self, node: usize) -> bool {
        self.leftovers.remove(&node)
    }

    /// Returns the failure that this attempt of a cluster call must report, if any.
    pub(crate) fn of_call(&mut self, call: &str) -> Option<Code> {
        self.calls.get_mut(call).and_then(Failing::next)
    }
}

impl Failing {
    fn next(&mut self) -> Option<Code> {
        self.times = self.times.checked_sub(1)?;
        Some(self.code)
    }
}

fn strike_plane(chance: &mut Chance) -> (Point, u32, Strike) {
    let kind = chance.pick(&[StepKind::NodeTask, StepKind::NodeTask, StepKind::ClusterCall, StepKind::Record]);
    let point = chance.pick(&[Point::StepBegun(kind), Point::StepAnswered(kind), Point::StepSettled(kind)]);
    let nth_max = if kind == StepKind::NodeTask { 12 } else { 3 };
    let nth = u32::try_from(chance.between(1, nth_max + 1)).expect("it is small");
    let frozen = Duration::from_millis(chance.between(2_000, 60_000));
    let strike = chance.pick(&[Strike::Die, Strike::Die, Strike::Freeze(frozen), Strike::Stall(frozen / 3)]);
    (point, nth, strike)
}

fn strike_agent(chance: &mut Chance) -> (Point, u32, Strike) {
    let task = chance.pick(&USED);
    let mut points = vec![Point::TaskBegun(task), Point::TaskDone(task), Point::TaskEnded(task)];
    if task.touches_app() {
        points.extend([Point::TaskInside(task); 2]);
    }
    let nth = u32::try_from(chance.between(1, 4)).expect("it is small");
    (chance.pick(&points), nth, if chance.per_mille(300) { Strike::LosePower } else { Strike::Die })
}

fn timed(chance: &mut Chance, replicas: usize, nodes: usize) -> Timed {
    let index = |bound: usize, chance: &mut Chance| usize::try_from(chance.below(bound as u64)).expect("an index fits");
    let (plane, node) = (index(replicas, chance), index(nodes, chance));
    let wait = Duration::from_millis(chance.between(500, 45_000));
    chance.pick(&[
        Timed::KillPlane(plane),
        Timed::FreezePlane(plane, wait),
        Timed::KillAgent(node),
        Timed::Cut(node, wait),
        Timed::Cut(node, wait),
        Timed::FillDisk(node, wait),
    ])
}

fn failing(chance: &mut Chance, codes: &[Code]) -> Failing {
    Failing { code: chance.pick(codes), times: u32::try_from(chance.between(1, 4)).expect("it is small") }
}

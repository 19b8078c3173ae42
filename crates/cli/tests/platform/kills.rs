//! Kills each possible victim at every named point of a deployment. The deployment must succeed, and an effect may be repeated only
//! if the node's ledger shows that it was interrupted.

use std::time::{Duration, Instant};

use gpuaas_crash_points::{Point, StepKind};
use gpuaas_model::TaskType;

use crate::{
    fleet::Fleet,
    restarts::{assert_succeeds, prepare_deployment},
    world::{CLUSTERS, eventually},
};

/// The node that carries the server; its points are armed.
const NODE: u8 = 1;

/// The process that receives the signal while the process at the point is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    ControlPlane,
    Agent,
    Init,
    /// The control plane and the agent at once.
    Both,
}

/// Returns the node on which `point` is reached; `None` for a point of the control plane.
const fn node_of(point: Point) -> Option<u8> {
    match point {
        Point::Start(_)
        | Point::StepBegun(_)
        | Point::StepAnswered(_)
        | Point::StepSettled(_)
        | Point::Restore(_)
        | Point::ArchiveWritten
        | Point::ArchiveRecorded => None,
        Point::TaskBegun(_)
        | Point::TaskInside(_)
        | Point::TaskDone(_)
        | Point::TaskEnded(_)
        | Point::UnitStarting
        | Point::UnitStarted => Some(NODE),
    }
}

/// Runs one cell: a deployment with `victim` killed at `point`. Returns its duration, or `None` if the deployment never reaches the point.
async fn cell(point: Point, victim: Victim) -> Option<Duration> {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let began = Instant::now();
    let mut fleet = Fleet::start(2).await;
    let client = fleet.client();
    let deploy = prepare_deployment(&client).await;
    let name = point.to_string();
    fleet.arm(node_of(point), &name);
    let operation = client.deploy_workload(&deploy).await.expect("accepted").operation.id;
    let mut ended = false;
    eventually("the deployment neither ends nor reaches the point", async || {
        let ask = client.get_operation(&operation);
        // A control plane that is stopped at the point does not answer.
        let detail = tokio::time::timeout(Duration::from_millis(500), ask).await;
        ended = matches!(detail, Ok(Ok(detail)) if detail.operation.ended_at.is_some());
        ended || fleet.is_stopped_at(node_of(point), &name)
    })
    .await;
    if ended {
        return None;
    }
    if matches!(victim, Victim::ControlPlane | Victim::Both) {
        fleet.kill_server();
    }
    match victim {
        Victim::Agent | Victim::Both => fleet.kill_agent(NODE),
        Victim::Init => fleet.kill_init(NODE),
        Victim::ControlPlane => {}
    }
    if node_of(point).is_some() {
        fleet.resume_processes(NODE);
    } else if !matches!(victim, Victim::ControlPlane | Victim::Both) {
        fleet.signal_replica(0, "CONT");
    }
    if victim == Victim::Init {
        fleet.start_init(NODE);
    }
    if matches!(victim, Victim::ControlPlane | Victim::Both) {
        fleet.start_server();
    }
    let client = fleet.client();
    assert_succeeds(&client, &operation).await;
    let tasks = client.list_tasks(None, Some(operation)).await.expect("tasks").items;
    let starts: Vec<String> = tasks
        .iter()
        .filter(|task| task.task_type == TaskType::Rke2Start.as_str())
        .map(|task| task.id.clone())
        .collect();
    // A booting machine starts enabled units by itself.
    let boots = usize::from(victim == Victim::Init);
    let may_start = 1 + fleet.interrupted(NODE, &starts) + boots;
    let started = fleet.count_events(NODE, "start");
    assert!((1..=may_start).contains(&started), "{name}: started {started} times, {may_start} at most");
    assert_eq!(fleet.count_events(2, "start"), 1, "{name}: the service of the other node is started once");
    Some(began.elapsed())
}

macro_rules! cells {
    ($($name:ident: $point:expr, $victim:expr;)+) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            assert!(cell($point, $victim).await.is_some(), "no deployment reaches {}", $point);
        })+
    };
}

// Twelve of all cells, with every kind of point and every victim.
cells! {
    a_control_plane_dies_before_a_task_is_sent: Point::StepBegun(StepKind::NodeTask), Victim::ControlPlane;
    a_control_plane_dies_before_it_records_a_task_result: Point::StepAnswered(StepKind::NodeTask), Victim::ControlPlane;
    a_control_plane_dies_before_it_acknowledges_a_task_result: Point::StepSettled(StepKind::NodeTask), Victim::ControlPlane;
    a_control_plane_dies_before_a_cluster_is_called: Point::StepBegun(StepKind::ClusterCall), Victim::ControlPlane;
    a_control_plane_dies_after_a_cluster_answered: Point::StepAnswered(StepKind::ClusterCall), Victim::ControlPlane;
    a_control_plane_dies_between_two_milestones: Point::StepSettled(StepKind::Record), Victim::ControlPlane;
    an_agent_dies_before_it_starts_the_unit: Point::TaskBegun(TaskType::Rke2Start), Victim::Agent;
    an_agent_dies_in_the_middle_of_an_installation: Point::TaskInside(TaskType::Rke2Install), Victim::Agent;
    an_agent_dies_before_it_records_that_the_unit_is_up: Point::TaskDone(TaskType::Rke2Start), Victim::Agent;
    both_die_when_only_the_ledger_has_the_result: Point::TaskEnded(TaskType::Rke2Configure), Victim::Both;
    a_machine_dies_in_the_middle_of_a_start: Point::TaskInside(TaskType::Rke2Start), Victim::Init;
    a_machine_dies_when_the_process_has_just_begun: Point::UnitStarted, Victim::Init;
}

/// Runs every cell; part of `cargo xtask test --full`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the whole product of points and victims takes half an hour"]
async fn every_point_and_every_victim() {
    // `first_starts` tests kills during a first start.
    for point in Point::all().into_iter().filter(|point| !matches!(point, Point::Start(_))) {
        for victim in [Victim::ControlPlane, Victim::Agent, Victim::Init, Victim::Both] {
            match cell(point, victim).await {
                Some(took) => println!("    kill matrix: {point} | {victim:?} | {:.1} s", took.as_secs_f64()),
                None => println!("    kill matrix: {point} | {victim:?} | not reached by a deployment"),
            }
        }
    }
}

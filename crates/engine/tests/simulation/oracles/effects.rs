//! Checks that every effect happens once, plus at most once per failed attempt, and that no node runs a task of a deposed leader.

use std::collections::BTreeMap;

use gpuaas_model::{TaskId, TaskState, TaskType};
use gpuaas_store::TaskRecord;
use gpuaas_wire::task::TaskOutcome;
use serde::Deserialize;

use super::Rows;
use crate::{node::Node, simulation::Simulation};

/// A line of the agent's ledger, as stored on disk.
#[derive(Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
enum Line {
    Begin { task: TaskId, fence: u64 },
    End { task: TaskId, outcome: TaskOutcome },
    Fence {},
}

pub(super) fn check(simulation: &Simulation, rows: &Rows, violations: &mut Vec<String>) {
    for node in simulation.nodes() {
        let of_node: BTreeMap<TaskId, &TaskRecord> =
            rows.tasks.iter().filter(|task| task.node == node.id).map(|task| (task.id, task)).collect();
        NodeCheck { node, tasks: &of_node, violations }.check();
    }
}

/// Checks that a deployment made every change once, plus at most once per failed attempt.
pub(super) fn check_times(simulation: &Simulation, rows: &Rows, violations: &mut Vec<String>) {
    for node in simulation.nodes() {
        let of_node: BTreeMap<TaskId, &TaskRecord> =
            rows.tasks.iter().filter(|task| task.node == node.id).map(|task| (task.id, task)).collect();
        NodeCheck { node, tasks: &of_node, violations }.check_times();
    }
}

struct NodeCheck<'a> {
    node: &'a Node,
    tasks: &'a BTreeMap<TaskId, &'a TaskRecord>,
    violations: &'a mut Vec<String>,
}

impl NodeCheck<'_> {
    fn check(&mut self) {
        let (begun, ended) = self.ledger();
        for (id, task) in self.tasks {
            let (begun, ended) = (begun.contains_key(id), ended.get(id));
            let agree = match task.state {
                // The agent reports a result even if a full disk prevented recording it.
                TaskState::Succeeded if ended.is_none() => begun && self.node.disk.was_full(),
                TaskState::Succeeded => ended == task.outcome.as_ref(),
                // An interrupted task has a begin line and no end line.
                TaskState::Interrupted => begun && ended.is_none(),
                // The node refused the task, the control plane gave up, or the task ended with that state.
                TaskState::Failed | TaskState::Expired | TaskState::Cancelled => true,
                TaskState::Dispatched => false,
            };
            self.require(agree, format!("{} {id} is {}, and the ledger says {ended:?}", task.task_type, task.state));
        }
    }

    fn check_times(&mut self) {
        let effects = self.node.machine().effects.clone();
        for (task_type, times) in effects {
            let undone = self.unsuccessful(task_type);
            self.require(times <= 1 + undone, format!("{task_type} had {times} effects with {undone} attempts undone"));
        }
    }

    /// Returns the fences of begun tasks and the outcomes of ended ones, from all lines that the agent ever appended. Reports tasks
    /// without a row, tasks that began or ended twice, and fences that decrease.
    fn ledger(&mut self) -> (BTreeMap<TaskId, u64>, BTreeMap<TaskId, TaskOutcome>) {
        let (mut begun, mut ended, mut highest) = (BTreeMap::new(), BTreeMap::new(), 0);
        let appended = self.node.disk.appended();
        for line in appended.lines() {
            match serde_json::from_str(line) {
                Ok(Line::Begin { task, fence }) => {
                    self.require(self.tasks.contains_key(&task), format!("{task} ran and has no row"));
                    self.require(begun.insert(task, fence).is_none(), format!("{task} ran twice"));
                    self.require(fence >= highest, format!("{task} ran under fence {fence} after {highest}"));
                    highest = highest.max(fence);
                }
                Ok(Line::End { task, outcome }) => {
                    self.require(ended.insert(task, outcome).is_none(), format!("{task} ended twice"));
                }
                Ok(Line::Fence {}) => {}
                Err(error) => self.require(false, format!("the ledger holds {line}: {error}")),
            }
        }
        (begun, ended)
    }

    /// Returns the number of tasks of that type that did not succeed on this node.
    fn unsuccessful(&self, task_type: TaskType) -> u32 {
        let of_type = |task: &&&TaskRecord| task.task_type == task_type && task.state != TaskState::Succeeded;
        u32::try_from(self.tasks.values().filter(of_type).count()).unwrap_or(u32::MAX)
    }

    fn require(&mut self, holds: bool, otherwise: String) {
        if !holds {
            self.violations.push(format!("{}: {otherwise}", self.node.name));
        }
    }
}

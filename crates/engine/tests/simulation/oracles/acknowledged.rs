//! Every end that is on record was acknowledged to its node, unless whoever recorded it died in doing so.

use std::time::Duration;

use gpuaas_store::TaskRecord;

use super::Rows;
use crate::world::World;

/// Whoever waits for a task gives it up when it has had so long for its answer.
const ANSWER_GRACE: Duration = Duration::from_secs(5);

pub(super) fn judge(world: &World, rows: &Rows, violations: &mut Vec<String>) {
    for task in &rows.tasks {
        let died_recording = task.ended_at.is_some_and(|at| world.plane_died_at(at));
        if !world.node(task.node).is_acknowledged(task.id) && !died_recording && !is_abandoned(task) {
            violations.push(format!("{} {} is {} and was not acknowledged", task.task_type, task.id, task.state));
        }
    }
}

/// Whoever waited for it died: it was ended later, for its age, and there was no answer to acknowledge.
fn is_abandoned(task: &TaskRecord) -> bool {
    task.operation.is_none() && task.ended_at.is_some_and(|ended| ended > task.expires_at.plus(ANSWER_GRACE))
}

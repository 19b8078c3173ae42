//! The state of a unit and the last lines of its journal, as results contain them.

use std::collections::VecDeque;

use futures::StreamExt;
use gpuaas_host::{JournalFrom, JournalLine, UnitStatus};
use gpuaas_model::cut;
use gpuaas_wire::task::{JournalExcerpt, TaskFailure, UnitReport};

use crate::context::Context;

/// Longest journal line in a result, in bytes.
const LINE_BYTES_MAX: usize = 1_024;

/// Converts a unit's status to its wire form.
pub fn report(status: UnitStatus) -> UnitReport {
    UnitReport {
        unit: status.unit,
        active: status.active,
        sub: status.sub,
        result: status.result,
        n_restarts: status.n_restarts,
        exec_main_status: status.exec_main_status,
        since: status.since,
    }
}

/// Returns the last lines of a unit's journal, at most `JOURNAL_LINES_MAX`.
pub async fn tail(context: &Context, unit: &str, from: JournalFrom) -> Vec<JournalExcerpt> {
    let Ok(mut journal) = context.host.units().journal(unit, from, false).await else { return Vec::new() };
    // The journal may have any number of lines; only the last ones are kept in memory.
    let mut lines = VecDeque::with_capacity(TaskFailure::JOURNAL_LINES_MAX);
    while let Some(line) = journal.next().await {
        if lines.len() == TaskFailure::JOURNAL_LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }
    let excerpt =
        |line: JournalLine| JournalExcerpt { at: line.at, text: cut(&line.text, LINE_BYTES_MAX).into_owned() };
    lines.into_iter().map(excerpt).collect()
}

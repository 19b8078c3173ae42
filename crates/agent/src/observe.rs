//! How units are, as the host's init tells it: once at first, then after every change; and what their journals said last.

use std::{collections::VecDeque, sync::Arc};

use futures::{Stream, StreamExt, stream::select_all};
use gpuaas_host::{Host, JournalFrom, JournalLine, UnitStatus};
use gpuaas_wire::{
    session::JOURNAL_UNITS,
    task::{JournalExcerpt, TaskFailure, UnitReport},
};

use crate::context::Context;

/// Longest journal line in an answer, in bytes.
const LINE_BYTES_MAX: usize = 1_024;

/// Reports of the allowlisted ones among `units`; those that the init does not know yet are reported as not loaded.
pub(crate) async fn reports(host: &Arc<dyn Host>, units: &[String]) -> impl Stream<Item = UnitReport> + Send + 'static {
    let mut streams = Vec::new();
    for unit in units.iter().filter(|unit| JOURNAL_UNITS.contains(&unit.as_str())) {
        if let Ok(events) = host.unit_events(unit).await {
            streams.push(events);
        }
    }
    select_all(streams).map(report)
}

/// A unit's status as it travels.
pub(crate) fn report(status: UnitStatus) -> UnitReport {
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

/// The last lines of a unit's journal.
pub(crate) async fn tail(context: &Context, unit: &str, from: JournalFrom) -> Vec<JournalExcerpt> {
    let Ok(mut journal) = context.host.journal(unit, from, false).await else { return Vec::new() };
    // A unit may have written any number of them.
    let mut lines = VecDeque::with_capacity(TaskFailure::JOURNAL_LINES_MAX);
    while let Some(line) = journal.next().await {
        if lines.len() == TaskFailure::JOURNAL_LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }
    let excerpt = |line: JournalLine| {
        let end = line.text.floor_char_boundary(LINE_BYTES_MAX);
        JournalExcerpt { at: line.at, text: line.text[..end].to_owned() }
    };
    lines.into_iter().map(excerpt).collect()
}

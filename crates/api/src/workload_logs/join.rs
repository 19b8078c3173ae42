//! Adds the journals of members that a workload gets while its logs are followed.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use gpuaas_engine::{
    Caller,
    commands::logs::{self, JOURNALS_MAX, LogSelection},
};
use gpuaas_model::{Code, Coded, LogSource, WorkloadId};

use super::{Range, Read, Source, journal_source, line::TimedLine};
use crate::state::ApiState;

/// Names of members that are remembered, so that each is reported once.
const KNOWN_MAX: usize = 4 * JOURNALS_MAX;

/// What is needed to read the journal of another member.
pub(super) struct Joining {
    state: ApiState,
    caller: Caller,
    workload: WorkloadId,
    selection: LogSelection,
    /// Names of members that are read already, or cannot be.
    known: BTreeSet<String>,
    /// Number of journals that may still be added.
    left: usize,
}

impl Joining {
    pub(super) fn new(
        state: ApiState,
        caller: Caller,
        workload: WorkloadId,
        selection: LogSelection,
        known: BTreeSet<String>,
    ) -> Self {
        let left = JOURNALS_MAX.saturating_sub(known.len());
        Self { state, caller, workload, selection, known, left }
    }

    /// Returns the journal of a member from now on, or a report why it cannot be read; `None` if it is known. Like the first journals it
    /// is opened with an audit record.
    pub(super) async fn join(&mut self, name: String) -> Option<Source> {
        if self.known.contains(&name) {
            return None;
        }
        let now = self.state.engine.ports().clock.now();
        let report = |name: &str, text: &str| {
            let line = TimedLine::problem(now, Some(name), text);
            Some(stream::iter([Read::Problem(line)]).boxed())
        };
        if self.left == 0 {
            if self.known.len() >= KNOWN_MAX {
                return None;
            }
            self.known.insert(name.clone());
            return report(&name, &format!("its journal is not added: at most {JOURNALS_MAX} are read at once"));
        }
        self.left -= 1;
        self.known.insert(name.clone());
        let (members, sources) = (vec![name.clone()], vec![LogSource::Journal]);
        let selection = LogSelection { members, sources, unit: self.selection.unit.clone() };
        let opened = logs::open_workload(&self.state.engine, &self.caller, self.workload, &selection).await;
        let journal = match opened {
            Ok(mut opened) => opened.journals.pop()?,
            // The member has no unit of the selected name.
            Err(refused) if refused.code() == Code::FieldInvalid => return None,
            Err(refused) => return report(&name, &refused.to_string()),
        };
        let Ok(permit) = self.state.streams.take(self.caller.principal.token) else {
            return report(&name, "its journal is not added: this token has too many streams");
        };
        let range = Range { since: Some(now), tail: None, follow: true };
        Some(journal_source(&self.state, self.workload, journal, range, None, permit))
    }
}

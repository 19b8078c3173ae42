//! Counts what the store asks of its database, for metrics and benchmarks.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::store::Store;

/// Totals since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Statements of changes and readers, failed ones included, without those that begin and end
    /// transactions and savepoints.
    pub statements: u64,
    /// Changes that were committed.
    pub changes: u64,
    /// Commits by the database, each durable; at most as many as changes.
    pub commits: u64,
}

/// The counters of a store and of its clones.
#[derive(Clone, Default)]
pub(crate) struct Counters(Arc<Totals>);

#[derive(Default)]
struct Totals {
    statements: AtomicU64,
    changes: AtomicU64,
    commits: AtomicU64,
}

impl Counters {
    pub(crate) fn count_statement(&self) {
        self.0.statements.fetch_add(1, Ordering::Relaxed);
    }

    /// A commit by the database, of so many changes; of none, it was nothing.
    pub(crate) fn count_commit(&self, changes: usize) {
        self.0.changes.fetch_add(changes as u64, Ordering::Relaxed);
        self.0.commits.fetch_add(u64::from(changes > 0), Ordering::Relaxed);
    }
}

impl Store {
    /// What this store has asked of its database so far.
    pub fn counts(&self) -> StoreCounts {
        let Totals { statements, changes, commits } = &*self.counters.0;
        StoreCounts {
            statements: statements.load(Ordering::Relaxed),
            changes: changes.load(Ordering::Relaxed),
            commits: commits.load(Ordering::Relaxed),
        }
    }
}

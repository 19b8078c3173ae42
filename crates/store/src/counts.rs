//! Counts statements and commits, for metrics and benchmarks.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Totals since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Statements of changes and readers, including failed ones, without those that begin and end transactions and
    /// savepoints.
    pub statements: u64,
    /// Committed changes.
    pub changes: u64,
    /// Durable commits by the database; at most as many as changes.
    pub commits: u64,
}

/// The counters of a store and its clones.
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

    /// Counts one database commit with this many changes; does not count a commit without changes.
    pub(crate) fn count_commit(&self, changes: usize) {
        self.0.changes.fetch_add(changes as u64, Ordering::Relaxed);
        self.0.commits.fetch_add(u64::from(changes > 0), Ordering::Relaxed);
    }

    pub(crate) fn totals(&self) -> StoreCounts {
        let Totals { statements, changes, commits } = &*self.0;
        StoreCounts {
            statements: statements.load(Ordering::Relaxed),
            changes: changes.load(Ordering::Relaxed),
            commits: commits.load(Ordering::Relaxed),
        }
    }
}

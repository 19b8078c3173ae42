//! One writer at a time for each file.
//!
//! Whoever asked for a copy may have given it up: the copying itself, in a thread of its own, goes on. The next who wants that file must not write
//! into the same draft; it waits for the end of the other, and finds what that one left.

use std::{
    collections::BTreeSet,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use camino::{Utf8Path, Utf8PathBuf};

/// Files that this process is writing.
static WRITTEN: Mutex<BTreeSet<Utf8PathBuf>> = Mutex::new(BTreeSet::new());
static ENDED: Condvar = Condvar::new();

/// The right to write a file, as long as it lives.
pub(crate) struct Turn(Utf8PathBuf);

impl Turn {
    /// Waits, with this thread, until nobody else of this process writes the file.
    pub(crate) fn take(file: &Utf8Path) -> Self {
        let is_written = |written: &mut BTreeSet<Utf8PathBuf>| written.contains(file);
        let mut written = ENDED.wait_while(lock(), is_written).unwrap_or_else(PoisonError::into_inner);
        written.insert(file.to_owned());
        Self(file.to_owned())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock().remove(&self.0);
        ENDED.notify_all();
    }
}

/// A set of names is whole at every moment: a panic beside it changes nothing.
fn lock() -> MutexGuard<'static, BTreeSet<Utf8PathBuf>> {
    WRITTEN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn who_wants_a_file_that_is_written_waits_and_another_file_is_nobodys_to_wait_for() {
        let first = Turn::take("/a".into());
        drop(Turn::take("/b".into()));
        let (taken, told) = mpsc::channel();
        let second = std::thread::spawn(move || {
            let turn = Turn::take("/a".into());
            taken.send(()).unwrap();
            drop(turn);
        });
        assert!(told.recv_timeout(std::time::Duration::from_millis(50)).is_err(), "both write it");
        drop(first);
        told.recv().unwrap();
        second.join().unwrap();
        assert!(!lock().contains(Utf8Path::new("/a")));
    }
}

//! One writer at a time for each file, and none that nobody waits for any more.
//!
//! Whoever asked for a copy may have given it up: the copying itself, in a thread of its own, goes on. The next who wants that file must not write
//! into the same draft; it waits for the end of the other. And what was given up must change nothing any more: by then its file may have been
//! removed, and been found to be gone.

use std::{
    collections::BTreeSet,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
};

use camino::{Utf8Path, Utf8PathBuf};

use crate::error::HostError;

/// Files that this process is writing.
static WRITTEN: Mutex<BTreeSet<Utf8PathBuf>> = Mutex::new(BTreeSet::new());
static ENDED: Condvar = Condvar::new();

/// Whether somebody still waits for a work that is done beside everything else.
pub(crate) struct Asked(Weak<()>);

impl Asked {
    /// For a work, and what its asker holds for as long as it waits.
    pub(crate) fn new() -> (Arc<()>, Self) {
        let asker = Arc::new(());
        let asked = Self(Arc::downgrade(&asker));
        (asker, asked)
    }

    /// Refuses what was given up.
    pub(crate) fn still(&self) -> Result<(), HostError> {
        if self.0.strong_count() > 0 { Ok(()) } else { Err(HostError::GivenUp) }
    }
}

/// The right to write a file, as long as it lives.
pub(crate) struct Turn(Utf8PathBuf);

impl Turn {
    /// Waits, with this thread, until nobody else of this process writes the file. Refuses what was given up meanwhile.
    pub(crate) fn take(file: &Utf8Path, asked: &Asked) -> Result<Self, HostError> {
        let is_written = |written: &mut BTreeSet<Utf8PathBuf>| written.contains(file);
        let mut written = ENDED.wait_while(lock(), is_written).unwrap_or_else(PoisonError::into_inner);
        asked.still()?;
        written.insert(file.to_owned());
        Ok(Self(file.to_owned()))
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
    use std::{sync::mpsc, thread, time::Duration};

    use super::*;

    #[test]
    fn who_wants_a_file_that_is_written_waits_and_another_file_is_nobodys_to_wait_for() {
        let (_asker, asked) = Asked::new();
        let first = Turn::take("/a".into(), &asked).unwrap();
        drop(Turn::take("/b".into(), &asked).unwrap());
        let (taken, told) = mpsc::channel();
        let second = thread::spawn(move || {
            let (_asker, asked) = Asked::new();
            let turn = Turn::take("/a".into(), &asked).unwrap();
            taken.send(()).unwrap();
            drop(turn);
        });
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err(), "both write it");
        drop(first);
        told.recv().unwrap();
        second.join().unwrap();
        assert!(!lock().contains(Utf8Path::new("/a")));
    }

    #[test]
    fn who_gave_up_while_waiting_gets_no_turn() {
        let (_first_asker, first_asked) = Asked::new();
        let first = Turn::take("/c".into(), &first_asked).unwrap();
        let (asker, asked) = Asked::new();
        let second = thread::spawn(move || Turn::take("/c".into(), &asked).map(drop));
        drop(asker);
        drop(first);
        assert!(matches!(second.join().unwrap(), Err(HostError::GivenUp)));
        assert!(!lock().contains(Utf8Path::new("/c")));
    }
}

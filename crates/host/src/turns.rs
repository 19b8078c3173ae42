//! Serialises writers of a file, and stops writers whose caller is no longer waiting.
//!
//! A caller can drop its call to copy a file while the copy goes on in its own thread. The next writer of that file must not write into the
//! same draft, so it waits for the first to end. And the abandoned copy must not change anything any more: by then the caller may have
//! removed its target and seen that it does not exist.

use std::{
    collections::BTreeSet,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
};

use camino::{Utf8Path, Utf8PathBuf};

use crate::error::HostError;

/// Files that this process is writing.
static WRITTEN: Mutex<BTreeSet<Utf8PathBuf>> = Mutex::new(BTreeSet::new());
static ENDED: Condvar = Condvar::new();

/// Shows work on a blocking thread if its caller still waits.
pub(crate) struct Asked(Weak<()>);

impl Asked {
    /// Returns the handle that the caller holds while it waits, and the check for the work.
    pub(crate) fn new() -> (Arc<()>, Self) {
        let asker = Arc::new(());
        let asked = Self(Arc::downgrade(&asker));
        (asker, asked)
    }

    /// Fails with [`HostError::GivenUp`] if the caller no longer waits.
    pub(crate) fn still(&self) -> Result<(), HostError> {
        if self.0.strong_count() > 0 { Ok(()) } else { Err(HostError::GivenUp) }
    }
}

/// The right to write a file, until it is dropped.
pub(crate) struct Turn(Utf8PathBuf);

impl Turn {
    /// Blocks this thread until nothing else in this process writes the file. Fails if the caller no longer waits by then.
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

/// Locks the set. A panic while it is locked cannot leave it inconsistent.
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

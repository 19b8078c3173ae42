//! Serialises writers of a file, and stops writers whose caller is no longer waiting.
//!
//! A caller can drop its call to copy a file while the copy continues in its own thread. The next writer of that file must not write into the
//! same draft, so it waits for the first to end. And the abandoned copy must not change anything any more: by then the caller may have
//! removed its target and seen that it does not exist.

use std::{
    collections::BTreeSet,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
};

use camino::{Utf8Path, Utf8PathBuf};

use crate::error::HostError;

/// Files that this process is writing.
static LOCKED: Mutex<BTreeSet<Utf8PathBuf>> = Mutex::new(BTreeSet::new());
static RELEASED: Condvar = Condvar::new();

/// Shows work on a blocking thread if its caller still waits.
pub(crate) struct Cancellation(Weak<()>);

impl Cancellation {
    /// Returns the handle that the caller holds while it waits, and the check for the work.
    pub(crate) fn new() -> (Arc<()>, Self) {
        let caller = Arc::new(());
        let cancellation = Self(Arc::downgrade(&caller));
        (caller, cancellation)
    }

    /// Fails with [`HostError::Cancelled`] if the caller no longer waits.
    pub(crate) fn check(&self) -> Result<(), HostError> {
        if self.0.strong_count() > 0 { Ok(()) } else { Err(HostError::Cancelled) }
    }
}

/// The right to write a file, until it is dropped.
pub(crate) struct WriteLock(Utf8PathBuf);

impl WriteLock {
    /// Blocks this thread until nothing else in this process writes the file. Fails if the caller no longer waits by then.
    pub(crate) fn acquire(file: &Utf8Path, cancellation: &Cancellation) -> Result<Self, HostError> {
        let is_written = |written: &mut BTreeSet<Utf8PathBuf>| written.contains(file);
        let mut written = RELEASED.wait_while(locked_paths(), is_written).unwrap_or_else(PoisonError::into_inner);
        cancellation.check()?;
        written.insert(file.to_owned());
        Ok(Self(file.to_owned()))
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        locked_paths().remove(&self.0);
        RELEASED.notify_all();
    }
}

/// Locks the set. A panic while it is locked cannot leave it inconsistent.
fn locked_paths() -> MutexGuard<'static, BTreeSet<Utf8PathBuf>> {
    LOCKED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use super::*;

    #[test]
    fn second_writer_of_a_file_waits_and_other_files_are_free() {
        let (_caller, cancellation) = Cancellation::new();
        let first = WriteLock::acquire("/a".into(), &cancellation).unwrap();
        drop(WriteLock::acquire("/b".into(), &cancellation).unwrap());
        let (taken, receiver) = mpsc::channel();
        let second = thread::spawn(move || {
            let (_caller, cancellation) = Cancellation::new();
            let lock = WriteLock::acquire("/a".into(), &cancellation).unwrap();
            taken.send(()).unwrap();
            drop(lock);
        });
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err(), "both write the file");
        drop(first);
        receiver.recv().unwrap();
        second.join().unwrap();
        assert!(!locked_paths().contains(Utf8Path::new("/a")));
    }

    #[test]
    fn cancelled_waiter_gets_no_lock() {
        let (_first_caller, first_cancellation) = Cancellation::new();
        let first = WriteLock::acquire("/c".into(), &first_cancellation).unwrap();
        let (caller, cancellation) = Cancellation::new();
        let second = thread::spawn(move || WriteLock::acquire("/c".into(), &cancellation).map(drop));
        drop(caller);
        drop(first);
        assert!(matches!(second.join().unwrap(), Err(HostError::Cancelled)));
        assert!(!locked_paths().contains(Utf8Path::new("/c")));
    }
}

//! Points as a simulation sees them: by a function of its own, on its own thread.

use std::{cell::RefCell, rc::Rc};

use crate::Point;

type Watcher = Rc<dyn Fn(Point)>;

thread_local! {
    static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
}

/// What a process unwinds with when it dies at a point.
pub struct Died;

/// Watches until it is dropped.
#[must_use]
pub struct Watch(());

/// Calls `watcher` at every point that this thread reaches from now on. It may unwind: that is how a simulated process dies there.
pub fn watch(watcher: impl Fn(Point) + 'static) -> Watch {
    WATCHER.with(|present| present.replace(Some(Rc::new(watcher))));
    Watch(())
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHER.with(|present| present.replace(None));
    }
}

pub(crate) fn reach(point: Point) {
    // Out of its cell first: it may unwind, and it may reach a point itself.
    let watcher = WATCHER.with(|present| present.borrow().clone());
    if let Some(watcher) = watcher {
        watcher(point);
    }
}

//! Delivers points to a watcher function of the current thread, for simulations.

use std::{cell::RefCell, rc::Rc};

use crate::Point;

type Watcher = Rc<dyn Fn(Point)>;

thread_local! {
    static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
}

/// The panic payload of a simulated process that dies at a point.
pub struct Died;

/// Keeps the watcher installed until dropped.
#[must_use]
pub struct Watch(());

/// Calls `watcher` at every point that this thread reaches from now on. The watcher may unwind: that is how a simulated process dies.
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
    // Cloned out of the cell first, because the watcher may unwind or reach a point itself.
    let watcher = WATCHER.with(|present| present.borrow().clone());
    if let Some(watcher) = watcher {
        watcher(point);
    }
}

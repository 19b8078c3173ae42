//! A unit from the view of the init's other modules: its status, its file, and its orders.

use std::{cell::RefCell, rc::Rc};

use gpuaas_host::{UnitStatus, sandbox::SandboxEnvironment};
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    journal::Journal,
    supervisor::{JobEnd, Order, Start, Supervisor, inactive},
    unit_file::UnitFile,
};

/// A unit that the init has loaded. It is supervised until the last handle is dropped, and stopped if it still runs then.
#[derive(Clone)]
pub(crate) struct Unit {
    pub(crate) status: watch::Receiver<UnitStatus>,
    pub(crate) file: Rc<RefCell<UnitFile>>,
    orders: mpsc::UnboundedSender<Order>,
}

impl Unit {
    /// Begins to supervise a unit, which is inactive.
    pub(crate) fn new(name: &str, file: UnitFile, environment: &SandboxEnvironment, journal: Journal) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let (status, watching) = watch::channel(inactive(name));
        let file = Rc::new(RefCell::new(file));
        let supervisor = Supervisor::new(name, environment.clone(), file.clone(), journal, status, received);
        tokio::task::spawn_local(supervisor.run());
        Self { status: watching, file, orders }
    }

    /// Orders a start. The first receiver gets true if there was anything to start, the second gets the job's result.
    pub(crate) fn start(&self) -> (oneshot::Receiver<bool>, oneshot::Receiver<JobEnd>) {
        let ((taken, is_taken), (end, ended)) = (oneshot::channel(), oneshot::channel());
        // The supervisor lives as long as this handle, so the order is received; a dropped receiver would look like a dropped job.
        let _ = self.orders.send(Order::Start(Start { taken, end }));
        (is_taken, ended)
    }

    /// Orders a stop. The receiver completes when the unit has stopped.
    pub(crate) fn stop(&self) -> oneshot::Receiver<()> {
        let (end, ended) = oneshot::channel();
        let _ = self.orders.send(Order::Stop(end));
        ended
    }

    /// Resets failures and the start counter.
    pub(crate) fn reset(&self) -> oneshot::Receiver<()> {
        let (end, ended) = oneshot::channel();
        let _ = self.orders.send(Order::Reset(end));
        ended
    }

    /// Returns true if the unit is inactive or failed.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.status.borrow().active.as_str(), "inactive" | "failed")
    }
}

//! A unit as the init's other parts see it: its status, its journal, and the orders it takes.

use std::{cell::RefCell, rc::Rc};

use gpuaas_host::{UnitStatus, sandbox::SandboxEnvironment};
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    journal::{Journal, now},
    supervisor::Supervisor,
    unit_file::UnitFile,
};

/// How a start job ended.
pub(crate) type JobEnd = Result<(), String>;

/// A unit that the init knows. It is supervised until its last handle is gone and it is inactive.
#[derive(Clone)]
pub(crate) struct Unit {
    pub(crate) status: watch::Receiver<UnitStatus>,
    pub(crate) file: Rc<RefCell<UnitFile>>,
    orders: mpsc::UnboundedSender<Order>,
}

/// An order to a unit.
pub(crate) enum Order {
    /// Start.
    Start(Start),
    /// Stop; answered when it is.
    Stop(oneshot::Sender<()>),
    /// Forget failures and starts; answered when done.
    Reset(oneshot::Sender<()>),
}

/// A start order.
pub(crate) struct Start {
    /// Told at once whether there was anything to start.
    pub(crate) taken: oneshot::Sender<bool>,
    /// Told how the start job ended.
    pub(crate) end: oneshot::Sender<JobEnd>,
}

impl Unit {
    /// Begins to look after a unit, which is inactive.
    pub(crate) fn new(name: &str, file: UnitFile, environment: &SandboxEnvironment, journal: Journal) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let (status, watching) = watch::channel(inactive(name));
        let file = Rc::new(RefCell::new(file));
        let supervisor = Supervisor::new(name, environment.clone(), file.clone(), journal, status, received);
        tokio::task::spawn_local(supervisor.run());
        Self { status: watching, file, orders }
    }

    /// Orders a start: whether there was anything to start, and how the job ended.
    pub(crate) fn start(&self) -> (oneshot::Receiver<bool>, oneshot::Receiver<JobEnd>) {
        let ((taken, is_taken), (end, ended)) = (oneshot::channel(), oneshot::channel());
        // The supervisor lives as long as this handle; a dropped sender would read as a hung-up job.
        let _ = self.orders.send(Order::Start(Start { taken, end }));
        (is_taken, ended)
    }

    /// Orders a stop. The receiver tells when the unit is stopped.
    pub(crate) fn stop(&self) -> oneshot::Receiver<()> {
        let (end, ended) = oneshot::channel();
        let _ = self.orders.send(Order::Stop(end));
        ended
    }

    /// Forgets failures and starts.
    pub(crate) fn reset(&self) -> oneshot::Receiver<()> {
        let (end, ended) = oneshot::channel();
        let _ = self.orders.send(Order::Reset(end));
        ended
    }

    /// Whether none of its processes is looked after now.
    pub(crate) fn is_at_rest(&self) -> bool {
        matches!(self.status.borrow().active.as_str(), "inactive" | "failed")
    }
}

/// The status of a unit that never ran, or was stopped.
pub(crate) fn inactive(name: &str) -> UnitStatus {
    UnitStatus {
        unit: name.to_owned(),
        active: "inactive".to_owned(),
        sub: "dead".to_owned(),
        result: "success".to_owned(),
        n_restarts: 0,
        exec_main_status: 0,
        main_pid: 0,
        since: now(),
    }
}

//! The loop that starts a driver when a row needs one.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use gpuaas_model::OperationId;
use gpuaas_store::Change;
use tokio::sync::{Notify, broadcast::error::RecvError};

use crate::{
    driver::Driver,
    engine::{Engine, STORE_RETRY},
    error::EngineError,
};

/// Interval of the sweep that finds operations whose hint was lost. Everything else is pushed.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

impl Engine {
    /// Drives every open operation until [`Engine::stop`]: those open at the start, those announced by changes, and, every [`SWEEP_EVERY`],
    /// those whose announcement was lost. Continues every unfinished allocation at the start. Asks the channel to check changed nodes
    /// again, no matter which replica changed them.
    pub async fn run(self: &Arc<Self>) {
        let mut changes = self.store().changes();
        // Covers the changes made before the subscription to them existed.
        self.nodes().recheck_all();
        if let Err(error) = self.update_former_statuses().await {
            tracing::warn!(%error, "the status of workloads of an earlier version was not updated; the next start tries again");
        }
        let mut has_resumed = self.try_resume_open().await;
        let mut sweep = self.next_sweep(has_resumed);
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = &mut sweep => {
                    if has_resumed {
                        self.sweep().await;
                    } else {
                        has_resumed = self.try_resume_open().await;
                    }
                    sweep = self.next_sweep(has_resumed);
                }
                change = changes.recv() => match change {
                    Ok(Change::Operation(id)) => self.activate(id),
                    Ok(Change::Node(id)) => {
                        self.nodes().recheck(id);
                        // The node may have connected to another replica, so all waiting attempts try again.
                        self.wake_waiting();
                    }
                    Ok(Change::Event { .. } | Change::Token(_) | Change::Keys | Change::Sealing) => {}
                    // Any row may have changed, and with it what an attempt waits for.
                    Ok(Change::Missed) | Err(RecvError::Lagged(_)) => {
                        tracing::warn!("hints were missed; reading rows");
                        self.wake_waiting();
                        self.nodes().recheck_all();
                        self.sweep().await;
                    }
                    Err(RecvError::Closed) => return,
                },
            }
        }
    }

    /// Wakes the operation's driver, or starts one here.
    fn activate(self: &Arc<Self>, id: OperationId) {
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wake) = drivers.get(&id) {
            wake.notify_one();
            return;
        }
        let wake = Arc::new(Notify::new());
        drivers.insert(id, wake.clone());
        drop(drivers);
        let engine = self.clone();
        let future = async move {
            // Removes the entry even if the driver panics: the sweep then starts another.
            let _entry = DriverEntry { engine: engine.clone(), id };
            Driver::new(engine.clone(), id, wake).run().await;
        };
        self.ports().runtime.spawn("operation driver", Box::pin(future));
    }

    /// Continues open work at the start. Returns `false` if the database could not be read; the caller then tries again.
    async fn try_resume_open(self: &Arc<Self>) -> bool {
        let begun = self.resume_open().await;
        if let Err(error) = &begun {
            tracing::warn!(%error, "open operations could not be read; trying again");
        }
        begun.is_ok()
    }

    /// Continues every open operation, every unfinished allocation and every known drift on this replica.
    pub(crate) async fn resume_open(self: &Arc<Self>) -> Result<(), EngineError> {
        self.activate_open().await?;
        self.provision_open().await?;
        // Agents hint again when they connect, so a workload whose row cannot be read delays nothing.
        if let Err(error) = self.resume_drift().await {
            tracing::warn!(%error, "the drift of workloads could not be read; the next hint of each node is awaited");
        }
        Ok(())
    }

    async fn activate_open(self: &Arc<Self>) -> Result<(), EngineError> {
        let open = self.store().read().await?.open_operations().await?;
        for operation in open {
            self.activate(operation.id);
        }
        Ok(())
    }

    async fn sweep(self: &Arc<Self>) {
        if let Err(error) = self.activate_open().await {
            tracing::warn!(%error, "the safety sweep could not read open operations");
        }
        if let Err(error) = self.close_abandoned_tasks().await {
            tracing::warn!(%error, "abandoned tasks could not be closed");
        }
    }

    fn next_sweep(&self, has_resumed: bool) -> futures::future::BoxFuture<'static, ()> {
        let wait = if has_resumed { SWEEP_EVERY } else { STORE_RETRY };
        self.ports().runtime.sleep_until(self.ports().clock.now().plus(wait))
    }
}

struct DriverEntry {
    engine: Arc<Engine>,
    id: OperationId,
}

impl Drop for DriverEntry {
    fn drop(&mut self) {
        self.engine.drivers.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

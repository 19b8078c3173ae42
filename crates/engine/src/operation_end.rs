//! Waits for the end of an operation that any replica may drive.

use gpuaas_model::{OperationId, StreamName, Timestamp};
use gpuaas_store::{Change, StoreError};
use tokio::sync::broadcast::error::RecvError;

use crate::engine::Engine;

/// Waits until the operation has ended. Returns false at `deadline`, and if the engine stops.
pub(crate) async fn operation_ended(engine: &Engine, id: OperationId, deadline: Timestamp) -> Result<bool, StoreError> {
    // Subscribed before the first read, so that no end is missed.
    let mut changes = engine.store().changes();
    let mut over = engine.ports().runtime.sleep_until(deadline);
    loop {
        let operation = engine.store().read().await?.operation(id).await?;
        if operation.state.is_final() {
            return Ok(true);
        }
        let stream = StreamName::Project(operation.project);
        loop {
            let change = tokio::select! {
                biased;
                () = engine.stopping().cancelled() => return Ok(false),
                // A hint may have been lost.
                () = &mut over => return Ok(engine.store().read().await?.operation(id).await?.state.is_final()),
                change = changes.recv() => change,
            };
            match change {
                // The end of an operation is an event of its project.
                Ok(Change::Event { stream: of, .. }) if of == stream => break,
                Ok(Change::Missed) | Err(RecvError::Lagged(_)) => break,
                Ok(_) => {}
                Err(RecvError::Closed) => return Ok(false),
            }
        }
    }
}

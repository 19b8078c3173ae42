//! Ends open streams to nodes (watches, journals, tunnels) as soon as their project no longer holds the node.
//!
//! Guarantees: access is checked right after its registration, on every change of its node, allocation or members, and every
//! [`SWEEP_EVERY`]. Between such a change and the result of the check nothing passes; access that no longer holds ends. It also ends if the
//! rows cannot be read for [`UNDECIDED_MAX`].

pub(crate) mod tunnel;

use std::{sync::Arc, time::Duration};

use gpuaas_model::NodeId;
use gpuaas_store::Change;
use tokio::sync::broadcast::error::RecvError;

use crate::access_registry::{AccessGuard, AccessState, Entry};
use crate::{
    engine::{Engine, STORE_RETRY},
    ownership::{AccessError, NodeAccess, revalidate},
};

/// How long open access may stay undecided, because rows cannot be read, before it ends.
const UNDECIDED_MAX: Duration = Duration::from_secs(10);
/// Interval of the checks that cover lost hints.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

impl Engine {
    /// Registers access that is about to open, then checks it again: access lost in between is refused here.
    pub async fn guard_access(&self, access: &NodeAccess) -> Result<AccessGuard, AccessError> {
        let held = self.open_access().add(access.clone());
        revalidate(&mut self.store().read().await?, access).await?;
        Ok(held)
    }

    /// Checks all open access to nodes that change, until the engine stops.
    pub async fn watch_access(self: &Arc<Self>) {
        let mut changes = self.store().changes();
        let next_sweep = || self.ports().runtime.sleep_until(self.ports().clock.now().plus(SWEEP_EVERY));
        let mut sweep = next_sweep();
        loop {
            let changed = tokio::select! {
                biased;
                () = self.stopping().cancelled() => return,
                change = changes.recv() => match change {
                    Ok(Change::Node(node)) => vec![node],
                    Ok(
                        Change::Event { .. }
                        | Change::Operation(_)
                        | Change::Token(_)
                        | Change::Keys
                        | Change::Sealing,
                    ) => continue,
                    Ok(Change::Missed) | Err(RecvError::Lagged(_)) => self.open_access().nodes(),
                    Err(RecvError::Closed) => return,
                },
                () = &mut sweep => {
                    sweep = next_sweep();
                    self.open_access().nodes()
                }
            };
            for node in changed {
                let open = self.open_access().suspend(node);
                if !open.is_empty() {
                    let engine = self.clone();
                    let deciding = Box::pin(async move { engine.decide_again(node, open).await });
                    self.ports().runtime.spawn("access decision", deciding);
                }
            }
        }
    }

    async fn decide_again(&self, node: NodeId, open: Vec<(u64, Entry)>) {
        let given_up_at = self.ports().clock.now().plus(UNDECIDED_MAX);
        for (number, entry) in open {
            let given_up = self.ports().runtime.sleep_until(given_up_at);
            let state = tokio::select! {
                biased;
                state = self.decide_access(&entry.access) => state,
                () = given_up => AccessState::Lost,
            };
            if state == AccessState::Lost {
                tracing::info!(node = %entry.access.name(), "access to a node ends: its project no longer holds it");
            }
            self.open_access().record_decision(node, number, entry.change, state);
        }
    }

    /// Decides access by the rows; retries until they can be read.
    async fn decide_access(&self, access: &NodeAccess) -> AccessState {
        loop {
            let decided = async { revalidate(&mut self.store().read().await?, access).await };
            match decided.await {
                Ok(_) => return AccessState::Granted,
                Err(AccessError::NotHeld(_)) => return AccessState::Lost,
                Err(AccessError::Store(error)) => tracing::warn!(%error, "open access could not be decided yet"),
            }
            self.ports().runtime.sleep_until(self.ports().clock.now().plus(STORE_RETRY)).await;
        }
    }
}

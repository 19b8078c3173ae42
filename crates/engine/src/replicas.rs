//! The replicas of one control plane: joining, staying alive, and taking over from a dead replica.
//!
//! Each replica renews a lease. A replica that sees another's lease expire removes it: its operations are free at once, and its nodes have
//! the usual time to connect to another replica. A replica that was removed while it was only paused notices at its next renewal, ends all
//! its channels and joins again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use gpuaas_model::{Connectivity, EventKind, NodeState, ReplicaId};
use gpuaas_store::{Eviction, NodeRecord, ReplicaRecord, StoreError};
use serde_json::json;

use crate::{engine::Engine, error::EngineError, record::platform_event};

/// A replica that has not renewed its lease for this long is dead.
const LEASE_TTL: Duration = Duration::from_secs(6);
/// Interval of lease renewals. Two in a row may fail.
const LEASE_RENEWAL: Duration = Duration::from_secs(2);
/// Lease duration without contenders: a store in a file allows only one process.
const SOLE_LEASE_TTL: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

impl Engine {
    /// Registers this process with the other replicas, and starts the time limit of nodes that no live replica holds.
    pub async fn join(&self) -> Result<(), StoreError> {
        let (sealing_keys, is_key_file_old) = self.reported_sealing_keys();
        let record = ReplicaRecord {
            id: self.replica(),
            address: self.endpoints().replica.clone(),
            channel: self.endpoints().channel.clone(),
            api_url: self.endpoints().api_url.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: self.ports().clock.now(),
            sealing_keys,
            is_key_file_old,
        };
        let ttl = if self.store().is_shared() { LEASE_TTL } else { SOLE_LEASE_TTL };
        self.store().join_replica(&record, ttl).await?;
        self.announce_replica(self.replica(), EventKind::ReplicaJoined).await?;
        self.expect_reconnects().await
    }

    /// Keeps this replica alive until the engine stops. Returns at once if the store allows only one replica.
    pub async fn keep_alive(self: &Arc<Self>) {
        if !self.store().is_shared() {
            return;
        }
        let mut known = BTreeSet::new();
        let mut wait = Duration::ZERO;
        loop {
            tokio::select! {
                biased;
                () = self.stopping().cancelled() => return,
                () = self.ports().runtime.sleep_until(self.ports().clock.now().plus(wait)) => {}
            }
            wait = match self.check_replicas(&mut known).await {
                Ok(next) => next.min(LEASE_RENEWAL),
                Err(error) => {
                    tracing::warn!(%error, "this replica could not renew its lease");
                    LEASE_RENEWAL
                }
            };
        }
    }

    /// Removes this replica: others take over its work at once.
    pub async fn leave(&self) -> Result<(), StoreError> {
        if self.store().evict_replica(self.replica(), Eviction::Unconditional).await? {
            self.announce_replica(self.replica(), EventKind::ReplicaLeft).await?;
        }
        Ok(())
    }

    /// Renews the lease, removes dead replicas, and takes over from replicas that left or died. Returns the time until the next lease would
    /// expire.
    async fn check_replicas(self: &Arc<Self>, known: &mut BTreeSet<ReplicaId>) -> Result<Duration, EngineError> {
        if !self.store().renew_replica(self.replica(), LEASE_TTL).await? {
            tracing::warn!("this replica was evicted because its lease expired; it closes its channels and rejoins");
            self.nodes().close_channels();
            self.join().await?;
        }
        let lives = self.store().read_once().await?.replicas().await?;
        let (mut living, mut next) = (BTreeSet::new(), LEASE_TTL);
        for life in lives.iter().filter(|life| life.replica.id != self.replica()) {
            if !life.time_left.is_zero() {
                living.insert(life.replica.id);
                next = next.min(life.time_left + Duration::from_millis(1));
            } else if self.store().evict_replica(life.replica.id, Eviction::IfExpired).await? {
                tracing::warn!(replica = %life.replica.id, "a replica's lease expired; taking over its work");
                known.insert(life.replica.id);
                self.announce_replica(life.replica.id, EventKind::ReplicaLost).await?;
            }
        }
        if !known.is_subset(&living) {
            self.take_over().await?;
        }
        if *known != living {
            self.nodes().broadcast_endpoints();
        }
        *known = living;
        Ok(next)
    }

    /// Continues the work of a replica that left or died.
    async fn take_over(self: &Arc<Self>) -> Result<(), EngineError> {
        self.resume_open().await?;
        Ok(self.expect_reconnects().await?)
    }

    /// Gives nodes that were connected to such a replica some time to return before they count as unreachable.
    async fn expect_reconnects(&self) -> Result<(), StoreError> {
        let mut reader = self.store().read().await?;
        let was_reachable = |node: &NodeRecord| {
            matches!(node.connectivity, Connectivity::Connected | Connectivity::Stale)
                && node.state != NodeState::Retired
        };
        for node in reader.every_node(was_reachable).await? {
            if reader.session(node.id).await?.is_none() {
                self.nodes().expect_reconnect(node.id);
            }
        }
        Ok(())
    }

    async fn announce_replica(&self, replica: ReplicaId, kind: EventKind) -> Result<(), StoreError> {
        let mut tx = self.store().begin().await?;
        platform_event(&mut tx, kind, "replica", replica.to_string(), None, json!({})).await?;
        tx.commit().await
    }
}

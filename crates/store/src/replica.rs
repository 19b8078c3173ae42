//! Replicas that share the store, and the replica that holds each node channel.
//!
//! A replica is alive while it renews its lease. Any replica that finds another one expired evicts it: its row, its
//! sessions and its leases end in one transaction.

use std::time::Duration;

use gpuaas_model::{NodeId, OperationId, ReplicaId, Timestamp};
use uuid::Uuid;

use crate::{
    error::StoreError,
    hint::Change,
    query::{Row, Value, document, get_int, get_text, text},
    record::{ReplicaRecord, SessionRecord},
    retry::with_retries,
    store::{Reader, Store, Tx},
};

/// A replica with the time left on its lease; zero if it is dead.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaLiveness {
    /// The replica.
    pub replica: ReplicaRecord,
    /// The time until its lease expires, by the database's clock.
    pub time_left: Duration,
}

/// The condition under which a replica is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Evict unconditionally: the replica is shutting down, or its successor knows that it is dead.
    Unconditional,
    /// Evict only if its lease has expired; a replica that renewed it stays.
    IfExpired,
}

impl Store {
    /// Registers a replica that is alive for `ttl`.
    pub async fn join_replica(&self, replica: &ReplicaRecord, ttl: Duration) -> Result<(), StoreError> {
        with_retries(async || {
            let mut tx = self.begin().await?;
            let sql =
                "insert into replicas (id, doc) values ($1, $2) on conflict (id) do update set doc = excluded.doc";
            tx.execute(sql, vec![text(replica.id), document(replica)?]).await?;
            tx.acquire_lease(&lease(replica.id), replica.id, ttl).await?;
            tx.commit().await
        })
        .await
    }

    /// Renews a replica's lease. Returns false if it was evicted, which also ended its sessions and leases.
    pub async fn renew_replica(&self, id: ReplicaId, ttl: Duration) -> Result<bool, StoreError> {
        with_retries(async || {
            let mut tx = self.begin().await?;
            let is_known = tx.acquire_lease_of_replica(&lease(id), id, ttl).await?.is_some();
            if is_known {
                tx.commit().await?;
            }
            Ok(is_known)
        })
        .await
    }

    /// Evicts a replica with all its sessions and leases, and hints its operations to the other replicas. Returns false
    /// if it was already evicted, or if it is alive and `eviction` requires an expired lease.
    pub async fn evict_replica(&self, id: ReplicaId, eviction: Eviction) -> Result<bool, StoreError> {
        with_retries(async || {
            let mut tx = self.begin().await?;
            if eviction == Eviction::IfExpired && !tx.time_left(id).await?.is_zero() {
                return Ok(false);
            }
            let is_evicted = tx.execute("delete from replicas where id = $1", vec![text(id)]).await? > 0;
            tx.execute("delete from sessions where replica_id = $1", vec![text(id)]).await?;
            let freed = tx.operations_driven_by(id).await?;
            tx.announced.hints.extend(freed.into_iter().map(Change::Operation));
            tx.execute("update leases set expires_at = 0 where holder = $1 and expires_at > 0", vec![text(id)]).await?;
            tx.commit().await?;
            Ok(is_evicted)
        })
        .await
    }
}

impl Tx {
    /// Updates a replica's record. Returns false if it was evicted.
    pub async fn update_replica(&mut self, replica: &ReplicaRecord) -> Result<bool, StoreError> {
        let values = vec![text(replica.id), document(replica)?];
        Ok(self.execute("update replicas set doc = $2 where id = $1", values).await? > 0)
    }

    /// Records that a connection carries a node channel, replacing an older connection. Returns false if a newer one is
    /// recorded.
    pub async fn put_session(&mut self, session: &SessionRecord) -> Result<bool, StoreError> {
        let sql = "insert into sessions (node_id, connection, replica_id, since, doc) values ($1, $2, $3, $4, $5) \
                   on conflict (node_id) do update set connection = excluded.connection, \
                   replica_id = excluded.replica_id, since = excluded.since, doc = excluded.doc \
                   where sessions.since <= excluded.since";
        let values = vec![
            text(session.node),
            text(session.connection),
            text(session.replica),
            Value::Int(session.since.as_millis()),
            document(session)?,
        ];
        let is_current = self.execute(sql, values).await? > 0;
        if is_current {
            self.announced.hints.push(Change::Node(session.node));
        }
        Ok(is_current)
    }

    /// Records that a connection has ended. Returns false if another connection carries the node channel.
    pub async fn end_session(&mut self, node: NodeId, connection: Uuid) -> Result<bool, StoreError> {
        let sql = "delete from sessions where node_id = $1 and connection = $2";
        Ok(self.execute(sql, vec![text(node), text(connection)]).await? > 0)
    }
}

impl Reader {
    /// Returns every replica that was not evicted, oldest first. Runs one statement.
    pub async fn replicas(&mut self) -> Result<Vec<ReplicaLiveness>, StoreError> {
        let rows = self.rows(self.dialect.replicas(), Vec::new()).await?;
        let simulated_now = self.simulated.shared.then(|| self.clock.now());
        let liveness = |row: &Row| -> Result<ReplicaLiveness, StoreError> {
            let expires_at = Timestamp::from_millis(get_int(row, "expires_at")?);
            let now = match simulated_now {
                Some(now) => now,
                None => Timestamp::from_millis(get_int(row, "now_ms")?),
            };
            Ok(ReplicaLiveness { replica: row.record_of("replicas", "doc")?, time_left: expires_at.since(now) })
        };
        rows.iter().map(liveness).collect()
    }

    /// Returns the connection that carries a node channel.
    pub async fn session(&mut self, node: NodeId) -> Result<Option<SessionRecord>, StoreError> {
        self.find("select node_id, doc from sessions where node_id = $1", vec![text(node)]).await
    }

    /// Returns the connections that a replica holds.
    pub async fn sessions_of(&mut self, replica: ReplicaId) -> Result<Vec<SessionRecord>, StoreError> {
        self.list("select node_id, doc from sessions where replica_id = $1 order by node_id", vec![text(replica)]).await
    }

    /// Returns the operations whose leases a replica holds.
    pub async fn operations_driven_by(&mut self, replica: ReplicaId) -> Result<Vec<OperationId>, StoreError> {
        let sql =
            "select name from leases where holder = $1 and expires_at > 0 and name like 'operation/%' order by name";
        let rows = self.rows(sql, vec![text(replica)]).await?;
        let names: Vec<String> = rows.iter().map(|row| get_text(row, "name")).collect::<Result<_, _>>()?;
        Ok(names.iter().filter_map(|name| name.strip_prefix("operation/")?.parse().ok()).collect())
    }

    async fn time_left(&mut self, id: ReplicaId) -> Result<Duration, StoreError> {
        let Some(lease) = self.lease(&lease(id)).await? else { return Ok(Duration::ZERO) };
        Ok(lease.expires_at.since(self.database_now().await?))
    }
}

fn lease(id: ReplicaId) -> String {
    format!("replica/{id}")
}

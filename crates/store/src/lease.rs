//! Leases with fences. They use the database's clock, so the clocks of replicas need not agree.

use std::time::Duration;

use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::{ReplicaId, Timestamp};

use crate::{
    error::StoreError,
    query::{Value, get_count, get_int, get_parsed, int, text},
    record::LeaseRecord,
    retry::with_retries,
    store::{Reader, Store, Tx},
};

impl Store {
    /// Takes or renews a lease in its own transaction; `None` while another holder has it.
    pub async fn acquire_lease(
        &self,
        name: &str,
        holder: ReplicaId,
        ttl: Duration,
    ) -> Result<Option<LeaseRecord>, StoreError> {
        // Checks on a reader first, so that an attempt on a held lease never takes the write lock.
        if self.read().await?.is_held_by_another(name, holder).await? {
            return Ok(None);
        }
        with_retries(async || {
            let mut tx = self.begin().await?;
            let lease = tx.acquire_lease(name, holder, ttl).await?;
            tx.commit().await?;
            Ok(lease)
        })
        .await
    }

    /// Releases a lease before it expires and keeps its fence.
    pub async fn release_lease(&self, name: &str, holder: ReplicaId) -> Result<(), StoreError> {
        self.end_leases("update leases set expires_at = 0 where name = $1 and holder = $2", &[text(name), text(holder)])
            .await
    }

    /// Deletes a lease: the next holder starts with the first fence. Only for leases that grant turns and under which
    /// nothing is signed.
    pub async fn delete_lease(&self, name: &str, holder: ReplicaId) -> Result<(), StoreError> {
        self.end_leases("delete from leases where name = $1 and holder = $2", &[text(name), text(holder)]).await
    }

    async fn end_leases(&self, sql: &'static str, values: &[Value]) -> Result<(), StoreError> {
        with_retries(async || {
            let mut tx = self.begin().await?;
            tx.execute(sql, values.to_vec()).await?;
            tx.commit().await
        })
        .await
    }
}

impl Tx {
    /// Takes or renews a lease; `None` while another holder has it. A new holder gets a higher fence, a renewal keeps
    /// it.
    pub async fn acquire_lease(
        &mut self,
        name: &str,
        holder: ReplicaId,
        ttl: Duration,
    ) -> Result<Option<LeaseRecord>, StoreError> {
        let sql = self.dialect.take_lease();
        self.take_lease(sql, name, holder, ttl).await
    }

    /// Like [`Tx::acquire_lease`]; `None` also if the holder is no replica or was evicted.
    pub(crate) async fn acquire_lease_of_replica(
        &mut self,
        name: &str,
        holder: ReplicaId,
        ttl: Duration,
    ) -> Result<Option<LeaseRecord>, StoreError> {
        let sql = self.dialect.take_lease_of_replica();
        self.take_lease(sql, name, holder, ttl).await
    }

    async fn take_lease(
        &mut self,
        sql: &'static str,
        name: &str,
        holder: ReplicaId,
        ttl: Duration,
    ) -> Result<Option<LeaseRecord>, StoreError> {
        let simulated_now = if self.simulated.shared { self.clock.now().as_millis() } else { 0 };
        let ttl_ms = int(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        let values = vec![text(name), text(holder), ttl_ms, Value::Int(simulated_now)];
        let Some(row) = self.row(sql, values).await? else { return Ok(None) };
        let (fence, expires_at) = (get_count(&row, "fence")?, Timestamp::from_millis(get_int(&row, "expires_at")?));
        Ok(Some(LeaseRecord { name: name.to_owned(), holder, fence, expires_at }))
    }

    /// Returns the fence to sign with under a lease that live replicas share: the current fence while any holder's
    /// lease is valid, and a higher one with the caller as holder after that.
    pub async fn shared_fence(&mut self, name: &str, holder: ReplicaId, ttl: Duration) -> Result<u64, StoreError> {
        match self.acquire_lease(name, holder, ttl).await? {
            Some(_) if bugs::on(Bug::FenceNotRaised) => Ok(1),
            Some(lease) => Ok(lease.fence),
            None => Ok(self.lease(name).await?.map_or(0, |lease| lease.fence)),
        }
    }
}

impl Reader {
    /// Returns whether the holder still has the lease with this fence. Call it inside the transaction that depends on
    /// it.
    pub async fn holds_lease(&mut self, name: &str, holder: ReplicaId, fence: u64) -> Result<bool, StoreError> {
        // Expiry alone does not end a lease: only another holder does, and that raises the fence.
        Ok(self.lease(name).await?.is_some_and(|lease| lease.holder == holder && lease.fence == fence))
    }

    async fn is_held_by_another(&mut self, name: &str, holder: ReplicaId) -> Result<bool, StoreError> {
        match self.lease(name).await? {
            Some(lease) if lease.holder != holder => Ok(lease.expires_at > self.database_now().await?),
            Some(_) | None => Ok(false),
        }
    }

    /// Returns the lease as it was last taken.
    pub async fn lease(&mut self, name: &str) -> Result<Option<LeaseRecord>, StoreError> {
        let Some(row) = self.row("select * from leases where name = $1", vec![text(name)]).await? else {
            return Ok(None);
        };
        Ok(Some(LeaseRecord {
            name: name.to_owned(),
            holder: get_parsed(&row, "holder")?,
            fence: get_count(&row, "fence")?,
            expires_at: Timestamp::from_millis(get_int(&row, "expires_at")?),
        }))
    }

    /// Returns the database's clock, which all replicas share.
    pub async fn database_now(&mut self) -> Result<Timestamp, StoreError> {
        if self.simulated.shared {
            return Ok(self.clock.now());
        }
        let sql = self.dialect.now_ms();
        let row =
            self.row(sql, Vec::new()).await?.ok_or_else(|| StoreError::Database("no clock reading".to_owned()))?;
        Ok(Timestamp::from_millis(get_int(&row, "now_ms")?))
    }
}

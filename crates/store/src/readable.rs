//! Whether this version can read every row.

use serde::de::DeserializeOwned;

use crate::{
    audit,
    dump::TABLES,
    error::StoreError,
    event,
    query::{Row, get_count, get_int, get_parsed, get_text},
    record::{
        AccessGrantRecord, AllocationRecord, ArtifactRecord, AuthorityRecord, EnrollmentRecord, MemberRecord,
        NodeRecord, OperationRecord, ProjectRecord, ServiceAccountRecord, SigningKeyRecord, StepRecord, TaskRecord,
        TokenRecord, WorkloadRecord,
    },
    secret,
    store::Store,
};

impl Store {
    /// Reads every row that a dump holds as this version's records. Fails with [`StoreError::Corrupt`], which names the table and the row, at the
    /// first that it cannot read. Codes and sealed values are not checked.
    pub async fn read_every_row(&self) -> Result<(), StoreError> {
        let mut reader = self.read().await?;
        for table in TABLES {
            let (mut number, mut is_read) = (0_u64, Ok(()));
            let found = reader.connection()?.each_row(format!("select * from {table}"), Vec::new(), |row| {
                number += 1;
                is_read = read_row(table, &row);
                is_read.is_ok()
            });
            found.await?;
            is_read.map_err(|error| StoreError::Corrupt(format!("row {number} of {table}: {error}")))?;
        }
        Ok(())
    }
}

fn read_row(table: &str, row: &Row) -> Result<(), StoreError> {
    match table {
        "projects" => document::<ProjectRecord>(row),
        "tokens" => document::<TokenRecord>(row),
        "nodes" => document::<NodeRecord>(row),
        "enrollments" => document::<EnrollmentRecord>(row),
        "allocations" => document::<AllocationRecord>(row),
        "artifacts" => document::<ArtifactRecord>(row),
        "workloads" => document::<WorkloadRecord>(row),
        "members" => document::<MemberRecord>(row),
        "operations" => document::<OperationRecord>(row),
        "steps" => document::<StepRecord>(row),
        "tasks" => document::<TaskRecord>(row),
        "access_grants" => document::<AccessGrantRecord>(row),
        "service_accounts" => document::<ServiceAccountRecord>(row),
        "signing_keys" => document::<SigningKeyRecord>(row),
        "authorities" => document::<AuthorityRecord>(row),
        "events" => event::event(row).map(drop),
        "audit" => audit::audit(row).map(drop),
        "secrets" => secret::secret(row).map(drop),
        "leases" => {
            get_parsed::<gpuaas_model::ReplicaId>(row, "holder")?;
            get_count(row, "fence").map(|_| ())
        }
        "node_keys" => {
            get_parsed::<gpuaas_model::NodeId>(row, "node_id")?;
            get_int(row, "created_at")?;
            get_count(row, "epoch").map(|_| ())
        }
        "streams" => get_count(row, "last_sequence").map(|_| ()),
        "settings" => row.blob("value").map(|_| ()),
        unknown => Err(StoreError::Corrupt(format!("no record is read from {unknown}"))),
    }
}

fn document<T: DeserializeOwned>(row: &Row) -> Result<(), StoreError> {
    Ok(serde_json::from_str::<T>(&get_text(row, "doc")?).map(drop)?)
}

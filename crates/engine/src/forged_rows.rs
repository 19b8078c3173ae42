//! Reports rows that something other than the platform wrote to the database.

use std::collections::BTreeSet;

use gpuaas_model::EventKind;
use gpuaas_store::{ForgedRow, StoreError};
use gpuaas_wire::bounds::one_line;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use crate::{engine::Engine, record::platform_event};

/// Maximum number of rows reported by events. Further ones are only logged and counted, so that an attacker who writes rows cannot make the
/// platform write more.
const ROWS_REPORTED_MAX: usize = 256;
/// Maximum length of a reported id, in bytes.
const ID_BYTES_MAX: usize = 128;

impl Engine {
    /// Reports each row that was refused because nothing proves that the platform wrote it, once per row, until the engine stops.
    pub async fn report_forged_rows(&self) {
        let (mut refused, mut reported) = (self.store().forged_rows(), BTreeSet::new());
        loop {
            let row = tokio::select! {
                biased;
                () = self.stopping().cancelled() => return,
                row = refused.recv() => row,
            };
            let row = match row {
                Ok(row) => row,
                Err(RecvError::Lagged(missed)) => {
                    tracing::error!(missed, "forged rows were refused, more than could be reported");
                    continue;
                }
                Err(RecvError::Closed) => return,
            };
            let row = ForgedRow { table: row.table, id: one_line(row.id, ID_BYTES_MAX) };
            if reported.contains(&(row.table, row.id.clone())) {
                continue;
            }
            if !self.holds_sealing_keys().await.unwrap_or(true) {
                tracing::error!(
                    table = row.table,
                    id = row.id,
                    "a row cannot be verified: this replica lacks its sealing key"
                );
                continue;
            }
            tracing::error!(
                table = row.table,
                id = row.id,
                "a row was refused: it has no valid proof that the platform wrote it"
            );
            if reported.len() < ROWS_REPORTED_MAX {
                if let Err(error) = self.report_forged_row(&row).await {
                    tracing::error!(%error, "the event about a forged row could not be written");
                    continue;
                }
                reported.insert((row.table, row.id));
            }
        }
    }

    async fn report_forged_row(&self, row: &ForgedRow) -> Result<(), StoreError> {
        let mut tx = self.store().begin().await?;
        let data = json!({ "table": row.table });
        platform_event(&mut tx, EventKind::RowForged, "row", row.id.clone(), None, data).await?;
        tx.commit().await
    }
}

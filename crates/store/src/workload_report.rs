//! The last report of each workload's controller.

use gpuaas_model::WorkloadId;

use crate::{
    error::StoreError,
    query::{document, text},
    record::WorkloadReportRecord,
    store::{Reader, Tx},
};

impl Tx {
    /// Stores the last report of a workload's controller, in place of the one before.
    pub async fn put_workload_report(&mut self, report: &WorkloadReportRecord) -> Result<(), StoreError> {
        let values = vec![text(report.workload), text(report.account), document(report)?];
        let sql = "insert into workload_reports (workload_id, service_account_id, doc) values ($1, $2, $3) \
                   on conflict (workload_id) do update set service_account_id = excluded.service_account_id, \
                   doc = excluded.doc";
        self.execute(sql, values).await?;
        Ok(())
    }

    /// Forgets what a workload's controller reported; without a report, nothing changes.
    pub async fn delete_workload_report(&mut self, workload: WorkloadId) -> Result<(), StoreError> {
        self.execute("delete from workload_reports where workload_id = $1", vec![text(workload)]).await?;
        Ok(())
    }
}

impl Reader {
    /// Returns the last report of a workload's controller; `None` if none has reported.
    pub async fn workload_report(&mut self, workload: WorkloadId) -> Result<Option<WorkloadReportRecord>, StoreError> {
        self.find("select workload_id, doc from workload_reports where workload_id = $1", vec![text(workload)]).await
    }
}

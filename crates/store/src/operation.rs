//! Operations.

use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::{OperationId, OperationState, ProjectId, Timestamp, WorkloadId};

use crate::{
    error::StoreError,
    hint::Change,
    page::Page,
    query::{Value, document, get_count, text},
    record::{OperationRecord, StepRecord},
    select::Select,
    store::{Reader, Tx},
};

/// Selects operations; absent conditions match all.
#[derive(Clone, Debug, Default)]
pub struct OperationFilter {
    /// Only operations of this project.
    pub project: Option<ProjectId>,
    /// Only operations on this workload.
    pub workload: Option<WorkloadId>,
    /// Only operations in this state.
    pub state: Option<OperationState>,
    /// The page to return.
    pub page: Page,
}

fn is_open(operation: &OperationRecord) -> Value {
    let counts_as_ended = bugs::on(Bug::CancelledCountsAsEnded) && operation.cancel_requested;
    Value::Int(i64::from(!operation.state.is_final() && !counts_as_ended))
}

/// Returns the value of the column by which old operations are found; 0 while the operation is open.
fn ended_at(operation: &OperationRecord) -> Value {
    Value::Int(operation.ended_at.map_or(0, Timestamp::as_millis))
}

impl Tx {
    /// Inserts an operation with its steps. Fails with [`StoreError::OperationInProgress`] if the workload has an open
    /// one.
    pub async fn insert_operation(
        &mut self,
        operation: &OperationRecord,
        steps: &[StepRecord],
    ) -> Result<(), StoreError> {
        let sql = "select id, doc from operations where workload_id = $1 and is_open = 1";
        if let Some(open) = self.find::<OperationRecord>(sql, vec![text(operation.workload)]).await? {
            return Err(StoreError::OperationInProgress { operation: open.id, kind: open.kind });
        }
        let values = vec![
            text(operation.id),
            text(operation.workload),
            text(operation.project),
            text(operation.state),
            is_open(operation),
            ended_at(operation),
            document(operation)?,
        ];
        let sql = "insert into operations (id, workload_id, project_id, state, is_open, ended_at, doc) \
                   values ($1, $2, $3, $4, $5, $6, $7)";
        self.execute(sql, values).await?;
        for step in steps {
            self.insert_step(step).await?;
        }
        self.announced.hints.push(Change::Operation(operation.id));
        Ok(())
    }

    /// Updates an operation that is still in the state `before`.
    pub async fn update_operation(
        &mut self,
        operation: &OperationRecord,
        before: OperationState,
    ) -> Result<(), StoreError> {
        let values = vec![
            text(operation.id),
            text(before),
            text(operation.state),
            is_open(operation),
            ended_at(operation),
            document(operation)?,
        ];
        let sql =
            "update operations set state = $3, is_open = $4, ended_at = $5, doc = $6 where id = $1 and state = $2";
        match self.execute(sql, values).await? {
            1 => Ok(()),
            _ => Err(StoreError::Stale { what: "operation" }),
        }
    }

    /// Records that cancellation was requested, and hints the operation's driver.
    pub async fn request_cancel(&mut self, id: OperationId) -> Result<(), StoreError> {
        let mut operation = self.operation(id).await?;
        operation.cancel_requested = true;
        self.update_operation(&operation, operation.state).await?;
        self.announced.hints.push(Change::Operation(id));
        Ok(())
    }

    /// Records that an operation of the platform yields to a person, and hints its driver. Returns false, and changes nothing, for an
    /// operation that a person requested, or that has ended.
    pub async fn request_yield(&mut self, id: OperationId) -> Result<bool, StoreError> {
        let mut operation = self.operation(id).await?;
        let Some(own) = operation.by_platform.as_mut() else { return Ok(false) };
        own.yields = true;
        if operation.state.is_final() {
            return Ok(false);
        }
        self.update_operation(&operation, operation.state).await?;
        self.announced.hints.push(Change::Operation(id));
        Ok(true)
    }
}

impl Reader {
    /// Returns the operation with this id.
    pub async fn operation(&mut self, id: OperationId) -> Result<OperationRecord, StoreError> {
        let found = self.find("select id, doc from operations where id = $1", vec![text(id)]).await?;
        found.ok_or_else(|| StoreError::not_found("operation", id))
    }

    /// Returns the newest operation of a workload.
    pub async fn newest_operation(&mut self, workload: WorkloadId) -> Result<Option<OperationRecord>, StoreError> {
        let sql = "select id, doc from operations where workload_id = $1 order by id desc limit 1";
        self.find(sql, vec![text(workload)]).await
    }

    /// Returns all open operations, oldest first.
    pub async fn open_operations(&mut self) -> Result<Vec<OperationRecord>, StoreError> {
        self.list("select id, doc from operations where is_open = 1 order by id", Vec::new()).await
    }

    /// Returns the number of open operations.
    pub async fn open_operation_count(&mut self) -> Result<u64, StoreError> {
        let row = self.row("select count(*) as n from operations where is_open = 1", Vec::new()).await?;
        row.map_or(Ok(0), |row| get_count(&row, "n"))
    }

    /// Returns a page of operations, oldest first.
    pub async fn operations(&mut self, filter: &OperationFilter) -> Result<Vec<OperationRecord>, StoreError> {
        self.records(list(filter)).await
    }
}

/// Returns the statement for a page of operations.
pub(crate) fn list(filter: &OperationFilter) -> Select {
    Select::all("id, doc from operations")
        .equal("project_id", filter.project)
        .equal("workload_id", filter.workload)
        .equal("state", filter.state)
        .page(&filter.page)
}

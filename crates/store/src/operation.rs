//! Operations.

use gpuaas_model::{OperationId, OperationState, ProjectId, Timestamp, WorkloadId};

use crate::{
    error::StoreError,
    page::Page,
    query::{Value, document, get_count, text},
    record::{OperationRecord, StepRecord},
    select::Select,
    store::{Change, Reader, Tx},
};

/// Which operations.
#[derive(Clone, Debug, Default)]
pub struct OperationFilter {
    /// Of this project.
    pub project: Option<ProjectId>,
    /// On this workload.
    pub workload: Option<WorkloadId>,
    /// In this state.
    pub state: Option<OperationState>,
    /// Which part.
    pub page: Page,
}

fn is_open(operation: &OperationRecord) -> Value {
    Value::Int(i64::from(!operation.state.is_final()))
}

/// As the column has it, by which operations that ended long ago are found.
fn ended_at(operation: &OperationRecord) -> Value {
    Value::Int(operation.ended_at.map_or(0, Timestamp::as_millis))
}

impl Tx {
    /// Adds an operation with its steps; a workload has one open operation at a time.
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
        self.hints.push(Change::Operation(operation.id));
        Ok(())
    }

    /// Writes an operation that was in state `before`.
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

    /// Notes that somebody wants the operation to end, and wakes its driver.
    pub async fn request_cancel(&mut self, id: OperationId) -> Result<(), StoreError> {
        let mut operation = self.operation(id).await?;
        operation.cancel_requested = true;
        self.update_operation(&operation, operation.state).await?;
        self.hints.push(Change::Operation(id));
        Ok(())
    }
}

impl Reader {
    /// The operation of that id.
    pub async fn operation(&mut self, id: OperationId) -> Result<OperationRecord, StoreError> {
        let found = self.find("select id, doc from operations where id = $1", vec![text(id)]).await?;
        found.ok_or_else(|| StoreError::not_found("operation", id))
    }

    /// The newest operation of a workload.
    pub async fn newest_operation(&mut self, workload: WorkloadId) -> Result<Option<OperationRecord>, StoreError> {
        let sql = "select id, doc from operations where workload_id = $1 order by id desc limit 1";
        self.find(sql, vec![text(workload)]).await
    }

    /// Operations that have not ended, oldest first.
    pub async fn open_operations(&mut self) -> Result<Vec<OperationRecord>, StoreError> {
        self.list("select id, doc from operations where is_open = 1 order by id", Vec::new()).await
    }

    /// How many operations have not ended.
    pub async fn open_operation_count(&mut self) -> Result<u64, StoreError> {
        let row = self.row("select count(*) as n from operations where is_open = 1", Vec::new()).await?;
        row.map_or(Ok(0), |row| get_count(&row, "n"))
    }

    /// Operations, oldest first.
    pub async fn operations(&mut self, filter: &OperationFilter) -> Result<Vec<OperationRecord>, StoreError> {
        self.records(list(filter)).await
    }
}

/// The statement of a page of operations.
pub(crate) fn list(filter: &OperationFilter) -> Select {
    Select::all("id, doc from operations")
        .equal("project_id", filter.project)
        .equal("workload_id", filter.workload)
        .equal("state", filter.state)
        .page(&filter.page)
}

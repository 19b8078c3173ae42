//! Steps of operations.

use gpuaas_model::{OperationId, StepId, StepState};

use crate::{
    error::StoreError,
    query::{Value, document, text},
    record::StepRecord,
    store::{Reader, Tx},
};

impl Tx {
    pub(crate) async fn insert_step(&mut self, step: &StepRecord) -> Result<(), StoreError> {
        let values = vec![
            text(step.id),
            text(step.operation),
            Value::Int(i64::from(step.position)),
            text(step.state),
            Value::Int(i64::from(step.attempts)),
            document(step)?,
        ];
        let sql =
            "insert into steps (id, operation_id, position, state, attempts, doc) values ($1, $2, $3, $4, $5, $6)";
        self.execute(sql, values).await?;
        Ok(())
    }

    /// Updates a step that is still in the given state with the given number of attempts.
    pub async fn update_step(&mut self, step: &StepRecord, before: (StepState, u32)) -> Result<(), StoreError> {
        let values = vec![
            text(step.id),
            text(before.0),
            Value::Int(i64::from(before.1)),
            text(step.state),
            Value::Int(i64::from(step.attempts)),
            document(step)?,
        ];
        let sql = "update steps set state = $4, attempts = $5, doc = $6 where id = $1 and state = $2 and attempts = $3";
        match self.execute(sql, values).await? {
            1 => Ok(()),
            _ => Err(StoreError::Stale { what: "step" }),
        }
    }
}

impl Reader {
    /// Returns the step with this id.
    pub async fn step(&mut self, id: StepId) -> Result<StepRecord, StoreError> {
        let found = self.find("select id, doc from steps where id = $1", vec![text(id)]).await?;
        found.ok_or_else(|| StoreError::not_found("step", id))
    }

    /// Returns the steps of an operation, in the order of its plan.
    pub async fn steps_of(&mut self, operation: OperationId) -> Result<Vec<StepRecord>, StoreError> {
        self.list("select id, doc from steps where operation_id = $1 order by position", vec![text(operation)]).await
    }
}

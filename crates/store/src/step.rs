//! Steps of operations.

use std::collections::BTreeMap;

use gpuaas_model::{OperationId, StepId, StepState};

use crate::{
    error::StoreError,
    query::{Value, document, list_of, text},
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

    /// Returns the first step of each of these operations that is running or in backoff.
    pub async fn current_steps(
        &mut self,
        operations: impl IntoIterator<Item = OperationId>,
    ) -> Result<BTreeMap<OperationId, StepRecord>, StoreError> {
        let sql = "select id, doc from steps where operation_id in (select value from json_each($1)) \
                   and state in ('running', 'backoff') order by position";
        let rows = self.rows_with_lists(sql, vec![list_of(operations)]).await?;
        let mut first = BTreeMap::new();
        for row in &rows {
            let step: StepRecord = row.record("doc")?;
            first.entry(step.operation).or_insert(step);
        }
        Ok(first)
    }

    /// Returns the steps with these ids; leaves out ids that do not exist.
    pub async fn steps_of_ids(
        &mut self,
        ids: impl IntoIterator<Item = StepId>,
    ) -> Result<BTreeMap<StepId, StepRecord>, StoreError> {
        let sql = "select id, doc from steps where id in (select value from json_each($1))";
        let rows = self.rows_with_lists(sql, vec![list_of(ids)]).await?;
        rows.iter().map(|row| row.record("doc").map(|step: StepRecord| (step.id, step))).collect()
    }
}

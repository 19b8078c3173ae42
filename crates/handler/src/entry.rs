//! The line of a task type in the agent's catalog.

use std::ops::RangeInclusive;

use futures::future::BoxFuture;
use gpuaas_model::{Code, TaskType};
use gpuaas_wire::task::{TaskFailure, TaskSpec};
use serde_json::Value;

use crate::context::Context;

type Run = Box<dyn Fn(Value, Context) -> BoxFuture<'static, Result<Value, TaskFailure>> + Send + Sync>;

/// One task type that this agent executes.
pub struct Entry {
    /// Name of the type.
    pub task_type: TaskType,
    /// Versions of its parameters that the agent accepts.
    pub schemas: RangeInclusive<u32>,
    /// True for tasks that change the node: they run one at a time.
    pub is_exclusive: bool,
    /// Returns true if this result of a successful task means that the host is clean, so that the workload no longer owns it.
    pub frees_host: fn(&Value) -> bool,
    /// Checks parameters without running the task.
    pub accepts: fn(&Value) -> Result<(), serde_json::Error>,
    /// Runs the task with parameters that were accepted.
    pub run: Run,
}

impl Entry {
    /// Sets the predicate that decides from a successful result whether the host is clean.
    pub fn frees_host_if(self, is_clean: fn(&Value) -> bool) -> Self {
        Self { frees_host: is_clean, ..self }
    }

    /// Returns true if the task makes its workload the owner of the host.
    pub fn claims_host(&self) -> bool {
        self.is_exclusive && self.task_type.is_for_workload()
    }
}

/// Creates the entry of one task type from its handler.
pub fn entry<T, F>(is_exclusive: bool, handler: fn(T, Context) -> F) -> Entry
where
    T: TaskSpec + Send + 'static,
    T::Result: Send,
    F: Future<Output = Result<T::Result, TaskFailure>> + Send + 'static,
{
    let run = move |params: Value, context: Context| -> BoxFuture<'static, Result<Value, TaskFailure>> {
        Box::pin(async move {
            let task: T = serde_json::from_value(params)
                .map_err(|error| TaskFailure::new(Code::TaskParamsInvalid, error.to_string()))?;
            let result = handler(task, context).await?;
            serde_json::to_value(result).map_err(|error| TaskFailure::new(Code::Internal, error.to_string()))
        })
    };
    let accepts = |params: &Value| serde_json::from_value::<T>(params.clone()).map(|_| ());
    let schemas = T::OLDEST..=T::SCHEMA;
    Entry { task_type: T::TYPE, schemas, is_exclusive, frees_host: |_| false, accepts, run: Box::new(run) }
}

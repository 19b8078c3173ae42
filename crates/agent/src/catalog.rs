//! The closed catalog of task types, one line per type. The agent refuses a type that is not listed.

use std::ops::RangeInclusive;

use futures::future::BoxFuture;
use gpuaas_model::{Code, TaskType};
use gpuaas_wire::task::{ResidueReport, TaskFailure, TaskSpec, TaskSupport};
use serde_json::Value;

use crate::{context::Context, handlers};

type Run = Box<dyn Fn(Value, Context) -> BoxFuture<'static, Result<Value, TaskFailure>> + Send + Sync>;

/// One task type that this agent executes.
pub(crate) struct Entry {
    pub(crate) task_type: TaskType,
    /// Versions of its parameters that the agent accepts.
    pub(crate) schemas: RangeInclusive<u32>,
    /// True for tasks that change the node: they run one at a time.
    pub(crate) mutates: bool,
    /// Returns true if this result of a successful task means that the host is clean, so that the workload no longer owns it.
    pub(crate) frees_host: fn(&Value) -> bool,
    pub(crate) accepts: fn(&Value) -> Result<(), serde_json::Error>,
    pub(crate) run: Run,
}

/// Returns every task type that this agent executes, each with those of its schemas that `accepted` returns.
pub(crate) fn catalog(accepted: impl Fn(RangeInclusive<u32>, bool) -> RangeInclusive<u32>) -> Vec<Entry> {
    let mut catalog = vec![
        entry(false, handlers::noop::run),
        entry(false, handlers::inspect::run),
        entry(false, handlers::preflight::run),
        entry(false, handlers::residue::run).frees_host_if(is_clean),
        entry(true, handlers::fix::run),
        entry(true, handlers::artifact_fetch::run),
        entry(true, handlers::rke2_install::run),
        entry(true, handlers::rke2_configure::run),
        entry(true, handlers::rke2_start::run),
        entry(true, handlers::rke2_stop::run),
        entry(false, handlers::rke2_observe::run),
        entry(false, handlers::rke2_kubeconfig_read::run),
        entry(true, handlers::rke2_uninstall::run).frees_host_if(|_| true),
    ];
    for entry in &mut catalog {
        entry.schemas = accepted(entry.schemas.clone(), entry.mutates);
    }
    catalog
}

impl Entry {
    /// Sets the predicate that decides from a successful result whether the host is clean.
    pub(crate) fn frees_host_if(self, is_clean: fn(&Value) -> bool) -> Self {
        Self { frees_host: is_clean, ..self }
    }

    /// Returns true if the task makes its workload the owner of the host.
    pub(crate) fn claims_host(&self) -> bool {
        self.mutates && self.task_type.is_for_workload()
    }
}

/// Returns true if a residue report lists no leftovers and no checks that could not run.
pub(crate) fn is_clean(report: &Value) -> bool {
    serde_json::from_value::<ResidueReport>(report.clone())
        .is_ok_and(|report| report.items.is_empty() && report.unseen.is_empty())
}

/// Returns the catalog in the form in which the hello message carries it.
pub(crate) fn support(catalog: &[Entry]) -> Vec<TaskSupport> {
    let line =
        |entry: &Entry| TaskSupport { task: entry.task_type.to_string(), schemas: entry.schemas.clone().collect() };
    catalog.iter().map(line).collect()
}

/// Creates the entry of one task type from its handler.
pub(crate) fn entry<T, F>(mutates: bool, handler: fn(T, Context) -> F) -> Entry
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
    Entry { task_type: T::TYPE, schemas, mutates, frees_host: |_| false, accepts, run: Box::new(run) }
}

//! Tasks.

use gpuaas_model::{NodeId, OperationId, ProjectId, TaskId, TaskState};

use crate::{
    error::StoreError,
    page::Page,
    query::{Value, document, text, text_or_empty},
    record::TaskRecord,
    select::Select,
    store::{Reader, Tx},
};

/// Selects tasks; absent conditions match all.
#[derive(Clone, Debug, Default)]
pub struct TaskFilter {
    /// Only tasks of this project.
    pub project: Option<ProjectId>,
    /// Only tasks on this node.
    pub node: Option<NodeId>,
    /// Only tasks of this operation.
    pub operation: Option<OperationId>,
    /// Only tasks in this state.
    pub state: Option<TaskState>,
    /// Returns the newest tasks first instead of the oldest.
    pub newest_first: bool,
    /// The page to return.
    pub page: Page,
}

impl Tx {
    /// Inserts a task with its envelope.
    pub async fn insert_task(&mut self, task: &TaskRecord) -> Result<(), StoreError> {
        let values = vec![
            text(task.id),
            text(task.node),
            text_or_empty(task.operation),
            text_or_empty(task.workload),
            text_or_empty(task.project),
            text(task.state),
            Value::Int(i64::from(!task.state.is_final())),
            text(&task.key_id),
            document(task)?,
        ];
        let sql = "insert into tasks (id, node_id, operation_id, workload_id, project_id, state, is_open, key_id, doc) \
                   values ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        self.execute(sql, values).await?;
        Ok(())
    }

    /// Updates a task that is still in the state `before`.
    pub async fn update_task(&mut self, task: &TaskRecord, before: TaskState) -> Result<(), StoreError> {
        let is_open = Value::Int(i64::from(!task.state.is_final()));
        let values = vec![text(task.id), text(before), text(task.state), is_open, document(task)?];
        let sql = "update tasks set state = $3, is_open = $4, doc = $5 where id = $1 and state = $2";
        match self.execute(sql, values).await? {
            1 => Ok(()),
            _ => Err(StoreError::Stale { what: "task" }),
        }
    }
}

impl Reader {
    /// Returns the task with this id.
    pub async fn task(&mut self, id: TaskId) -> Result<TaskRecord, StoreError> {
        let found = self.find("select id, doc from tasks where id = $1", vec![text(id)]).await?;
        found.ok_or_else(|| StoreError::not_found("task", id))
    }

    /// Returns the open tasks of a node.
    pub async fn open_tasks(&mut self, node: NodeId) -> Result<Vec<TaskRecord>, StoreError> {
        self.list("select id, doc from tasks where node_id = $1 and is_open = 1 order by id", vec![text(node)]).await
    }

    /// Returns the open tasks of all nodes.
    pub async fn all_open_tasks(&mut self) -> Result<Vec<TaskRecord>, StoreError> {
        self.list("select id, doc from tasks where is_open = 1 order by id", Vec::new()).await
    }

    /// Returns a page of tasks, in the order of the filter.
    pub async fn tasks(&mut self, filter: &TaskFilter) -> Result<Vec<TaskRecord>, StoreError> {
        self.records(list(filter)).await
    }
}

/// Returns the statement for a page of tasks.
pub(crate) fn list(filter: &TaskFilter) -> Select {
    let list = Select::all("id, doc from tasks")
        .equal_indexed("project_id", filter.project)
        .equal("node_id", filter.node)
        .equal("operation_id", filter.operation)
        .equal("state", filter.state);
    if filter.newest_first { list.newest_page(&filter.page) } else { list.page(&filter.page) }
}

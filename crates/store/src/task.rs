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

/// Which tasks.
#[derive(Clone, Debug, Default)]
pub struct TaskFilter {
    /// Of this project.
    pub project: Option<ProjectId>,
    /// On this node.
    pub node: Option<NodeId>,
    /// Of this operation.
    pub operation: Option<OperationId>,
    /// In this state.
    pub state: Option<TaskState>,
    /// Which part.
    pub page: Page,
}

impl Tx {
    /// Adds a task with its whole envelope.
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

    /// Writes a task that was in state `before`.
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
    /// The task of that id.
    pub async fn task(&mut self, id: TaskId) -> Result<TaskRecord, StoreError> {
        let found = self.find("select id, doc from tasks where id = $1", vec![text(id)]).await?;
        found.ok_or_else(|| StoreError::not_found("task", id))
    }

    /// The tasks of a node that have not ended.
    pub async fn open_tasks(&mut self, node: NodeId) -> Result<Vec<TaskRecord>, StoreError> {
        self.list("select id, doc from tasks where node_id = $1 and is_open = 1 order by id", vec![text(node)]).await
    }

    /// The tasks of all nodes that have not ended.
    pub async fn all_open_tasks(&mut self) -> Result<Vec<TaskRecord>, StoreError> {
        self.list("select id, doc from tasks where is_open = 1 order by id", Vec::new()).await
    }

    /// Tasks, oldest first.
    pub async fn tasks(&mut self, filter: &TaskFilter) -> Result<Vec<TaskRecord>, StoreError> {
        self.records(list(filter)).await
    }
}

/// The statement of a page of tasks.
pub(crate) fn list(filter: &TaskFilter) -> Select {
    Select::all("id, doc from tasks")
        .equal_indexed("project_id", filter.project)
        .equal("node_id", filter.node)
        .equal("operation_id", filter.operation)
        .equal("state", filter.state)
        .page(&filter.page)
}

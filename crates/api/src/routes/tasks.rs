//! Signed tasks.

use axum::{
    Json,
    extract::{Path, State},
};
use gpuaas_api_types::{List, Task};
use gpuaas_engine::{Caller, CommandError};
use gpuaas_store::{IdKind, StoreError, TaskFilter, TaskRecord};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::{
    auth::Authenticated,
    convert,
    declaration::declare,
    lookup,
    page::{PageParams, Params, is_newest_first, parsed},
    problem::ApiProblem,
    state::ApiState,
    waiting,
};

/// Filters of tasks.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskParams {
    /// Name or id of the node.
    node: Option<String>,
    /// Id of the operation.
    operation: Option<String>,
    /// State of the task.
    state: Option<String>,
    /// Order of the tasks: `oldest` first, the default, or `newest` first.
    order: Option<String>,
    /// `next_cursor` of the previous page.
    #[serde(default, deserialize_with = "crate::page::cursor")]
    #[param(value_type = Option<String>)]
    cursor: Option<String>,
    /// Number of entries per page: 1 to 1,000, 1,000 by default.
    #[serde(default, deserialize_with = "crate::page::limit")]
    #[param(value_type = Option<u32>)]
    limit: Option<u32>,
}

declare! { list_tasks: reads(ProjectRead, "task list"), [NotFound, QueryInvalid] }

/// Lists tasks that the caller may see.
#[utoipa::path(
    get, path = "/api/v1/tasks", tag = "tasks", security(("token" = [])), params(TaskParams),
    responses((status = 200, body = List<Task>))
)]
pub(crate) async fn list_tasks(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Params(params): Params<TaskParams>,
) -> Result<Json<List<Task>>, ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    let node = match &params.node {
        Some(key) => Some(lookup::visible_node(&mut reader, &caller, key).await?.record().id),
        None => None,
    };
    let operation = match &params.operation {
        Some(key) => Some(lookup::id(&mut reader, &caller, IdKind::Operation, key).await?),
        None => None,
    };
    let page = PageParams { cursor: params.cursor, limit: params.limit };
    let filter = TaskFilter {
        project: caller.principal.project,
        node,
        operation,
        state: parsed(params.state.as_deref(), "state")?,
        newest_first: is_newest_first(params.order.as_deref())?,
        page: page.page(),
    };
    let tasks = reader.tasks(&filter).await?;
    let next_cursor = page.next_cursor(&tasks, |task| task.id.to_string());
    let names = reader.node_names(tasks.iter().map(|task| task.node)).await?;
    let open: Vec<_> = tasks.iter().filter(|task| !task.state.is_final()).collect();
    let (on, steps): (Vec<_>, Vec<_>) = open.iter().map(|task| (task.node, task.step)).unzip();
    let nodes = reader.nodes_of_ids(on).await?;
    let steps = reader.steps_of_ids(steps.into_iter().flatten()).await?;
    let shown = tasks.into_iter().map(|task| match names.get(&task.node) {
        Some(name) => {
            let step = task.step.and_then(|step| steps.get(&step));
            let waiting = nodes.get(&task.node).and_then(|node| waiting::of_task(&task, node, step));
            Ok(convert::task(task, name, waiting))
        }
        None => Err(StoreError::NotFound { what: "node", id: task.node.to_string() }),
    });
    Ok(Json(List::new(shown.collect::<Result<_, _>>()?, next_cursor)))
}

declare! { get_task: reads(ProjectRead, "task show"), [NotFound] }

/// Returns a task.
#[utoipa::path(
    get, path = "/api/v1/tasks/{id}", tag = "tasks", security(("token" = [])), params(("id" = String, Path)),
    responses((status = 200, body = Task))
)]
pub(crate) async fn get_task(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(id): Path<String>,
) -> Result<Json<Task>, ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    let id = lookup::id(&mut reader, &caller, IdKind::Task, &id).await?;
    let task = reader.task(id).await?;
    must_see(&caller, &task)?;
    let node = reader.node(task.node).await?;
    let steps = reader.steps_of_ids(task.step).await?;
    let waiting = waiting::of_task(&task, &node, steps.values().next());
    Ok(Json(convert::task(task, &node.name, waiting)))
}

/// Refuses a task that the caller may not see. Only platform roles see tasks without a project.
fn must_see(caller: &Caller, task: &TaskRecord) -> Result<(), ApiProblem> {
    let seen = task.project.map_or(caller.principal.role.is_of_platform(), |project| caller.principal.sees(project));
    if seen { Ok(()) } else { Err(CommandError::not_found("task", task.id).into()) }
}

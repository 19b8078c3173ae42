//! Operations of a project or of one workload, and the tasks of one operation, live.

import { api, take } from "../../api/client";
import type { Event, Operation, Task } from "../../api/types";
import { listSource } from "../../live/list";
import type { LiveSource } from "../../live/live.svelte";
import { operationOf, workloadOf } from "../../live/touches";
import { operationTitle } from "./title";

const SHOWN = new Set(["operation", "step"]);

/** The operations of a project; with `workload`, an id, only those of it. */
export function operationsOf(project: string | undefined, workload?: string): LiveSource<Operation[]> {
  return listSource<Operation>({
    key: `operations ${project ?? ""} ${workload ?? ""}`,
    page: (cursor, signal) =>
      take(api.GET("/api/v1/operations", { params: { query: { project, workload, cursor } }, signal })),
    one: async (id, signal) =>
      (await take(api.GET("/api/v1/operations/{id}", { params: { path: { id } }, signal }))).operation,
    id: (operation) => operation.id,
    what: "operation",
    name: operationTitle,
    belongs: (operation) => workload === undefined || operation.workload === workload,
    on: (event) => {
      if (!SHOWN.has(event.subject_kind)) return false;
      const of = workloadOf(event);
      if (workload !== undefined && of !== undefined && of !== workload) return false;
      return operationOf(event) ?? true;
    },
  });
}

/** The tasks of an operation, oldest first. They announce nothing: the steps of the operation say what is done. */
export function tasksOf(operation: string): LiveSource<Task[]> {
  return listSource<Task>({
    key: `tasks ${operation}`,
    page: (cursor, signal) => take(api.GET("/api/v1/tasks", { params: { query: { operation, cursor } }, signal })),
    one: (id, signal) => take(api.GET("/api/v1/tasks/{id}", { params: { path: { id } }, signal })),
    id: (task) => task.id,
    on: (event: Event) =>
      event.subject_kind === "task" && operationOf(event) === operation ? event.subject_id : false,
  });
}

export function taskOf(id: string): LiveSource<Task> {
  return {
    key: `task ${id}`,
    load: (signal) => take(api.GET("/api/v1/tasks/{id}", { params: { path: { id } }, signal })),
    on: (event: Event) => event.subject_kind === "task" && event.subject_id === id,
  };
}

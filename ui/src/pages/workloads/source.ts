//! The workloads of a project, live.

import { api, take } from "../../api/client";
import type { Workload } from "../../api/types";
import { listSource } from "../../live/list";
import type { LiveSource } from "../../live/live.svelte";
import { workloadOf } from "../../live/touches";

/** Kinds of subjects whose events change what a list of workloads shows. */
const SHOWN = new Set(["workload", "member", "operation"]);

export function workloadsOf(project: string | undefined): LiveSource<Workload[]> {
  return listSource<Workload>({
    key: `workloads ${project ?? ""}`,
    page: (cursor, signal) => take(api.GET("/api/v1/workloads", { params: { query: { project, cursor } }, signal })),
    one: async (workload, signal) =>
      (await take(api.GET("/api/v1/workloads/{workload}", { params: { path: { workload } }, signal }))).workload,
    id: (workload) => workload.id,
    what: "workload",
    name: (workload) => workload.name,
    on: (event) => (SHOWN.has(event.subject_kind) ? (workloadOf(event) ?? true) : false),
  });
}

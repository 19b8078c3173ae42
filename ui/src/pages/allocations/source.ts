//! Allocations of a project, live.

import { api, take } from "../../api/client";
import type { Allocation } from "../../api/types";
import { listSource } from "../../live/list";
import type { LiveSource } from "../../live/live.svelte";

function readAllocation(id: string, signal?: AbortSignal): Promise<Allocation> {
  return take(api.GET("/api/v1/allocations/{id}", { params: { path: { id } }, ...(signal && { signal }) }));
}

export function allocationsOf(project: string | undefined): LiveSource<Allocation[]> {
  return listSource<Allocation>({
    key: `allocations ${project ?? ""}`,
    page: (cursor, signal) => take(api.GET("/api/v1/allocations", { params: { query: { project, cursor } }, signal })),
    one: readAllocation,
    id: (allocation) => allocation.id,
    what: "allocation",
    name: (allocation) => allocation.node_name,
    // A workload that takes or leaves a node changes its allocation without an event of its own.
    on: (event) => {
      if (event.subject_kind === "allocation") return event.subject_id;
      return event.kind === "operation.started" || event.kind === "operation.ended";
    },
  });
}

export function oneAllocation(id: string): LiveSource<Allocation> {
  return {
    key: `allocation ${id}`,
    load: (signal) => readAllocation(id, signal),
    on: (event, allocation) => {
      if (event.subject_kind === "allocation") return event.subject_id === id || event.subject_id === allocation?.id;
      return event.kind === "operation.started" || event.kind === "operation.ended";
    },
  };
}

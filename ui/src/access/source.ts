//! The access to a workload, live: its endpoint, the kinds of credentials, and the delivered ones.

import { api, take } from "../api/client";
import type { AccessAnswer } from "../api/types";
import type { LiveSource } from "../live/live.svelte";
import { workloadOf } from "../live/touches";

export function accessOf(workload: string): LiveSource<AccessAnswer> {
  return {
    key: `access ${workload}`,
    load: (signal) => take(api.GET("/api/v1/workloads/{workload}/access", { params: { path: { workload } }, signal })),
    on: (event) =>
      event.kind === "access.delivered" || event.kind === "access.revoked"
        ? event.subject_id === workload || workloadOf(event) === undefined || workloadOf(event) === workload
        : event.kind === "operation.ended" && workloadOf(event) === workload,
  };
}

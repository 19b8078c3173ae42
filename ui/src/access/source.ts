//! The access to a workload, live: its endpoint, the kinds of credentials, and the delivered ones.

import { api, take } from "../api/client";
import type { AccessAnswer, AccessGrant } from "../api/types";
import { Newcomers } from "../live/list";
import type { LiveSource } from "../live/live.svelte";
import { workloadOf } from "../live/touches";

export function accessOf(workload: string): LiveSource<AccessAnswer> {
  const params = { path: { workload } };
  const newcomers = new Newcomers<AccessGrant>({
    what: "credential",
    id: (grant) => grant.id,
    name: (grant) => `${grant.role} of ${grant.requested_by}`,
  });
  return {
    key: `access ${workload}`,
    load: async (signal) => {
      const access = await take(api.GET("/api/v1/workloads/{workload}/access", { params, signal }));
      newcomers.meet(access.grants, signal);
      return access;
    },
    on: (event) =>
      event.kind === "access.delivered" || event.kind === "access.revoked"
        ? event.subject_id === workload || workloadOf(event) === undefined || workloadOf(event) === workload
        : event.kind === "operation.ended" && workloadOf(event) === workload,
  };
}

//! How a workload deviates from its desired state, and its controller, for the tab of the settings.

import { api, take, takeAll } from "../../api/client";
import type { Difference, ServiceAccount, Workload, WorkloadDiff } from "../../api/types";
import type { LiveSource } from "../../live/live.svelte";
import { workloadOf } from "../../live/touches";

/** The comparison asks the cluster, so it is made again only after an operation and on request. */
export function workloadDiff(id: string): LiveSource<WorkloadDiff> {
  return {
    key: `diff ${id}`,
    load: (signal) =>
      take(api.GET("/api/v1/workloads/{workload}/diff", { params: { path: { workload: id } }, signal })),
    on: (event) => event.kind === "operation.ended" && workloadOf(event) === id,
  };
}

/** The service account that controls the workload, if there is one. */
export function controllerOf(workload: Workload): LiveSource<ServiceAccount | undefined> {
  return {
    key: `controller ${workload.id}`,
    load: async (signal) => {
      const accounts = await takeAll((cursor) =>
        take(
          api.GET("/api/v1/service-accounts", {
            params: { query: { project: workload.project, cursor } },
            signal,
          }),
        ),
      );
      return accounts.find((account) => account.workload === workload.id && !account.deleted_at);
    },
    on: (event) => event.kind.startsWith("service_account."),
  };
}

/** A row's identity: a field deviates once a member. */
export function differenceKey(difference: Difference): string {
  return `${difference.member ?? ""} ${difference.field}`;
}

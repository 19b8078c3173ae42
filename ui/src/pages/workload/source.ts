//! One workload with its members, and its latest operation, live.

import { api, take } from "../../api/client";
import type { Event, OperationDetail, WorkloadDetail } from "../../api/types";
import { Newcomers } from "../../live/list";
import type { LiveSource } from "../../live/live.svelte";
import { operationOf, workloadOf } from "../../live/touches";
import { rowOfMember } from "./members";

/** A member in the table of members. */
interface Row {
  id: string;
  name: string;
}

/** `listsMembers` says that the page lists the members, so that new ones announce themselves. */
export function workloadDetail(
  name: string,
  project: string | undefined,
  { listsMembers = false }: { listsMembers?: boolean } = {},
): LiveSource<WorkloadDetail> {
  const params = { path: { workload: name }, query: { project } };
  const newcomers = listsMembers
    ? new Newcomers<Row>({ what: "member", id: ({ id }) => id, name: ({ name }) => name })
    : undefined;
  return {
    key: `workload ${project ?? ""} ${name}`,
    load: async (signal) => {
      const detail = await take(api.GET("/api/v1/workloads/{workload}", { params, signal }));
      const rows = detail.members.map((member) => ({ id: rowOfMember(detail.workload, member), name: member.name }));
      newcomers?.meet(rows, signal);
      return detail;
    },
    on: (event: Event, detail) => {
      if (event.subject_kind === "step" || event.subject_kind === "task") return false;
      const workload = workloadOf(event);
      return workload !== undefined && (detail === undefined || workload === detail.workload.id);
    },
  };
}

export function operationDetail(id: string): LiveSource<OperationDetail> {
  return {
    key: `operation ${id}`,
    load: (signal) => take(api.GET("/api/v1/operations/{id}", { params: { path: { id } }, signal })),
    on: (event: Event) => operationOf(event) === id,
  };
}

/** From where a workload's endpoint can be reached, in the API's words. */
export function reachabilityOf(workload: string): LiveSource<string> {
  return {
    key: `reachability ${workload}`,
    load: async (signal) => {
      const access = await take(
        api.GET("/api/v1/workloads/{workload}/access", { params: { path: { workload } }, signal }),
      );
      return access.reachability;
    },
    on: () => false,
  };
}

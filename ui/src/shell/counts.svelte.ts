//! The numbers beside the entries of the navigation.

import { api, take } from "../api/client";
import { session } from "../api/session.svelte";
import type { Event, OperationState, Permission } from "../api/types";
import type { Scope } from "../live/hub.svelte";
import { live, type Live } from "../live/live.svelte";
import type { NavCount } from "../pages/table";
import { grouped } from "../text/plain";

export type Counts = Record<NavCount, string | undefined>;

/** The largest number that is counted exactly where the API returns no number. */
const COUNTED_MAX = 200;
/** Numbers in the corner of the eye need not change more often. */
const PAUSE_MS = 2_000;

interface Counted {
  key: NavCount;
  /** Without it, the API refuses the number. */
  needs: Permission;
  scope?: Scope;
  /** Whether an event may change the number. */
  on: (event: Event) => boolean;
  load: (project: string | undefined, signal: AbortSignal) => Promise<string>;
}

function counted({ key, needs, scope, on, load }: Counted): Live<string> {
  return live(() => {
    const { project } = session;
    if (!session.may(needs)) return undefined;
    return { key: `${key} ${project ?? ""}`, scope, pause: PAUSE_MS, load: (signal) => load(project, signal), on };
  });
}

const about =
  (kind: string) =>
  (event: Event): boolean =>
    event.subject_kind === kind;

function sum(counts: Record<string, number>): string {
  return grouped(Object.values(counts).reduce((total, count) => total + count, 0));
}

async function workloads(project: string | undefined, signal: AbortSignal): Promise<string> {
  const page = await take(api.GET("/api/v1/workloads", { params: { query: { project, limit: 1 } }, signal }));
  const { history: _past, ...present } = page.counts ?? {};
  return sum(present);
}

/** The nodes of the platform, which belong to no project. */
async function nodes(_project: string | undefined, signal: AbortSignal): Promise<string> {
  const page = await take(api.GET("/api/v1/nodes", { params: { query: { limit: 1 } }, signal }));
  return sum(page.counts ?? {});
}

async function allocations(project: string | undefined, signal: AbortSignal): Promise<string> {
  const page = await take(
    api.GET("/api/v1/allocations", { params: { query: { project, limit: COUNTED_MAX } }, signal }),
  );
  const held = page.items.filter((allocation) => allocation.state !== "released").length;
  return page.next_cursor ? `${grouped(COUNTED_MAX)}+` : grouped(held);
}

const OPEN: readonly OperationState[] = ["queued", "running", "waiting"];

async function operations(project: string | undefined, signal: AbortSignal): Promise<string> {
  const reads = OPEN.map((state) =>
    take(api.GET("/api/v1/operations", { params: { query: { project, state, limit: COUNTED_MAX } }, signal })),
  );
  const pages = await Promise.all(reads);
  const open = pages.reduce((total, page) => total + page.items.length, 0);
  return pages.some((page) => page.next_cursor) ? `${grouped(open)}+` : open === 0 ? "" : grouped(open);
}

/** Reads the numbers while the calling component lives. */
export function liveCounts(): Record<NavCount, Live<string>> {
  return {
    workloads: counted({ key: "workloads", needs: "project.read", on: about("workload"), load: workloads }),
    allocations: counted({ key: "allocations", needs: "project.read", on: about("allocation"), load: allocations }),
    operations: counted({ key: "operations", needs: "workloads.read", on: about("operation"), load: operations }),
    nodes: counted({
      key: "nodes",
      needs: "platform.read",
      scope: "platform",
      // Its state and its connection change nothing in the number.
      on: (event) => event.kind === "node.registered" || event.kind === "node.deleted",
      load: nodes,
    }),
  };
}

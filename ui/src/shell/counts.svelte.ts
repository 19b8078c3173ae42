//! The numbers beside the entries of the navigation.

import { api, take } from "../api/client";
import { session } from "../api/session.svelte";
import type { Event, OperationState } from "../api/types";
import { live, type Live } from "../live/live.svelte";
import type { NavCount } from "../pages/table";

export type Counts = Record<NavCount, string | undefined>;

/** The largest number that is counted exactly where the API returns no number. */
const COUNTED_MAX = 200;
/** Numbers in the corner of the eye need not change more often. */
const PAUSE_MS = 2_000;

function source(
  key: NavCount,
  subjects: readonly string[],
  load: (project: string | undefined, signal: AbortSignal) => Promise<string>,
) {
  return () => {
    const { project } = session;
    return {
      key: `${key} ${project ?? ""}`,
      pause: PAUSE_MS,
      load: (signal: AbortSignal) => load(project, signal),
      on: (event: Event) => subjects.includes(event.subject_kind),
    };
  };
}

async function workloads(project: string | undefined, signal: AbortSignal): Promise<string> {
  const page = await take(api.GET("/api/v1/workloads", { params: { query: { project, limit: 1 } }, signal }));
  const { history: _past, ...present } = page.counts ?? {};
  return String(Object.values(present).reduce((sum, count) => sum + count, 0));
}

async function allocations(project: string | undefined, signal: AbortSignal): Promise<string> {
  const page = await take(
    api.GET("/api/v1/allocations", { params: { query: { project, limit: COUNTED_MAX } }, signal }),
  );
  const held = page.items.filter((allocation) => allocation.state !== "released").length;
  return page.next_cursor ? `${COUNTED_MAX}+` : String(held);
}

const OPEN: readonly OperationState[] = ["queued", "running", "waiting"];

async function operations(project: string | undefined, signal: AbortSignal): Promise<string> {
  const reads = OPEN.map((state) =>
    take(api.GET("/api/v1/operations", { params: { query: { project, state, limit: COUNTED_MAX } }, signal })),
  );
  const pages = await Promise.all(reads);
  const open = pages.reduce((sum, page) => sum + page.items.length, 0);
  return pages.some((page) => page.next_cursor) ? `${open}+` : open === 0 ? "" : String(open);
}

/** Reads the numbers while the calling component lives. */
export function liveCounts(): Record<NavCount, Live<string>> {
  return {
    workloads: live(source("workloads", ["workload"], workloads)),
    allocations: live(source("allocations", ["allocation"], allocations)),
    operations: live(source("operations", ["operation"], operations)),
  };
}

//! The newest audit records, live.

import { api, take } from "../../api/client";
import { session } from "../../api/session.svelte";
import type { AuditEntry, ListPage } from "../../api/types";
import type { LiveSource } from "../../live/live.svelte";
import { type AuditFilter, queryOf } from "./filter";

/** Records read at a time. */
export const PAGE = 100;
/** A file has at most this many records; narrower filters or the command line program reach the others. */
export const EXPORT_MAX = 50_000;
const EXPORT_PAGE = 1_000;

/** Records before `after`, the newest first. */
export function readRecords(
  filter: AuditFilter,
  project: string | undefined,
  after?: string,
  signal?: AbortSignal,
  limit = PAGE,
): Promise<ListPage<AuditEntry>> {
  const query = {
    ...queryOf(filter, project),
    order: "newest" as const,
    limit,
    ...(after && { after: Number(after) }),
  };
  return take(api.GET("/api/v1/audit", { params: { query }, ...(signal && { signal }) }));
}

export function newestRecords(filter: AuditFilter, project: string | undefined): LiveSource<ListPage<AuditEntry>> {
  return {
    key: `audit ${project ?? ""} ${JSON.stringify(filter)}`,
    scope: project === undefined && session.may("platform.read") ? "platform" : "project",
    load: (signal) => readRecords(filter, project, undefined, signal),
    // Records have no events of their own; almost every event has a record.
    on: () => true,
  };
}

/** All records of a filter, the newest first, at most [`EXPORT_MAX`]. */
export async function allRecords(
  filter: AuditFilter,
  project: string | undefined,
  progress: (count: number) => void,
): Promise<AuditEntry[]> {
  const records: AuditEntry[] = [];
  let after: string | undefined;
  do {
    const page = await readRecords(filter, project, after, undefined, EXPORT_PAGE);
    records.push(...page.items);
    progress(records.length);
    after = page.next_cursor ?? undefined;
  } while (after !== undefined && records.length < EXPORT_MAX);
  return records;
}

//! Requests for a workload's logs, and how one continues where another ended.

import { authorize, reading } from "../api/client";
import { problemFrom, unreachable } from "../api/problem";
import type { WorkloadLogLine } from "../api/types";
import { jsonLines } from "./ndjson";

export interface LogSelection {
  /** Name or id of the workload, and the project in which a name is looked up. */
  workload: string;
  project?: string | undefined;
  /** Empty for all members. */
  members: readonly string[];
  /** `journal`, `task`, `event`; empty for all. */
  sources: readonly string[];
  /** Only lines since this time, as RFC 3339. */
  since?: string | undefined;
  /** Only this many of the last lines, at most [`TAIL_MAX`]. */
  tail?: number | undefined;
  follow: boolean;
}

/** The largest `tail` of the API. */
export const TAIL_MAX = 10_000;
/** A time before every line. */
export const BEGINNING = "1970-01-01T00:00:00Z";

/** What was received: a later request continues after it. */
export class LogCursor {
  readonly #positions = new Map<string, string>();
  #event: number | undefined;

  advance(line: WorkloadLogLine): void {
    if (line.member && line.position) this.#positions.set(line.member, line.position);
    if (typeof line.sequence === "number") this.#event = line.sequence;
  }

  /** Adds the parameters that continue after what was received. The last lines were received then, so `tail` no longer counts. */
  continue(query: URLSearchParams): void {
    if (this.#positions.size === 0 && this.#event === undefined) return;
    query.delete("tail");
    // More than this many journals cannot be continued: the API reads no more at once.
    const resume = [...this.#positions].slice(0, 64).map(([member, position]) => `${member}=${position}`);
    if (resume.length > 0) query.set("resume", resume.join(","));
    if (this.#event !== undefined) query.set("after_event", String(this.#event));
  }
}

/** The address of the selected lines, after those of the cursor. */
export function logAddress(selection: LogSelection, cursor?: LogCursor): string {
  const query = new URLSearchParams();
  if (selection.project !== undefined) query.set("project", selection.project);
  if (selection.members.length > 0) query.set("member", selection.members.join(","));
  if (selection.sources.length > 0) query.set("source", selection.sources.join(","));
  if (selection.since !== undefined) query.set("since", selection.since);
  if (selection.tail !== undefined) query.set("tail", String(selection.tail));
  if (selection.follow) query.set("follow", "true");
  cursor?.continue(query);
  return `/api/v1/workloads/${encodeURIComponent(selection.workload)}/logs?${query.toString()}`;
}

/**
 * Reads lines in batches as they arrive, and moves the cursor along. The server sends only as fast as the batches are taken. Throws a
 * `ProblemError`, or an `AbortError` after an abort.
 */
export async function* readLogs(
  selection: LogSelection,
  cursor: LogCursor,
  signal: AbortSignal,
): AsyncGenerator<WorkloadLogLine[]> {
  for await (const documents of readDocuments(logAddress(selection, cursor), signal)) {
    const lines = documents.filter(isLine);
    lines.forEach((line) => cursor.advance(line));
    yield lines;
  }
}

/** Reads a log whose lines are documents. The first batch is empty: it says that the stream is open. Throws like [`readLogs`]. */
export async function* readDocuments(address: string, signal: AbortSignal): AsyncGenerator<unknown[]> {
  const headers = new Headers({ accept: "application/x-ndjson" });
  authorize(headers, "GET");
  const send = (): Promise<Response> =>
    fetch(address, { headers, signal }).catch((thrown: unknown) => {
      if (signal.aborted) throw thrown;
      throw unreachable();
    });
  const response = await reading(send, signal);
  if (!response.ok || response.body === null) {
    const body: unknown = await response.json().catch(() => undefined);
    throw problemFrom(body, response);
  }
  yield [];
  yield* jsonLines(response.body);
}

function isLine(value: unknown): value is WorkloadLogLine {
  return typeof value === "object" && value !== null && "at" in value && "text" in value && "source" in value;
}

//! Where the shown lines begin.

import { BEGINNING } from "./request";

export interface SinceChoice {
  id: string;
  label: string;
  /** Milliseconds before now; `undefined` for the two ends. */
  before?: number;
}

const MINUTE = 60_000;

/** `latest` are the last lines, whenever they were written. */
export const SINCE: readonly SinceChoice[] = [
  { id: "latest", label: "Latest lines" },
  { id: "15m", label: "Last 15 minutes", before: 15 * MINUTE },
  { id: "1h", label: "Last hour", before: 60 * MINUTE },
  { id: "6h", label: "Last 6 hours", before: 360 * MINUTE },
  { id: "24h", label: "Last 24 hours", before: 1_440 * MINUTE },
  { id: "beginning", label: "The beginning" },
  { id: "time", label: "A time…" },
];

/** The API's `since` of a choice. `time` is what a person typed: a local time such as `2026-07-01T14:11`. */
export function sinceOf(choice: string, now: number, time = ""): string | undefined {
  if (choice === "beginning") return BEGINNING;
  if (choice === "time") {
    const at = Date.parse(time);
    return Number.isNaN(at) ? undefined : new Date(at).toISOString();
  }
  const before = SINCE.find((candidate) => candidate.id === choice)?.before;
  return before === undefined ? undefined : new Date(now - before).toISOString();
}

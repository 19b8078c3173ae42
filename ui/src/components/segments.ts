//! Divides the time of a step: what it waits for its dispatch, what its tasks run on the node, and what it waits between attempts.
//!
//! Guarantees: the segments of a step follow each other without a gap, from its beginning to its end, whatever clocks its times come from.

import type { Step, Task } from "../api/types";

/** `own` is the time without a task on a node: the platform works by itself, or calls the cluster. */
export type SegmentKind = "dispatch" | "run" | "backoff" | "own";

export interface Segment {
  kind: SegmentKind;
  /** Milliseconds since 1970. */
  from: number;
  to: number;
}

/** All kinds, in the order of a step, with their words. */
export const SEGMENTS: readonly { kind: SegmentKind; words: string }[] = [
  { kind: "dispatch", words: "waiting for dispatch" },
  { kind: "run", words: "running on the node" },
  { kind: "backoff", words: "backing off between attempts" },
  { kind: "own", words: "without a task on a node" },
];

/** How far the clocks of two replicas may be apart. */
const SKEW_MS = 1_000;

/**
 * The tasks of a step's attempts among those of its operation, in order. The step names the last one; those of earlier attempts are of the same
 * type, for the same node, and were sent since the step began. An attempt that could not begin has none.
 */
function tasksOf(step: Step, tasks: readonly Task[]): Task[] {
  const last = tasks.find((task) => task.id === step.task);
  if (last === undefined) return [];
  const begin = Date.parse(step.started_at ?? last.created_at);
  const earlier = tasks.filter(
    (task) =>
      task.node === last.node &&
      task.type === last.type &&
      task.attempt < last.attempt &&
      Date.parse(task.created_at) >= begin - SKEW_MS,
  );
  // Of each attempt the latest: another step can have had tasks of this type on the node shortly before.
  const byAttempt = new Map(earlier.map((task) => [task.attempt, task]));
  return [...byAttempt.values(), last].sort((a, b) => a.attempt - b.attempt);
}

/**
 * The segments of a step until its end, or until `now` while it runs; none if it has not begun, and none if it has a task that is not among
 * `tasks`.
 */
export function segmentsOf(step: Step, tasks: readonly Task[], now: number): Segment[] {
  if (!step.started_at) return [];
  const from = Date.parse(step.started_at);
  const to = Math.max(from, step.ended_at ? Date.parse(step.ended_at) : now);
  const attempts = tasksOf(step, tasks);
  if (step.task && attempts.length === 0) return [];
  const segments: Segment[] = [];
  let reached = from;
  const until = (at: number, kind: SegmentKind): void => {
    const end = Math.min(at, to);
    if (end <= reached) return;
    segments.push({ kind, from: reached, to: end });
    reached = end;
  };
  for (const task of attempts) {
    until(Date.parse(task.created_at), task.attempt > 1 ? "backoff" : "dispatch");
    until(task.ended_at ? Date.parse(task.ended_at) : to, "run");
  }
  until(to, step.state === "backoff" && attempts.length > 0 ? "backoff" : "own");
  return segments;
}

/** The milliseconds of each kind that occurs, in the order of a step. */
export function totals(segments: readonly Segment[]): { words: string; kind: SegmentKind; ms: number }[] {
  return SEGMENTS.flatMap(({ kind, words }) => {
    const of = segments.filter((segment) => segment.kind === kind);
    return of.length === 0 ? [] : [{ words, kind, ms: of.reduce((sum, { from, to }) => sum + to - from, 0) }];
  });
}

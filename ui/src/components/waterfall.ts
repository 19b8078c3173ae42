//! Places the steps of an operation on one time axis.

import type { Step, StepState } from "../api/types";

/** Rows that are shown one by one; longer operations fold what succeeded. */
const ROWS_MAX = 40;

export interface Row {
  key: string;
  label: string;
  state: StepState;
  /** Milliseconds since 1970; `undefined` while the step has not begun. */
  from: number | undefined;
  /** `undefined` while the step runs. */
  to: number | undefined;
  attempts: number;
  /** The steps of the row: several if they are folded. */
  steps: readonly Step[];
}

export interface Axis {
  from: number;
  to: number;
  /** Times of the grid lines. */
  ticks: number[];
}

/** `server-1/install` as `server-1 install`. */
export function stepLabel(key: string): string {
  return key.replaceAll("/", " ").replaceAll("_", " ");
}

function time(at: string | null | undefined): number | undefined {
  return at ? Date.parse(at) : undefined;
}

function rowOf(step: Step): Row {
  const from = time(step.started_at);
  return {
    key: step.key,
    label: stepLabel(step.key),
    state: step.state,
    from,
    to: time(step.ended_at),
    attempts: step.attempts,
    steps: [step],
  };
}

/** A row for each step. In a long operation, neighbours of one phase that succeeded or have not begun become one row. */
export function rowsOf(steps: readonly Step[]): Row[] {
  const rows = steps.map(rowOf);
  if (rows.length <= ROWS_MAX) return rows;
  const folded: Row[] = [];
  for (const row of rows) {
    const last = folded.at(-1);
    if (last !== undefined && folds(last, row)) folded[folded.length - 1] = fold(last, row);
    else folded.push(row);
  }
  return folded;
}

const FOLDED = new Set<StepState>(["succeeded", "pending", "skipped"]);

function folds(a: Row, b: Row): boolean {
  return a.state === b.state && FOLDED.has(a.state) && a.steps[0]?.phase === b.steps[0]?.phase;
}

function fold(a: Row, b: Row): Row {
  const steps = [...a.steps, ...b.steps];
  return {
    ...a,
    label: `${stepLabel(a.steps[0]?.phase ?? "")}: ${steps.length} steps`,
    from: least(a.from, b.from),
    to: greatest(a.to, b.to),
    attempts: Math.max(a.attempts, b.attempts),
    steps,
  };
}

function least(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? (a ?? b) : Math.min(a, b);
}

function greatest(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? (a ?? b) : Math.max(a, b);
}

/** The time axis of an operation: from its `begin` to its end, or to `now` while it runs. */
export function axisOf(begin: number, end: number | undefined, now: number): Axis {
  const to = Math.max(end ?? now, begin + 1_000);
  const unit = tickUnit(to - begin);
  const ticks: number[] = [];
  for (let at = begin; at <= to; at += unit) ticks.push(at);
  return { from: begin, to, ticks };
}

const UNITS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400];

/** The smallest round unit with at most five lines on the axis. */
function tickUnit(length: number): number {
  const seconds = UNITS.find((unit) => length / (unit * 1_000) <= 5);
  return (seconds ?? Math.ceil(length / 5_000)) * 1_000;
}

/** Where a row's bar begins and how long it is, in parts of the axis; `undefined` for a step that has not begun. */
export function barOf(row: Row, axis: Axis, now: number): { start: number; length: number } | undefined {
  if (row.from === undefined) return undefined;
  const length = axis.to - axis.from;
  const start = clamp((row.from - axis.from) / length);
  const end = clamp(((row.to ?? Math.max(now, row.from)) - axis.from) / length);
  return { start, length: Math.max(0, end - start) };
}

function clamp(part: number): number {
  return Math.max(0, Math.min(1, part));
}

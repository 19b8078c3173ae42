//! What the main thread of a page did in each frame, by a trace of Chromium.

import { readFileSync } from "node:fs";

interface TraceEvent {
  name: string;
  ph: string;
  ts: number;
  dur?: number;
  /** Time on the processor: a busy machine does not count. */
  tdur?: number;
  pid: number;
  tid: number;
  args?: { name?: string };
}

/** What the main thread works at, by the names of trace events. What no event names is `other`. */
const PARTS: Record<string, string> = {
  EventDispatch: "script",
  FireAnimationFrame: "script",
  FunctionCall: "script",
  RunMicrotasks: "script",
  TimerFire: "script",
  MinorGC: "garbage",
  MajorGC: "garbage",
  UpdateLayoutTree: "style",
  Layout: "layout",
  PrePaint: "pre-paint",
  Paint: "paint",
  Layerize: "layers",
  Commit: "commit",
};

/** Milliseconds of each part. */
export type Work = Record<string, number>;

export function total(work: Work): number {
  return Object.values(work).reduce((all, ms) => all + ms, 0);
}

/** The parts of the mean of frames, largest first. */
export function partsOf(frames: readonly Work[]): string {
  const mean: Work = {};
  for (const frame of frames)
    for (const [part, ms] of Object.entries(frame)) mean[part] = (mean[part] ?? 0) + ms / frames.length;
  const sorted = Object.entries(mean).sort(([, a], [, b]) => b - a);
  return sorted.map(([part, ms]) => `${part} ${ms.toFixed(1)} ms`).join(", ");
}

/** The work of the page's main thread between the beginnings of frames. */
export function framesOf(file: string): Work[] {
  const { traceEvents } = JSON.parse(readFileSync(file, "utf8")) as { traceEvents: TraceEvent[] };
  const mains = traceEvents.filter(({ name, args }) => name === "thread_name" && args?.name === "CrRendererMain");
  const counts = mains.map(({ pid, tid }) => {
    const own = traceEvents.filter((event) => event.pid === pid && event.tid === tid);
    return { own, frames: own.filter(({ name }) => name === "FireAnimationFrame").map(({ ts }) => ts) };
  });
  // The page that scrolled has the most frames; a new tab has a renderer of its own.
  const busiest = counts.sort((a, b) => b.frames.length - a.frames.length)[0];
  if (busiest === undefined) return [];
  const pieces = piecesOf(busiest.own.filter(({ ph }) => ph === "X"));
  const frames = busiest.frames.sort((a, b) => a - b);
  return frames.slice(1).map((end, index) => {
    const begin = frames[index] ?? end;
    const work: Work = {};
    for (const { began, part, ms } of pieces) if (began >= begin && began < end) work[part] = (work[part] ?? 0) + ms;
    return work;
  });
}

interface Piece {
  /** When the task began that it is a part of. */
  began: number;
  part: string;
  ms: number;
}

/** The tasks of a thread, divided: events are inside each other, and the time of each is without that of the ones inside it. */
function piecesOf(events: readonly TraceEvent[]): Piece[] {
  const isTask = ({ name }: TraceEvent): boolean => name.endsWith("RunTask");
  const known = events.filter((event) => isTask(event) || PARTS[event.name] !== undefined);
  const sorted = known.sort((a, b) => a.ts - b.ts || (b.dur ?? 0) - (a.dur ?? 0));
  const pieces: Piece[] = [];
  const open: { end: number; piece: Piece }[] = [];
  for (const event of sorted) {
    const { ts, dur = 0, tdur = dur } = event;
    while ((open.at(-1)?.end ?? Infinity) <= ts) open.pop();
    const [task, outer] = [open[0], open.at(-1)];
    // Work outside of tasks is not counted.
    if (task === undefined && !isTask(event)) continue;
    const piece = { began: task?.piece.began ?? ts, part: PARTS[event.name] ?? "other", ms: tdur / 1_000 };
    if (outer !== undefined) outer.piece.ms -= piece.ms;
    pieces.push(piece);
    open.push({ end: ts + dur, piece });
  }
  return pieces;
}

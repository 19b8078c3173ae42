//! The strip that shows the whole fleet at a glance: one mark a node, or one for several neighbours in a large fleet.
//!
//! Each condition has a shape of its own besides its colour. A strip is a few paths, however many nodes there are.

import { type Condition, CONDITIONS } from "./condition";

export const CELL = 12;
/** A strip never has more rows than this: beyond, a mark stands for several nodes. */
export const ROWS_MAX = 4;
const MARK = 8;

export interface StripLayout {
  columns: number;
  rows: number;
  /** Nodes a mark stands for. */
  each: number;
  height: number;
}

export function layoutOf(nodes: number, width: number): StripLayout {
  const columns = Math.max(1, Math.floor(width / CELL));
  const each = Math.max(1, Math.ceil(nodes / (columns * ROWS_MAX)));
  const rows = Math.max(1, Math.ceil(Math.ceil(nodes / each) / columns));
  return { columns, rows, each, height: rows * CELL };
}

/** The worst condition of the nodes from `from` to before `to`. */
export function worst(conditions: readonly Condition[], from: number, to: number): Condition {
  const some = conditions.slice(from, to);
  return CONDITIONS.find((condition) => some.includes(condition)) ?? "unused";
}

/** One path for each condition. */
export function pathsOf(conditions: readonly Condition[], layout: StripLayout): Record<Condition, string> {
  const paths: Record<Condition, string> = { unreachable: "", attention: "", well: "", unused: "" };
  for (let from = 0; from < conditions.length; from += layout.each) {
    const mark = from / layout.each;
    const condition = worst(conditions, from, from + layout.each);
    const [x, y] = [(mark % layout.columns) * CELL + 2, Math.floor(mark / layout.columns) * CELL + 2];
    paths[condition] += markAt(condition, x, y);
  }
  return paths;
}

function markAt(condition: Condition, x: number, y: number): string {
  switch (condition) {
    case "unreachable":
      // A cross.
      return `M${x} ${y + 1.5}l1.5-1.5 2.5 2.5 2.5-2.5 1.5 1.5-2.5 2.5 2.5 2.5-1.5 1.5-2.5-2.5-2.5 2.5-1.5-1.5 2.5-2.5z`;
    case "attention":
      // A triangle.
      return `M${x} ${y + MARK}h${MARK}l-${MARK / 2}-${MARK}z`;
    case "well":
      return `M${x} ${y}h${MARK}v${MARK}h-${MARK}z`;
    case "unused":
      // A dash.
      return `M${x} ${y + 3}h${MARK}v2h-${MARK}z`;
  }
}

/** The nodes below a point of the strip, as the first index and the one after the last. */
export function nodesAt(
  x: number,
  y: number,
  nodes: number,
  layout: StripLayout,
): { from: number; to: number } | undefined {
  const [column, row] = [Math.floor(x / CELL), Math.floor(y / CELL)];
  if (x < 0 || y < 0 || column >= layout.columns) return undefined;
  const from = (row * layout.columns + column) * layout.each;
  return from < nodes ? { from, to: Math.min(nodes, from + layout.each) } : undefined;
}

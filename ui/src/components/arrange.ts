//! Puts the row elements of a virtual table into the order of their rows, for the tab key and for readers of the screen.

import type { Slice } from "./rows";

/** Moves as few rows as possible, and not the one with the focus: an element that is moved loses it. */
export function arrange(body: HTMLTableSectionElement, focused: HTMLTableRowElement | null | undefined): void {
  const rows = [...body.rows];
  const indexOf = (row: HTMLTableRowElement): number => Number(row.dataset["row"]);
  const place = focused ? rows.indexOf(focused) : -1;
  const { from, to } = ascendingRun(rows.map(indexOf), place < 0 ? undefined : place);
  const staying = new Set(rows.slice(from, to));
  if (staying.size === rows.length) return;
  let next: Element | null = null;
  for (const row of rows.sort((a, b) => indexOf(b) - indexOf(a))) {
    if (!staying.has(row)) body.insertBefore(row, next);
    next = row;
  }
}

/** The longest part of a list of numbers that ascends, or the one that has the number at the place `held`. */
export function ascendingRun(numbers: readonly number[], held?: number): Slice {
  let best: Slice = { from: 0, to: 0 };
  let from = 0;
  for (let to = 1; to <= numbers.length; to += 1) {
    if (to < numbers.length && (numbers[to] ?? 0) > (numbers[to - 1] ?? 0)) continue;
    const isBetter = held === undefined ? to - from > best.to - best.from : from <= held && held < to;
    if (isBetter) best = { from, to };
    from = to;
  }
  return best;
}

//! Which rows of a long table exist in the page, how a table is sorted, and where the arrow keys go.

import { compareNames } from "../text/order";

/** Up to this many rows all of them are in the page; longer tables are virtual. */
export const VIRTUAL_FROM = 200;
/** Rows in the page above and below the visible ones, so that the next frames of a scroll need no new ones. */
const OVERSCAN = 12;
/** The largest number of rows of a virtual table in the page. */
export const RENDERED_MAX = 90;

export interface Slice {
  /** First rendered row, and the one after the last. */
  from: number;
  to: number;
}

/** The rows that a window of `height` shows whose upper edge is `top` below the first row. */
export function visibleRows(count: number, rowHeight: number, top: number, height: number): Slice {
  if (count <= VIRTUAL_FROM) return { from: 0, to: count };
  const wanted = Math.min(RENDERED_MAX, Math.ceil(height / rowHeight) + 2 * OVERSCAN);
  const first = Math.floor(top / rowHeight) - OVERSCAN;
  const from = Math.max(0, Math.min(count - wanted, first));
  return { from, to: Math.min(count, from + wanted) };
}

export interface Sort {
  column: string;
  descending: boolean;
}

export type SortValue = string | number | null | undefined;

/** Sorted rows; those without a value come last. Names are ordered as people do: `gpu-2` before `gpu-10`. */
export function sorted<T>(rows: readonly T[], value: (row: T) => SortValue, descending: boolean): T[] {
  const sign = descending ? -1 : 1;
  const keyed = rows.map((row, index) => ({ row, index, key: value(row) }));
  keyed.sort((a, b) => compare(a.key, b.key, sign) || a.index - b.index);
  return keyed.map(({ row }) => row);
}

function compare(a: SortValue, b: SortValue, sign: number): number {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  if (typeof a === "number" && typeof b === "number") return (a - b) * sign;
  return compareNames(String(a), String(b)) * sign;
}

/** The sort after a click on a column's heading: ascending, descending, as the API lists it. */
export function nextSort(sort: Sort | undefined, column: string): Sort | undefined {
  if (sort?.column !== column) return { column, descending: false };
  return sort.descending ? undefined : { column, descending: true };
}

/** The row that a key moves to, or `undefined` for other keys. */
export function rowAfterKey(key: string, row: number, count: number, page = 10): number | undefined {
  const moves: Record<string, number> = {
    ArrowDown: row + 1,
    ArrowUp: row - 1,
    PageDown: row + page,
    PageUp: row - page,
    Home: 0,
    End: count - 1,
  };
  const to = moves[key];
  return to === undefined ? undefined : Math.max(0, Math.min(count - 1, to));
}

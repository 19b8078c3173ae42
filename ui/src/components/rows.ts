//! Which rows of a long table exist in the page and which elements show them, how a table is sorted, and where the arrow keys go.

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

/** A row in the page. */
export interface Line<T> {
  /** The row element that shows it. */
  slot: number;
  row: T;
  /** Its place in the whole list. */
  index: number;
}

export interface Placing<T> {
  /** Identity of a row, which stays when the API lists it with other values. */
  id: (row: T) => string;
  /** The slot in which the focus is. */
  held?: number | undefined;
  /**
   * Uses the elements of rows that leave the page for those that enter it, and lists the lines by their slots, so that no element is made or
   * moved. Without, every row that enters gets an element of its own, and the lines have the order of the list.
   */
  reuse: boolean;
}

/**
 * Decides which row element shows which row.
 *
 * Guarantees: a row keeps its element while it is in the page, whatever happens to the rows around it; the row that has the focus stays in
 * the page while it is in the list; an element with the focus never shows another row.
 */
export class Slots<T> {
  #lines: Line<T>[] = [];
  #unused = 0;

  /** The rows of a slice, and the one that has the focus. A line that did not change is the same object as before. */
  place(rows: readonly T[], slice: Slice, { id, held, reuse }: Placing<T>): Line<T>[] {
    const wanted = this.#wanted(rows, slice, id, held);
    const leaving = new Map(this.#lines.map((line) => [id(line.row), line]));
    const olds = wanted.map((index) => {
      const key = id(rows[index] as T);
      const old = leaving.get(key);
      leaving.delete(key);
      return old;
    });
    // A row that was removed while it had the focus takes its element along.
    const free = reuse ? [...leaving.values()].map(({ slot }) => slot).filter((slot) => slot !== held) : [];
    this.#lines = wanted.map((index, place) => {
      const [row, old] = [rows[index] as T, olds[place]];
      if (old !== undefined) return old.row === row && old.index === index ? old : { slot: old.slot, row, index };
      return { slot: free.shift() ?? this.#unused++, row, index };
    });
    if (reuse) this.#lines.sort((a, b) => a.slot - b.slot);
    return this.#lines;
  }

  #wanted(rows: readonly T[], { from, to }: Slice, id: (row: T) => string, held: number | undefined): number[] {
    const indexes = Array.from({ length: to - from }, (_, place) => from + place);
    const holder = this.#lines.find((line) => line.slot === held);
    if (holder === undefined) return indexes;
    const key = id(holder.row);
    const isInPlace = holder.index < rows.length && id(rows[holder.index] as T) === key;
    const index = isInPlace ? holder.index : rows.findIndex((row) => id(row) === key);
    if (index >= 0 && index < from) return [index, ...indexes];
    return index < to ? indexes : [...indexes, index];
  }
}

/** Columns as tracks of a grid that is as wide as the table. */
export function tracksOf(columns: readonly { width?: string }[]): string {
  const hasRest = columns.some(({ width }) => width === undefined);
  return columns
    .map(({ width = "1fr" }) => {
      // Without a column for the rest, all shares grow.
      const share = hasRest ? width : width.replace("%", "fr");
      return share.endsWith("fr") ? `minmax(0, ${share})` : share;
    })
    .join(" ");
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

/** The row that a key moves to, or `undefined` for other keys. From 4.5, which is between two rows, it moves to row 4 or 5. */
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
  if (to === undefined) return undefined;
  return Math.max(0, Math.min(count - 1, to > row ? Math.floor(to) : Math.ceil(to)));
}

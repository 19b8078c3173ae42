//! Which lines of a long log are in the page, when lines have different heights.

/** Lines above and below the visible ones. */
const OVERSCAN = 15;
/** The largest number of lines in the page. */
export const RENDERED_MAX = 150;

/** Where each line begins, and at the end the height of all of them. */
export function offsetsOf(count: number, height: (index: number) => number): Float64Array {
  const offsets = new Float64Array(count + 1);
  for (let index = 0; index < count; index += 1) offsets[index + 1] = (offsets[index] ?? 0) + height(index);
  return offsets;
}

/** Index of the line at a position. */
export function lineAt(offsets: Float64Array, position: number): number {
  let low = 0;
  let high = Math.max(0, offsets.length - 2);
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((offsets[middle] ?? 0) <= position) low = middle;
    else high = middle - 1;
  }
  return low;
}

export interface Slice {
  from: number;
  to: number;
}

/** The lines that a view of `height` shows whose upper edge is at `top`. */
export function sliceOf(offsets: Float64Array, top: number, height: number): Slice {
  const count = offsets.length - 1;
  if (count <= 0) return { from: 0, to: 0 };
  const from = Math.max(0, lineAt(offsets, top) - OVERSCAN);
  const to = Math.min(count, lineAt(offsets, top + height) + 1 + OVERSCAN);
  return { from, to: Math.min(to, from + RENDERED_MAX) };
}

/** Rows that a text takes at so many columns: a guess until the line is drawn and measured. */
export function rowsGuessed(characters: number, columns: number): number {
  return Math.max(1, Math.ceil(characters / Math.max(1, columns)));
}

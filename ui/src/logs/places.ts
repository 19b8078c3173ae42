//! Finds lines by their numbers, which grow from line to line, with gaps in a filtered log.

/** Index of the first line whose number is at least `number`. */
export function indexOf(lines: readonly { number: number }[], number: number): number {
  let low = 0;
  let high = lines.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((lines[middle]?.number ?? Infinity) < number) low = middle + 1;
    else high = middle;
  }
  return low;
}

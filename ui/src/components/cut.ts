//! Finds the cells of a virtual table whose text does not fit, so that those alone are cut.
//!
//! A browser keeps and draws a clip of its own for every cell that may be cut. In a long table these cost more than the text, and nearly all
//! of them cut nothing.

import type { Line } from "./rows";

export class CutCells<T> {
  readonly #measured = new Map<number, Line<T>>();
  #body: HTMLTableSectionElement | undefined;
  #width = 0;

  /** Marks the cells of rows that changed since the last call, of all rows of another table or width, by the attribute `data-cut`. */
  mark(body: HTMLTableSectionElement, lines: readonly Line<T>[], width: number): void {
    if (body !== this.#body || width !== this.#width) this.#measured.clear();
    [this.#body, this.#width] = [body, width];
    const changed = lines.filter((line) => this.#measured.get(line.slot) !== line);
    const cells = changed.flatMap(({ slot }) => {
      const row = body.querySelector<HTMLTableRowElement>(`tr[data-slot="${slot}"]`);
      return row === null ? [] : [...row.cells];
    });
    for (const line of changed) this.#measured.set(line.slot, line);
    // First all are measured, then all are marked: a mark in between would have the next one laid out again.
    const marks = cells.map((cell) => cell.scrollWidth > cell.clientWidth);
    cells.forEach((cell, place) => cell.toggleAttribute("data-cut", marks[place]));
  }
}

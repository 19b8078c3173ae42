//! The lines in memory: the newest of what was read, at most so many and so much text.

import type { LogEntry } from "./entry";

export const LINES_MAX = 20_000;
export const CHARACTERS_MAX = 8_000_000;

export interface Limits {
  lines: number;
  characters: number;
}

export const WINDOW: Limits = { lines: LINES_MAX, characters: CHARACTERS_MAX };

/** Index of the first line to keep, so that the rest is within the limits. The last line is always kept. */
export function firstKept(lines: readonly LogEntry[], limits: Limits): number {
  let characters = 0;
  let first = lines.length;
  while (first > 0 && lines.length - first < limits.lines) {
    characters += lines[first - 1]?.text.length ?? 0;
    if (characters > limits.characters && first < lines.length) break;
    first -= 1;
  }
  return first;
}

/** The lines with further ones at the end, without those that are beyond the limits. */
export function appended(
  lines: readonly LogEntry[],
  added: readonly LogEntry[],
  limits: Limits = WINDOW,
): { lines: readonly LogEntry[]; dropped: number } {
  const all = [...lines, ...added];
  const first = firstKept(all, limits);
  return { lines: first === 0 ? all : all.slice(first), dropped: first };
}

/** Finds the lines that contain a text. Under a stream of lines only new ones are looked at. */
export class Search {
  #needle = "";
  #next = 0;
  #hits: LogEntry[] = [];

  /** The lines with the needle, which is in lower case. The same lines and needle return the same array. */
  find(lines: readonly LogEntry[], needle: string): readonly LogEntry[] {
    const first = lines[0]?.number ?? 0;
    if (needle !== this.#needle || (lines.at(-1)?.number ?? -1) + 1 < this.#next) {
      this.#needle = needle;
      this.#next = 0;
      this.#hits = [];
    }
    if (needle === "") return [];
    const start = Math.max(0, this.#next - first);
    const fresh = lines.slice(start).filter((line) => contains(line, needle));
    const dropped = this.#hits.findIndex((line) => line.number >= first);
    const kept = dropped < 0 ? [] : this.#hits.slice(dropped);
    if (fresh.length > 0 || kept.length !== this.#hits.length) this.#hits = [...kept, ...fresh];
    this.#next = (lines.at(-1)?.number ?? -1) + 1;
    return this.#hits;
  }
}

function contains(line: LogEntry, needle: string): boolean {
  return line.text.toLowerCase().includes(needle) || line.who.toLowerCase().includes(needle);
}

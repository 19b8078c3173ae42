//! Entries that are added to a list while a person looks at it: their rows are marked for a while, and a sentence names them.
//!
//! Guarantees: however many entries arrive, readers of the screen hear at most one sentence in [`PAUSE_MS`], the first of them at once.

import { counted, oneLine, sentenceCase } from "../text/plain";
import { browserTiming, type Timing } from "./reader";

/** How long a row stays marked and a sentence shown: time to look up from something else. */
export const MARKED_MS = 8_000;
/** A screen reader needs about this long for a sentence. */
export const PAUSE_MS = 5_000;

export interface Arrival {
  id: string;
  /** What a person calls the entry. */
  name: string;
}

/** A sentence about the entries of one list. */
export interface Announcement {
  text: string;
  /** The name of a single entry, which a person made up. */
  name?: string;
}

export class Arrivals {
  /** The ids of the marked rows. */
  marked = $state.raw<ReadonlySet<string>>(new Set());
  /** The sentences that are shown now. */
  said = $state.raw<readonly Announcement[]>([]);
  /** Grows with every arrival. Nothing reactive depends on it. */
  count = 0;
  /** What arrived since something was said, by what it is. */
  readonly #unsaid = new Map<string, Arrival[]>();
  #isWaiting = false;
  #quietUntil = -Infinity;
  #cancelEnd: () => void = () => undefined;

  constructor(private readonly timing: Pick<Timing, "after" | "now"> = browserTiming) {}

  /** Marks and announces entries. `what` is one of them in words, for example `service account`. */
  add(what: string, entries: readonly Arrival[]): void {
    if (entries.length === 0) return;
    this.count += 1;
    this.#mark(entries.map(({ id }) => id));
    this.#unsaid.set(what, [...(this.#unsaid.get(what) ?? []), ...entries]);
    if (this.#isWaiting) return;
    const wait = this.#quietUntil - this.timing.now();
    this.#isWaiting = wait > 0;
    if (this.#isWaiting) this.timing.after(wait, () => this.#say());
    else this.#say();
  }

  #mark(ids: readonly string[]): void {
    this.marked = new Set([...this.marked, ...ids]);
    this.timing.after(MARKED_MS, () => {
      const left = new Set(this.marked);
      ids.forEach((id) => left.delete(id));
      this.marked = left;
    });
  }

  #say(): void {
    this.said = [...this.#unsaid].map(([what, entries]) => announcementOf(what, entries));
    this.#unsaid.clear();
    this.#isWaiting = false;
    this.#quietUntil = this.timing.now() + PAUSE_MS;
    this.#cancelEnd();
    this.#cancelEnd = this.timing.after(MARKED_MS, () => (this.said = []));
  }
}

function announcementOf(what: string, entries: readonly Arrival[]): Announcement {
  const [first] = entries;
  if (first === undefined || entries.length > 1) return { text: counted(entries.length, `new ${what}`) };
  return { text: sentenceCase(`new ${what}`), name: oneLine(first.name) };
}

export const arrivals = new Arrivals();

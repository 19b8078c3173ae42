//! Entries that are added to a list while a person looks at it: their rows are marked for a while, and a sentence names them.
//!
//! Guarantees: however many entries arrive, readers of the screen hear at most one sentence in [`PAUSE_MS`], the first of them at once. While
//! a modal dialog is open, they would not hear it: its sentence follows when the dialog closes.

import { counted, oneLine, sentenceCase } from "../text/plain";
import { browserTiming, type Timing } from "./reader";

/** How long a row stays marked and a sentence shown: time to look up from something else. */
export const MARKED_MS = 8_000;
/** A screen reader needs about this long for a sentence. */
export const PAUSE_MS = 5_000;
/** After a dialog, it first says where the focus is. */
export const AFTER_DIALOG_MS = 500;

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
  shown = $state.raw<readonly Announcement[]>([]);
  /** Grows with every arrival. Nothing reactive depends on it. */
  count = 0;
  /** What arrived since the last sentence, by what it is. */
  readonly #pending = new Map<string, { first: Arrival; count: number }>();
  #isWaiting = false;
  /** How many modal dialogs are open. */
  #held = 0;
  #quietUntil = -Infinity;
  #cancelEnd: () => void = () => undefined;

  constructor(private readonly timing: Pick<Timing, "after" | "now"> = browserTiming) {}

  /** Marks and announces entries. `what` is one of them in words, for example `service account`. */
  add(what: string, entries: readonly Arrival[]): void {
    const [first] = entries;
    if (first === undefined) return;
    this.count += 1;
    this.#mark(entries.map(({ id }) => id));
    const before = this.#pending.get(what);
    this.#pending.set(what, { first: before?.first ?? first, count: (before?.count ?? 0) + entries.length });
    this.#announceInTime();
  }

  /** Keeps sentences until the returned function is called: a modal dialog takes everything else from readers of the screen. */
  hold(): () => void {
    this.#held += 1;
    return () => {
      this.#held -= 1;
      this.#quietUntil = Math.max(this.#quietUntil, this.timing.now() + AFTER_DIALOG_MS);
      this.#announceInTime();
    };
  }

  /** Forgets the sentences about a page that was left. Marks stay: the ids of rows are the same on every page. */
  leave(): void {
    this.#pending.clear();
    this.#cancelEnd();
    this.shown = [];
  }

  #announceInTime(): void {
    if (this.#isWaiting || this.#held > 0 || this.#pending.size === 0) return;
    const wait = this.#quietUntil - this.timing.now();
    this.#isWaiting = wait > 0;
    if (this.#isWaiting) this.timing.after(wait, () => this.#waited());
    else this.#announce();
  }

  #waited(): void {
    this.#isWaiting = false;
    this.#announceInTime();
  }

  #mark(ids: readonly string[]): void {
    this.marked = new Set([...this.marked, ...ids]);
    this.timing.after(MARKED_MS, () => {
      const left = new Set(this.marked);
      ids.forEach((id) => left.delete(id));
      this.marked = left;
    });
  }

  #announce(): void {
    this.shown = [...this.#pending].map(([what, { first, count }]) => announcementOf(what, first, count));
    this.#pending.clear();
    this.#quietUntil = this.timing.now() + PAUSE_MS;
    this.#cancelEnd();
    this.#cancelEnd = this.timing.after(MARKED_MS, () => (this.shown = []));
  }
}

function announcementOf(what: string, first: Arrival, count: number): Announcement {
  if (count > 1) return { text: counted(count, `new ${what}`) };
  return { text: sentenceCase(`new ${what}`), name: oneLine(first.name) };
}

export const arrivals = new Arrivals();

//! Reads something again when events touch it.
//!
//! Guarantees: at most one reading runs; all touches of a batch of events are one reading; a reading leaves the browser and the server twice
//! the time that it takes; few events are followed at once, and under a lasting flood readings are paced. A hidden page reads nothing.

import { ProblemError } from "../api/problem";
import { type Touch, Touched } from "./touches";

export interface Source<T> {
  /** Says what is read. A source with another key replaces the value instead of updating it. */
  key: string;
  /** Least time between two readings, for what need not be exact to the moment. */
  pause?: number | undefined;
  /** Reads everything again this long after a reading, for what changes without an event. */
  every?: number | undefined;
  load(signal: AbortSignal): Promise<T>;
  /** Reads only these entries again. Without it, every touch reads everything. */
  patch?(value: T, ids: string[], signal: AbortSignal): Promise<T>;
}

export interface Sink<T> {
  loaded(value: T): void;
  failed(thrown: unknown): void;
  loading(loading: boolean): void;
}

/** More touched entries than this are cheaper to read as a whole. */
const PATCH_MAX = 8;
/** Under a flood, readings of everything are this far apart. */
const ALL_MS = 150;
/** What one entry takes of that time. */
const ENTRY_MS = 50;
/** How far readings may be ahead of these paces: events come in groups, and a person waits for the first ones. */
const AHEAD_MS = 450;
const PAUSE_MAX_MS = 5_000;
const RETRY_MS = 5_000;

export interface Timing {
  /** Runs something after all touches of a batch, once the page is seen. */
  soon(run: () => void): void;
  after(ms: number, run: () => void): () => void;
  now(): number;
}

export const browserTiming: Timing = {
  // A visible page need not wait for a frame: the answer arrives for the next one. A hidden page has no frames.
  soon: (run) => (document.hidden ? void requestAnimationFrame(run) : queueMicrotask(run)),
  after: (ms, run) => {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
  now: () => performance.now(),
};

export class Reader<T> {
  readonly #touched = new Touched();
  readonly #abort = new AbortController();
  #value: { is: T } | undefined;
  #isScheduled = false;
  #isReading = false;
  #startedAt = -Infinity;
  #notBefore = -Infinity;
  /** When the next reading is due if all keep the pace. */
  #paced = -Infinity;
  /** Ends the wait for a reading that no event asks for. */
  #cancelNext: () => void = () => undefined;

  constructor(
    private readonly source: Source<T>,
    private readonly sink: Sink<T>,
    private readonly timing: Timing = browserTiming,
  ) {}

  start(): void {
    this.#touched.add(true);
    void this.#read();
  }

  stop(): void {
    this.#abort.abort();
    this.#cancelNext();
  }

  touch(touch: Touch): void {
    this.#touched.add(touch);
    this.#schedule();
  }

  /** Reads everything again unless the last reading began after `moment`, by [`Timing.now`]. */
  refreshSince(moment: number): void {
    if (this.#startedAt < moment || this.#value === undefined) this.touch(true);
  }

  #schedule(): void {
    if (this.#isScheduled || this.#isReading || this.#touched.isEmpty || this.#abort.signal.aborted) return;
    this.#isScheduled = true;
    const wait = this.#notBefore - this.timing.now();
    const run = (): void => {
      this.#isScheduled = false;
      void this.#read();
    };
    if (wait > 0) this.timing.after(wait, () => this.timing.soon(run));
    else this.timing.soon(run);
  }

  async #read(): Promise<void> {
    const { signal } = this.#abort;
    if (this.#isReading || signal.aborted) return;
    this.#cancelNext();
    this.#isReading = true;
    this.#startedAt = this.timing.now();
    const ids = this.#touched.take(PATCH_MAX);
    this.sink.loading(true);
    try {
      const value = await this.#request(ids, signal);
      if (signal.aborted) return;
      this.#value = { is: value };
      this.sink.loaded(value);
      const { every } = this.source;
      if (every !== undefined) this.#cancelNext = this.timing.after(every, () => this.touch(true));
    } catch (thrown) {
      if (signal.aborted) return;
      this.sink.failed(thrown);
      // What is refused stays refused: an event, a reconnected stream or a person asks again.
      if (!isLasting(thrown)) this.#cancelNext = this.timing.after(RETRY_MS, () => this.touch(true));
    } finally {
      this.#isReading = false;
      this.#pause(ids);
      if (!signal.aborted) this.sink.loading(false);
      this.#schedule();
    }
  }

  /** Decides when the next reading may begin. */
  #pause(ids: string[] | undefined): void {
    const now = this.timing.now();
    const pause = Math.max(this.source.pause ?? 0, 2 * (now - this.#startedAt));
    this.#paced = Math.max(this.#paced, this.#startedAt) + Math.min(ALL_MS, (ids?.length ?? Infinity) * ENTRY_MS);
    this.#notBefore = Math.max(now + Math.min(PAUSE_MAX_MS, pause), this.#paced - AHEAD_MS);
  }

  #request(ids: string[] | undefined, signal: AbortSignal): Promise<T> {
    const { patch } = this.source;
    if (ids === undefined || patch === undefined || this.#value === undefined) return this.source.load(signal);
    return patch.call(this.source, this.#value.is, ids, signal);
  }
}

/** The statuses of what is not there, and of what the caller may not see. */
const LASTING = new Set([403, 404]);

function isLasting(thrown: unknown): boolean {
  return thrown instanceof ProblemError && LASTING.has(thrown.problem.status);
}

//! Reads logs into a bounded window.
//!
//! Guarantees: the window and what waits for it are bounded; a page that does not draw (a tab in the background) is read no faster than it
//! draws; after a broken connection no line comes twice.

import { ProblemError, problemOf } from "../api/problem";
import type { Problem, WorkloadLogLine } from "../api/types";
import { entryOf, type LogEntry } from "./entry";
import { LogCursor, type LogSelection, readLogs } from "./request";
import { appended, type Limits, WINDOW } from "./window";

/**
 * `reading`: up to the present; `live`: new lines come by themselves; `more`: there are further lines, read by [`LogFeed.more`]; `held`: the
 * window is full and the page asked to keep it; `lost`: the connection broke and is tried again; `ended`: all lines were read.
 */
export type FeedState = "idle" | "reading" | "live" | "more" | "held" | "lost" | "ended" | "failed";

/** Lines that are read at once when there is no end in sight. */
export const CHUNK = 5_000;
/** Lines that may wait for the next frame. */
const PENDING_MAX = 2_000;
const RETRY_MS = 2_000;
/** Frames of a page in the background. */
const HIDDEN_MS = 500;

export class LogFeed {
  lines = $state.raw<readonly LogEntry[]>([]);
  /** Lines that were read and are no longer in the window. */
  dropped = $state(0);
  /** How many lines came since the feed began. */
  received = $state(0);
  state = $state<FeedState>("idle");
  problem = $state.raw<Problem>();
  /** Keeps the first lines of the window: when it is full, reading stops instead of dropping them. */
  hold = false;
  #selection: LogSelection | undefined;
  #cursor = new LogCursor();
  #abort = new AbortController();
  #pending: LogEntry[] = [];
  #next = 0;
  #frame: Promise<void> | undefined;
  readonly #keeps: (line: WorkloadLogLine) => boolean;

  /** A feed of those lines for which `keeps` returns true, of which it keeps the last ones. */
  constructor(
    keeps: (line: WorkloadLogLine) => boolean = () => true,
    private readonly limits: Limits = WINDOW,
  ) {
    this.#keeps = keeps;
  }

  /** Empties the window and reads a selection. One without `follow` and `tail` is read in chunks. */
  start(selection: LogSelection): void {
    this.stop();
    this.lines = [];
    this.dropped = 0;
    this.received = 0;
    this.#selection = selection;
    this.#cursor = new LogCursor();
    void this.#run(selection);
  }

  /** Reads the next lines after a chunk, or those since a selection without `follow` ended. */
  more(): void {
    if (this.#selection === undefined || (this.state !== "more" && this.state !== "ended")) return;
    void this.#run(this.#selection);
  }

  stop(): void {
    this.#abort.abort();
    this.#pending = [];
    this.state = "idle";
    this.problem = undefined;
  }

  async #run(selection: LogSelection): Promise<void> {
    const abort = (this.#abort = new AbortController());
    this.problem = undefined;
    while (!abort.signal.aborted) {
      this.state = "reading";
      try {
        if (await this.#read(selection, abort)) return;
      } catch (thrown) {
        if (abort.signal.aborted) return;
        this.problem = problemOf(thrown);
        const isLasting = thrown instanceof ProblemError && !thrown.mayHaveRun && thrown.problem.status !== 429;
        this.state = isLasting ? "failed" : "lost";
        if (isLasting) return;
      }
      await pause(RETRY_MS, abort.signal);
    }
  }

  /** Returns true if reading is over. */
  async #read(selection: LogSelection, abort: AbortController): Promise<boolean> {
    const isChunked = !selection.follow && selection.tail === undefined;
    let count = 0;
    for await (const lines of readLogs(selection, this.#cursor, abort.signal)) {
      if (abort.signal.aborted) return true;
      this.problem = undefined;
      const kept = lines.filter(this.#keeps);
      count += lines.length;
      const hasRoom = await this.#take(kept, abort.signal);
      if (abort.signal.aborted) return true;
      if (!hasRoom) return this.#pauseReading("held", abort);
      if (selection.follow) this.state = "live";
      if (isChunked && count >= CHUNK) return this.#pauseReading("more", abort);
    }
    await this.#frame;
    if (abort.signal.aborted) return true;
    // A followed stream ends with the connection, never by itself.
    this.state = selection.follow ? "lost" : "ended";
    return !selection.follow;
  }

  #pauseReading(state: FeedState, abort: AbortController): true {
    this.state = state;
    abort.abort();
    return true;
  }

  /** Adds lines with the next frame. Returns false if the window is full and must be kept. */
  async #take(lines: readonly WorkloadLogLine[], signal: AbortSignal): Promise<boolean> {
    for (const line of lines) {
      this.#pending.push(entryOf(line, this.#next));
      this.#next += 1;
    }
    if (this.hold && appended(this.lines, this.#pending, this.limits).dropped > 0) return false;
    this.#frame ??= this.#draw(signal);
    if (this.#pending.length >= PENDING_MAX) await this.#frame;
    return true;
  }

  async #draw(signal: AbortSignal): Promise<void> {
    await frame();
    this.#frame = undefined;
    if (signal.aborted && this.#pending.length === 0) return;
    const { lines, dropped } = appended(this.lines, this.#pending, this.limits);
    this.received += this.#pending.length;
    this.#pending = [];
    this.lines = lines;
    this.dropped += dropped;
  }
}

function frame(): Promise<void> {
  return new Promise((resolve) => {
    if (document.hidden) setTimeout(resolve, HIDDEN_MS);
    else requestAnimationFrame(() => resolve());
  });
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done);
  });
}

//! The latest events of one workload, live.
//!
//! Guarantees: each event is shown once and in order; what is kept, and what waits for the next frame, is bounded under any rate; what was
//! missed while the connection was lost is read from the API.

import { api, take } from "../../api/client";
import type { Event } from "../../api/types";
import { hub } from "../../live/hub.svelte";
import { workloadOf } from "../../live/touches";
import type { LogEntry } from "../../logs/entry";
import { LogCursor, readLogs } from "../../logs/request";
import { eventEntry } from "./event-text";

/** Events that are kept. */
export const KEPT_MAX = 5_000;
/** Events of the workload with which the page begins. */
const HISTORY = 200;
/** Events of the project that are read to find those of the workload. */
const READ_MAX = 2_000;
const PAGE = 200;

export class EventFeed {
  entries = $state.raw<readonly LogEntry[]>([]);
  /** True once the events of the past were read, or cannot be. */
  ready = $state(false);
  /** How many events were dropped to keep the page small. */
  dropped = $state(0);
  #pending: LogEntry[] = [];
  #isScheduled = false;
  #last = 0;
  #isCatchingUp = false;
  #abort = new AbortController();

  constructor(
    private readonly workload: string,
    private readonly project: string | undefined,
  ) {}

  /** Follows the events until the returned function is called. */
  follow(mayReadLogs: boolean): () => void {
    const unfollow = hub.follow("project", {
      events: (events) => this.#arrived(events),
      // Events may be missing: read those after the last one.
      refreshSince: (moment) => {
        if (moment === -Infinity || !this.ready || this.#last === 0) return;
        // What cannot be read again, for example because it was archived, stays missing; new events still arrive.
        this.#catchUp(this.#last).catch(() => undefined);
      },
    });
    void this.#begin(mayReadLogs);
    return () => {
      unfollow();
      this.#abort.abort();
    };
  }

  async #begin(mayReadLogs: boolean): Promise<void> {
    try {
      const from = mayReadLogs ? await this.#beginOfHistory() : undefined;
      if (from !== undefined) await this.#catchUp(from);
    } catch {
      // The past is an extra: without it the page begins with the next event.
    }
    this.#isCatchingUp = false;
    this.ready = true;
    this.#add([]);
  }

  /** The API lists events from the oldest on; the log knows the numbers of the workload's latest ones. */
  async #beginOfHistory(): Promise<number | undefined> {
    this.#isCatchingUp = true;
    const selection = {
      workload: this.workload,
      members: [],
      sources: ["event", "task"],
      tail: HISTORY,
      follow: false,
    };
    const numbers: number[] = [];
    for await (const lines of readLogs(selection, new LogCursor(), this.#abort.signal))
      numbers.push(...lines.flatMap((line) => line.sequence ?? []));
    if (numbers.length === 0) return undefined;
    return Math.max(Math.min(...numbers), Math.max(...numbers) - READ_MAX) - 1;
  }

  /** Reads the events after a number, and lets those that arrive meanwhile wait. */
  async #catchUp(after: number): Promise<void> {
    this.#isCatchingUp = true;
    const { signal } = this.#abort;
    const waiting = this.#pending;
    this.#pending = [];
    try {
      let from = after;
      for (let read = 0; read < 2 * READ_MAX; read += PAGE) {
        const query = { project: this.project, after: from, limit: PAGE };
        const page = await take(api.GET("/api/v1/events", { params: { query }, signal }));
        // A stream would be text; a page was asked for.
        if (typeof page === "string") break;
        waiting.push(...page.items.filter((event) => this.#isOwn(event)).map(eventEntry));
        from = page.items.at(-1)?.sequence ?? from;
        if (page.items.length < PAGE) break;
      }
    } finally {
      this.#isCatchingUp = false;
      const all = [...waiting, ...this.#pending].sort((a, b) => a.number - b.number);
      this.#pending = [];
      this.#add(all);
    }
  }

  #isOwn(event: Event): boolean {
    return workloadOf(event) === this.workload;
  }

  #arrived(events: readonly Event[]): void {
    const own = events.filter((event) => this.#isOwn(event));
    if (own.length === 0) return;
    // Only the last ones can be kept: the text of the others is not even made.
    const skipped = Math.max(0, own.length - KEPT_MAX);
    this.dropped += skipped;
    this.#add(own.slice(skipped).map(eventEntry));
  }

  #add(entries: readonly LogEntry[]): void {
    this.#pending.push(...entries);
    if (this.#pending.length > 2 * KEPT_MAX) {
      this.dropped += this.#pending.length - KEPT_MAX;
      this.#pending = this.#pending.slice(-KEPT_MAX);
    }
    if (this.#isScheduled || this.#isCatchingUp || this.#pending.length === 0) return;
    this.#isScheduled = true;
    requestAnimationFrame(() => this.#draw());
  }

  #draw(): void {
    this.#isScheduled = false;
    if (this.#isCatchingUp) return;
    const fresh: LogEntry[] = [];
    for (const entry of this.#pending) {
      if (entry.number <= this.#last) continue;
      this.#last = entry.number;
      fresh.push(entry);
    }
    this.#pending = [];
    if (fresh.length === 0) return;
    const all = [...this.entries, ...fresh];
    const over = Math.max(0, all.length - KEPT_MAX);
    this.dropped += over;
    this.entries = over > 0 ? all.slice(over) : all;
  }
}

/** The kinds among the events, with their numbers, by name. */
export function kindCounts(entries: readonly LogEntry[]): { kind: string; count: number }[] {
  const counts = new Map<string, number>();
  for (const { who } of entries) counts.set(who, (counts.get(who) ?? 0) + 1);
  return [...counts].map(([kind, count]) => ({ kind, count })).sort((a, b) => (a.kind < b.kind ? -1 : 1));
}

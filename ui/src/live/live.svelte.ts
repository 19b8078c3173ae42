//! What a page reads from the API, kept current by events.

import { tick, untrack } from "svelte";
import { SvelteSet } from "svelte/reactivity";

import { problemOf } from "../api/problem";
import type { Event, Problem } from "../api/types";
import { arrivals } from "./arrivals.svelte";
import { clock } from "./clock";
import { type Follower, type Scope, hub } from "./hub.svelte";
import { pin } from "./pin";
import { Reader, type Source } from "./reader";
import type { Touch } from "./touches";

export interface LiveSource<T> extends Source<T> {
  /** What an event changes of the value: nothing, the entry with an id (see `patch`), or all of it. */
  on(event: Event, value: T | undefined): Touch;
  /** The streams to follow; the project's by default. */
  scope?: Scope | readonly Scope[] | undefined;
}

export class Live<T> {
  value = $state.raw<T>();
  /** Why the last reading failed. The value of an earlier one stays. */
  problem = $state.raw<Problem>();
  loading = $state(true);
  /** When the value was read, by the server's clock. */
  at = $state<number>();
  #reader: Reader<T> | undefined;
  #key = "";
  /** The arrivals that are shown, by their count. */
  #arrivals = arrivals.count;

  /** Reads everything again, for example after an action. */
  reload(): void {
    this.#reader?.touch(true);
  }

  /** Follows a source until the returned function is called. Use [`live`] in components. */
  follow(source: LiveSource<T>): () => void {
    if (source.key !== this.#key) this.#reset(source.key);
    const reader = new Reader(source, {
      loaded: (value) => this.#loaded(value),
      failed: (thrown) => (this.problem = problemOf(thrown)),
      loading: (loading) => (this.loading = loading),
    });
    this.#reader = reader;
    const follower: Follower = {
      events: (events) => {
        for (const event of events) {
          const touch = source.on(event, this.#peek());
          if (touch !== false) reader.touch(touch);
        }
      },
      refreshSince: (moment) => reader.refreshSince(moment),
    };
    const unfollow = [source.scope ?? "project"].flat().map((scope) => hub.follow(scope, follower));
    reader.start();
    return () => {
      unfollow.forEach((stop) => stop());
      reader.stop();
    };
  }

  #last: T | undefined;

  /** The value without a reactive dependency. */
  #peek(): T | undefined {
    return this.#last;
  }

  #loaded(value: T): void {
    if (this.#arrivals !== arrivals.count) void tick().then(pin());
    this.#arrivals = arrivals.count;
    this.#last = value;
    this.value = value;
    this.problem = undefined;
    this.at = clock.now();
  }

  #reset(key: string): void {
    this.#key = key;
    this.#last = undefined;
    this.value = undefined;
    this.problem = undefined;
    this.at = undefined;
  }
}

/**
 * Reads a source while the component lives. When something reactive in `source` changes, it is called again, and read again if its key is
 * another one; it returns `undefined` while there is nothing to read.
 */
export function live<T>(source: () => LiveSource<T> | undefined): Live<T> {
  const result = new Live<T>();
  const current = $derived(source());
  const key = $derived(current?.key);
  $effect(() => {
    if (key === undefined) return undefined;
    const chosen = untrack(() => current);
    return chosen === undefined ? undefined : untrack(() => shown(result, result.follow(chosen)));
  });
  return result;
}

/** What the open page shows. */
const onPage = new SvelteSet<{ readonly at: number | undefined }>();

function shown(live: { readonly at: number | undefined }, stop: () => void): () => void {
  onPage.add(live);
  return () => {
    stop();
    onPage.delete(live);
  };
}

/**
 * Until when everything on the page is known to be true, by the server's clock: after the loss of the event stream, a value is as old as its
 * reading. `undefined` while nothing is lost.
 */
export function trueUntil(): number | undefined {
  const { lostSince } = hub;
  if (lostSince === undefined) return undefined;
  return oldestOf(
    lostSince,
    [...onPage].map((live) => live.at),
  );
}

export function oldestOf(lostSince: number, readings: readonly (number | undefined)[]): number {
  const known = readings.filter((at) => at !== undefined);
  return known.length === 0 ? lostSince : Math.max(lostSince, Math.min(...known));
}

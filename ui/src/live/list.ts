//! Lists whose entries are read one by one when events touch a few of them.

import { ProblemError } from "../api/problem";
import type { Event, ListPage } from "../api/types";
import type { LiveSource } from "./live.svelte";
import { takeAll } from "../api/client";
import { arrivals, type Arrivals } from "./arrivals.svelte";
import type { Touch } from "./touches";
import type { Scope } from "./hub.svelte";

export interface ListSource<T> {
  key: string;
  page(cursor: string | undefined, signal: AbortSignal): Promise<ListPage<T>>;
  id(entry: T): string;
  on(event: Event): Touch;
  /** Reads one entry. Without it, every touch reads the list. */
  one?(id: string, signal: AbortSignal): Promise<T>;
  /** False for an entry that no longer belongs into a filtered list. */
  belongs?(entry: T): boolean;
  scope?: Scope | readonly Scope[];
  max?: number;
  /** One entry in words, for example `service account`. With it, entries that are added later announce themselves. */
  what?: string;
  /** What a person calls an entry; its id by default. */
  name?(entry: T): string;
  /** The order of the first reading. What is added later comes last, so that no row moves. Without it, the order is that of the API. */
  order?(a: T, b: T): number;
  /** See [`Source`](./reader). */
  pause?: number;
  /** See [`Source`](./reader). */
  every?: number;
}

/** The source of a list for [`live`](live). */
export function listSource<T>(list: ListSource<T>, announce: Pick<Arrivals, "add"> = arrivals): LiveSource<T[]> {
  const { one, order } = list;
  const newcomers = new Newcomers(list, announce);
  let places: ReadonlyMap<string, number> = new Map();
  return {
    key: list.key,
    scope: list.scope,
    pause: list.pause,
    every: list.every,
    on: (event) => list.on(event),
    load: async (signal) => {
      const read = await takeAll((cursor) => list.page(cursor, signal), list.max);
      newcomers.meet(read, signal);
      if (order === undefined) return read;
      const entries = inPlaces(read, places, { id: (entry) => list.id(entry), order });
      places = new Map(entries.map((entry, place) => [list.id(entry), place]));
      return entries;
    },
    ...(one && {
      patch: async (entries: T[], ids: string[], signal: AbortSignal) => {
        const read = await Promise.all(ids.map((id) => readOne(one, id, signal)));
        const present = read.filter((entry) => entry !== undefined && (list.belongs?.(entry) ?? true)) as T[];
        newcomers.meet(present, signal);
        return merge(entries, new Map(ids.map((id, index) => [id, read[index]])), list);
      },
    }),
  };
}

/** Announces the entries that no earlier reading of a list had. Sources that are no [`listSource`] use it for the list within what they read. */
export class Newcomers<T> {
  #known: Set<string> | undefined;

  constructor(
    private readonly list: Pick<ListSource<T>, "id" | "what" | "name">,
    private readonly announce: Pick<Arrivals, "add"> = arrivals,
  ) {}

  /** Takes the entries of a reading. What was read for a page that was left meanwhile is not shown, and not announced. */
  meet(entries: readonly T[], signal: AbortSignal): void {
    const { what } = this.list;
    if (what === undefined || signal.aborted) return;
    const known = this.#known;
    const added = known === undefined ? [] : entries.filter((entry) => !known.has(this.list.id(entry)));
    this.#known = known ?? new Set();
    for (const entry of known === undefined ? entries : added) this.#known.add(this.list.id(entry));
    this.announce.add(
      what,
      added.map((entry) => ({ id: this.list.id(entry), name: this.list.name?.(entry) ?? this.list.id(entry) })),
    );
  }
}

/** Entries at the places that they had. Those without one follow, in the order of the list. */
export function inPlaces<T>(
  entries: readonly T[],
  places: ReadonlyMap<string, number>,
  list: { id(entry: T): string; order(a: T, b: T): number },
): T[] {
  const placeOf = (entry: T): number => places.get(list.id(entry)) ?? Infinity;
  return [...entries].sort((a, b) => (placeOf(a) === placeOf(b) ? list.order(a, b) : placeOf(a) - placeOf(b)));
}

/** An entry, or `undefined` if it is gone. */
async function readOne<T>(
  one: (id: string, signal: AbortSignal) => Promise<T>,
  id: string,
  signal: AbortSignal,
): Promise<T | undefined> {
  try {
    return await one(id, signal);
  } catch (thrown) {
    if (thrown instanceof ProblemError && thrown.problem.status === 404) return undefined;
    throw thrown;
  }
}

/** Replaces, adds and removes the read entries; all others stay the same objects at their places. */
export function merge<T>(
  entries: readonly T[],
  read: ReadonlyMap<string, T | undefined>,
  list: { id(entry: T): string; belongs?(entry: T): boolean },
): T[] {
  const left = new Map(read);
  const kept = entries.flatMap((entry) => {
    const id = list.id(entry);
    if (!left.has(id)) return [entry];
    const fresh = left.get(id);
    left.delete(id);
    return fresh !== undefined && (list.belongs?.(fresh) ?? true) ? [fresh] : [];
  });
  const added = [...left.values()].filter((entry) => entry !== undefined && (list.belongs?.(entry) ?? true)) as T[];
  return [...kept, ...added];
}

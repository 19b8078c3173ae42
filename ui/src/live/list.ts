//! Lists whose entries are read one by one when events touch a few of them.

import { ProblemError } from "../api/problem";
import type { Event, ListPage } from "../api/types";
import type { LiveSource } from "./live.svelte";
import { takeAll } from "../api/client";
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
}

/** The source of a list for [`live`](live). */
export function listSource<T>(list: ListSource<T>): LiveSource<T[]> {
  const { one } = list;
  return {
    key: list.key,
    scope: list.scope,
    on: (event) => list.on(event),
    load: (signal) => takeAll((cursor) => list.page(cursor, signal), list.max),
    ...(one && {
      patch: async (entries: T[], ids: string[], signal: AbortSignal) => {
        const read = await Promise.all(ids.map((id) => readOne(one, id, signal)));
        return merge(entries, new Map(ids.map((id, index) => [id, read[index]])), list);
      },
    }),
  };
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

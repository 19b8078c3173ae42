//! Which objects an event is about.

import type { Event } from "../api/types";

/** What an event changes of something that was read: nothing, the entry with this id, or all of it. */
export type Touch = string | boolean;

function text(data: unknown, field: string): string | undefined {
  if (typeof data !== "object" || data === null) return undefined;
  const value = (data as Record<string, unknown>)[field];
  return typeof value === "string" ? value : undefined;
}

/** Id of the workload that an event is about. */
export function workloadOf(event: Event): string | undefined {
  return event.subject_kind === "workload" ? event.subject_id : text(event.data, "workload");
}

/** Id of the operation that an event is about. */
export function operationOf(event: Event): string | undefined {
  return event.subject_kind === "operation" ? event.subject_id : text(event.data, "operation");
}

/** Name or id of the node that an event is about: tasks name their node. */
export function nodeOf(event: Event): string | undefined {
  return event.subject_kind === "node" ? event.subject_id : text(event.data, "node");
}

/** Name of the member that an event of a member is about. */
export function memberOf(event: Event): string | undefined {
  return text(event.data, "member");
}

/** What gathered since the last reading. */
export class Touched {
  #all = false;
  readonly #ids = new Set<string>();

  add(touch: Touch): void {
    if (touch === true) this.#all = true;
    else if (touch !== false) this.#ids.add(touch);
  }

  get isEmpty(): boolean {
    return !this.#all && this.#ids.size === 0;
  }

  /** The ids to read again, or `undefined` for everything, also if there are more ids than `max`. Empties this. */
  take(max: number): string[] | undefined {
    const ids = this.#all || this.#ids.size > max ? undefined : [...this.#ids];
    this.#all = false;
    this.#ids.clear();
    return ids;
  }
}

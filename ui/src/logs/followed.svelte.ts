//! A log that a page follows. At its newest line the view moves with new ones; elsewhere it keeps the lines that a person reads.

import { untrack } from "svelte";

import { LogFeed } from "./feed.svelte";
import type { LogSelection } from "./request";

export class FollowedLog {
  readonly feed = new LogFeed();
  #follow = $state(true);
  #stuck = $state(true);

  /** `selection` says what is read, at the time of a reading. */
  constructor(private readonly selection: (follow: boolean) => LogSelection) {}

  /** Whether new lines come by themselves. */
  get follow(): boolean {
    return this.#follow;
  }

  set follow(follow: boolean) {
    this.#follow = follow;
    this.#hold();
  }

  /** True while the view shows the newest line and moves with new ones. */
  get stuck(): boolean {
    return this.#stuck;
  }

  set stuck(stuck: boolean) {
    this.#stuck = stuck;
    this.#hold();
  }

  /** Empties the window and reads it again: at its end, unless a log with an end is read from a start. */
  read(): void {
    const selection = this.selection(this.#follow);
    this.stuck = this.#follow || selection.since === undefined;
    this.feed.start(selection);
  }

  /** Shows the newest line. What a full window has missed is read again. */
  toNewest(): void {
    this.stuck = true;
    if (this.feed.state === "held") this.read();
  }

  /** Takes over that a person scrolled to the end of the window or away from it. That end is the newest line once everything is read. */
  scrolled(isAtEnd: boolean): void {
    if (isAtEnd && this.feed.state === "held") this.toNewest();
    else this.stuck = isAtEnd && (this.#follow || this.feed.state === "ended");
  }

  /** While older lines are read, new ones must not push them out. */
  #hold(): void {
    this.feed.hold = !this.#stuck && this.#follow;
  }
}

/** Reads a log while the component lives. It is read again when `key` gives another text, or with another choice of `follow`. */
export function followLog(key: () => string, selection: (follow: boolean) => LogSelection): FollowedLog {
  const log = new FollowedLog(selection);
  const current = $derived(key());
  $effect(() => {
    void [current, log.follow];
    untrack(() => log.read());
    return () => untrack(() => log.feed.stop());
  });
  return log;
}

//! The server's time, from the `Date` header of its answers: a browser whose clock is wrong still shows right ages.

/** A difference up to this counts as none: `Date` has whole seconds, and an answer takes a while. */
const TOLERATED_MS = 2_000;

export class ServerClock {
  #offset = 0;

  constructor(private readonly local: () => number = Date.now) {}

  /** Takes over the `Date` header of an answer that just arrived. */
  observe(date: string | null): void {
    const server = date === null ? NaN : Date.parse(date);
    if (Number.isNaN(server)) return;
    const offset = server - this.local();
    this.#offset = Math.abs(offset) <= TOLERATED_MS ? 0 : offset;
  }

  /** Milliseconds since 1970 by the server's clock. */
  now(): number {
    return this.local() + this.#offset;
  }

  get offset(): number {
    return this.#offset;
  }
}

export const clock = new ServerClock();

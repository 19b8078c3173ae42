//! A reactive "now" of one timer for all ages on the page.

import { clock } from "./clock";

class Now {
  #value = $state(clock.now());

  constructor() {
    if (typeof window === "undefined") return;
    setInterval(() => {
      if (!document.hidden) this.#value = clock.now();
    }, 1_000);
    document.addEventListener("visibilitychange", () => (this.#value = clock.now()));
  }

  /** Milliseconds since 1970 by the server's clock, once a second. */
  get value(): number {
    return this.#value;
  }
}

export const now = new Now();

//! One-time sign-in links: `/#sign-in=CODE`.
//!
//! Guarantees: the code leaves the address bar and the history before it is sent, is sent once, and is kept nowhere. A link never replaces a
//! session that is there without a question: somebody else's link would let a person work as somebody else without a sign of it.

import { problemOf } from "../api/problem";
import { session } from "../api/session.svelte";
import type { Problem } from "../api/types";

const PREFIX = "#sign-in=";

class SignInLink {
  problem = $state.raw<Problem>();
  /** True while a code is exchanged. */
  busy = $state(false);
  /** True while a person must say whether the link replaces the present session. */
  asks = $state(false);
  #code = $state.raw<string>();

  /** True if there is a code that was not sent yet. */
  get waits(): boolean {
    return this.#code !== undefined;
  }

  /** Moves a code out of the address. Follows links that are pasted into an open tab, too. */
  take(): void {
    this.#move();
    window.addEventListener("hashchange", () => this.#move());
  }

  /** Uses a waiting code, once it is known whether this browser is signed in. */
  settle(): void {
    if (!this.waits || this.asks) return;
    if (session.status === "signed_in") this.asks = true;
    else if (session.status === "signed_out") void this.exchange();
  }

  /** Exchanges the code for a session. */
  async exchange(): Promise<void> {
    const code = this.#code;
    this.discard();
    if (code === undefined) return;
    this.busy = true;
    this.problem = undefined;
    try {
      await session.signIn({ code });
    } catch (thrown) {
      this.problem = problemOf(thrown);
    } finally {
      this.busy = false;
    }
  }

  /** Forgets the code: the present session stays. */
  discard(): void {
    this.#code = undefined;
    this.asks = false;
  }

  #move(): void {
    const { hash } = location;
    if (!hash.startsWith(PREFIX)) return;
    history.replaceState(null, "", location.pathname + location.search);
    // Codes are base64url: nothing in them is encoded.
    this.#code = hash.slice(PREFIX.length);
  }
}

export const signInLink = new SignInLink();

//! One-time sign-in links: `/#sign-in=CODE`.
//!
//! Guarantees: the code leaves the address bar and the history before it is sent, is sent once, and is kept nowhere.

import { problemOf } from "../api/problem";
import { session } from "../api/session.svelte";
import type { Problem } from "../api/types";

const PREFIX = "#sign-in=";

class SignInLink {
  problem = $state.raw<Problem>();
  #code: string | undefined;

  /** Moves a code out of the address. Follows links that are pasted into an open tab, too. */
  take(): void {
    this.#move();
    window.addEventListener("hashchange", () => {
      this.#move();
      void this.exchange();
    });
  }

  /** Exchanges the code for a session. False if there was none or it was refused. */
  async exchange(): Promise<boolean> {
    const code = this.#code;
    this.#code = undefined;
    if (code === undefined) return false;
    try {
      await session.signIn({ code });
      this.problem = undefined;
      return true;
    } catch (thrown) {
      this.problem = problemOf(thrown);
      return false;
    }
  }

  #move(): void {
    if (!location.hash.startsWith(PREFIX)) return;
    this.#code = decodeURIComponent(location.hash.slice(PREFIX.length));
    history.replaceState(null, "", location.pathname + location.search);
  }
}

export const signInLink = new SignInLink();

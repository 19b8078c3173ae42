//! One request that a person makes from a form or a dialog.
//!
//! Guarantees: a second click while the first request runs does nothing; a request that may have run is repeated with the same idempotency
//! key as long as its body is the same, so that the server executes it once.

import { afterSignIn, ProblemError, problemOf } from "./problem";
import type { Problem } from "./types";

export class Submission {
  busy = $state(false);
  problem = $state.raw<Problem>();
  #key: string | undefined;
  #body = "";

  /**
   * Sends `body` by `send`, which gets the idempotency key. Returns the answer, or `undefined` if the request failed (see `problem`) or
   * another one still runs.
   */
  async run<B, T>(body: B, send: (body: B, key: string) => Promise<T>): Promise<T | undefined> {
    if (this.busy) return undefined;
    this.busy = true;
    this.problem = undefined;
    try {
      const answer = await send(body, this.#keyFor(body));
      this.#key = undefined;
      return answer;
    } catch (thrown) {
      this.problem = afterSignIn(problemOf(thrown));
      if (!(thrown instanceof ProblemError && thrown.mayHaveRun)) this.#key = undefined;
      return undefined;
    } finally {
      this.busy = false;
    }
  }

  /** Forgets the last problem, for example when the form changes. */
  clear(): void {
    this.problem = undefined;
  }

  #keyFor(body: unknown): string {
    const text = JSON.stringify(body) ?? "";
    if (this.#key === undefined || text !== this.#body) this.#key = crypto.randomUUID();
    this.#body = text;
    return this.#key;
  }
}

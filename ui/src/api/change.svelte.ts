//! A change of one thing, on which a person decides by what a dialog shows of it.
//!
//! Guarantees: nothing is sent before the thing was read; the request carries the ETag of that reading (`If-Match`), so that nothing that
//! changed after it is overridden unseen. If something did (412), the thing is read again, what is different is kept in words, and the
//! person decides again, under a new idempotency key. A reading that failed can be repeated. A click while a request or a reading runs
//! does nothing.
//!
//! Deliberately absent: who changed the thing. A reading does not show that.

import type { Tagged } from "./client";
import { ProblemError, problemOf } from "./problem";
import { Submission } from "./submission.svelte";
import type { Problem } from "./types";

/** Headers of a request that changes something; `If-Match` if it has a subject. */
export interface ChangeHeader {
  "Idempotency-Key": string;
  "If-Match"?: string;
}

/** The one thing that a request changes. */
export interface Subject<T> {
  /** As a sentence begins: `The node`. */
  name: string;
  read: () => Promise<Tagged<T>>;
  /** What a person decides by, for sentences such as `The node` is `active`. All readings have the same keys. */
  facts: (value: T) => Record<string, string>;
}

/** What to say once the thing is no longer as the dialog showed it. */
export interface Changed {
  summary: string;
  /** Sentences. Empty if nothing is different that the dialog shows, or if that is not known yet. */
  facts: readonly string[];
}

export class Change<T> {
  /** The reading that the next request names. */
  seen = $state.raw<Tagged<T>>();
  /** Why the last reading failed. */
  unread = $state.raw<Problem>();
  /** Why the control plane would refuse the request now. */
  refused = $state.raw<Problem>();
  isLooking = $state(false);
  readonly submission = new Submission();
  #differences = $state.raw<readonly string[]>([]);
  /** The tag of the reading that was outdated when the last request arrived. */
  #outdated = $state<string>();
  /** The last reading that succeeded, also if the next request may not name it any more. */
  #last: Tagged<T> | undefined;
  #hasShownAnother = false;
  /** True if a request failed that may have run: what changed can be its doing. */
  #mayHaveRun = false;

  /** `check` is the request as a dry run: what it refuses is shown before anything is sent. */
  constructor(
    private readonly subject: Subject<T> | undefined,
    private readonly check?: () => Promise<unknown> | undefined,
  ) {}

  /** Why nothing can be sent now. */
  get reason(): string | undefined {
    if (this.isLooking) return "The control plane checks whether this is possible.";
    return this.#isUnread ? `${this.subject?.name} could not be read. Try again first.` : undefined;
  }

  /** True if the last request was refused because the thing had changed. */
  get isStale(): boolean {
    return this.submission.problem?.code === "precondition_failed" && this.seen?.etag !== this.#outdated;
  }

  get changed(): Changed | undefined {
    const facts = this.#differences;
    if (this.subject === undefined || (!this.isStale && facts.length === 0)) return undefined;
    const { name } = this.subject;
    const isUnshown = facts.length === 0 && this.seen !== undefined;
    const what = isUnshown ? `${name} has changed in something that is not shown here.` : `${name} has changed.`;
    if (this.#mayHaveRun)
      return { summary: `${what} An earlier request of this dialog, which failed, may have done that.`, facts };
    return { summary: this.isStale ? `${what} Nothing was done.` : what, facts };
  }

  /** Reads the thing and asks whether the change is possible: when the dialog opens, and when a person tries again. */
  async look(): Promise<void> {
    if (this.isLooking) return;
    this.isLooking = true;
    this.unread = undefined;
    this.refused = undefined;
    try {
      if (await this.#read()) await this.check?.();
    } catch (thrown) {
      this.refused = problemOf(thrown);
    } finally {
      this.isLooking = false;
    }
  }

  /**
   * Sends the change by `send`, which gets its headers. Returns the answer, or `undefined` if the request failed, or nothing was sent.
   */
  async run<B, A>(body: B, send: (body: B, header: ChangeHeader) => Promise<A>): Promise<A | undefined> {
    if (this.isLooking || this.#isUnread) return undefined;
    const etag = this.seen?.etag;
    this.#differences = [];
    // The tag is part of what is repeated: another one makes it another request, with a key of its own.
    const answer = await this.submission.run({ body, etag }, async (_, key) => {
      const header = { "Idempotency-Key": key, ...(etag !== undefined && { "If-Match": etag }) };
      try {
        return await send(body, header);
      } catch (thrown) {
        this.#mayHaveRun ||= thrown instanceof ProblemError && thrown.mayHaveRun;
        throw thrown;
      }
    });
    if (this.submission.problem?.code === "precondition_failed") {
      this.#outdated = etag;
      this.seen = undefined;
      await this.look();
    }
    return answer;
  }

  get #isUnread(): boolean {
    return this.subject !== undefined && this.seen === undefined;
  }

  /** True if what is to be changed is known now. */
  async #read(): Promise<boolean> {
    if (this.subject === undefined) return true;
    try {
      const now = await this.subject.read();
      this.#compare(this.subject, now);
      this.seen = now;
      return true;
    } catch (thrown) {
      this.unread = problemOf(thrown);
      this.seen = undefined;
      return false;
    }
  }

  #compare({ facts }: Subject<T>, now: Tagged<T>): void {
    const last = this.#last;
    this.#last = now;
    if (last === undefined || last.etag === now.etag) return;
    const since = this.#hasShownAnother ? "you last looked" : "you opened this dialog";
    this.#hasShownAnother = true;
    const then = facts(last.value);
    this.#differences = Object.entries(facts(now.value))
      .filter(([what, is]) => is !== then[what])
      .map(([what, is]) => `${what} is now ${is}; it was ${then[what]} when ${since}.`);
  }
}

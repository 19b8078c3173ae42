//! What a page reads waits while the sign-in covers it.
//!
//! Guarantees: a page whose session ended sends nothing until the same person has signed in, and then continues what it was reading; after
//! another person has signed in, nothing that it asked for is sent any more.

export class Hold {
  #waiting: Set<(continues: boolean) => void> | undefined;
  /** Counts the sessions that began or were left: a refusal of a request from before says nothing about the present one. */
  round = 0;
  /** The latest round that was another person's, or in which no one was signed in. */
  #left = 0;

  get isOn(): boolean {
    return this.#waiting !== undefined;
  }

  begin(): void {
    this.#waiting ??= new Set();
  }

  /** Begins another round. Lets those that wait continue, or gives them up. */
  end(continues: boolean): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    this.round += 1;
    if (!continues) this.#left = this.round;
    waiting?.forEach((settle) => settle(continues));
  }

  /** True if somebody else came after the round in which a request was sent: it is not sent again. */
  isLeft(round: number): boolean {
    return this.#left > round;
  }

  /** Waits until nothing is held. False if the request is given up. */
  over(signal?: AbortSignal): Promise<boolean> {
    const waiting = this.#waiting;
    if (waiting === undefined) return Promise.resolve(true);
    if (signal?.aborted) return Promise.resolve(false);
    return new Promise((resolve) => {
      const aborted = (): void => settle(false);
      const settle = (continues: boolean): void => {
        waiting.delete(settle);
        signal?.removeEventListener("abort", aborted);
        resolve(continues);
      };
      waiting.add(settle);
      signal?.addEventListener("abort", aborted);
    });
  }
}

export const hold = new Hold();

//! Whether a person uses this page. An open page reads again whenever something that it shows changes; if nobody uses it, its requests say so,
//! and the control plane lets the session end after its idle time.

/** Without input for this long, nobody uses the page. */
const IDLE_AFTER_MS = 60_000;
const INPUTS = ["pointerdown", "keydown", "wheel", "click", "input"];

export class PageUse {
  readonly #now: () => number;
  #usedAt: number;

  /** Somebody has just opened the page. `now` is a clock that never goes back, in milliseconds. */
  constructor(now: () => number) {
    this.#now = now;
    this.#usedAt = now();
  }

  /** Counts every input on the page as use. */
  watch(target: EventTarget): void {
    const used = (): void => {
      this.#usedAt = this.#now();
    };
    for (const input of INPUTS) target.addEventListener(input, used, { capture: true, passive: true });
  }

  get isIdle(): boolean {
    return this.#now() - this.#usedAt > IDLE_AFTER_MS;
  }
}

export const pageUse = new PageUse(() => performance.now());

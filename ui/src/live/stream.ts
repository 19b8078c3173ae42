//! Follows one event stream of the API and resumes it after the last received number.
//!
//! Guarantees: while [`StreamState`] is `live`, every event after the opening was delivered once and in order. `opened(false)` says that events
//! may be missing before it: what was read earlier must be read again. A stream whose session ended continues after its last event in the next
//! session of the same person.

import { authorize, reading } from "../api/client";
import type { Event } from "../api/types";
import { messages } from "./sse";

export type StreamState = "connecting" | "live" | "lost";

export interface StreamListener {
  state(state: StreamState): void;
  /** The server sent something, at least a comment: until now, no event is missing. */
  heard(): void;
  /** The stream is open; `complete` if it continues where the last one ended. */
  opened(complete: boolean): void;
  events(events: Event[]): void;
}

/** The server sends a comment every 15 s; a connection without two of them in a row is dead. */
const SILENCE_MAX_MS = 40_000;
const WAIT_MIN_MS = 500;
const WAIT_MAX_MS = 10_000;

export class EventStream {
  #last: string | undefined;
  #attempts = 0;
  #stopped = false;
  #abort = new AbortController();
  #wake: () => void = () => undefined;

  constructor(
    private readonly project: string | undefined,
    private readonly listener: StreamListener,
    private readonly fetcher: typeof fetch = (input, init) => fetch(input, init),
  ) {}

  /** Follows the stream until [`stop`](EventStream.stop). */
  async run(): Promise<void> {
    this.listener.state("connecting");
    while (!this.#stopped) {
      try {
        await this.#follow();
      } catch {
        // Whatever ended the connection, the next one says whether it was the network, the server or the session.
      }
      if (this.#isStopped()) return;
      this.listener.state("lost");
      await this.#pause();
    }
  }

  stop(): void {
    this.#stopped = true;
    this.#abort.abort();
    this.#wake();
  }

  /** Tries again now, for example because the network is back. */
  retry(): void {
    this.#attempts = 0;
    this.#wake();
  }

  /** A function, because the compiler takes the field for unchanged over an `await`. */
  #isStopped(): boolean {
    return this.#stopped;
  }

  async #follow(): Promise<void> {
    const { signal } = (this.#abort = new AbortController());
    const response = await reading(() => this.fetcher(this.#address(), { headers: this.#headers(), signal }), signal);
    if (response.status === 410) {
      // The events in between were removed: begin with the next new one, and let everything be read again.
      this.#last = undefined;
      this.#attempts = 0;
      return;
    }
    if (!response.ok || response.body === null) throw new Error(`the event stream answers ${response.status}`);
    this.#attempts = 0;
    this.listener.heard();
    this.listener.opened(this.#last !== undefined);
    this.listener.state("live");
    await this.#read(response.body);
  }

  async #read(body: ReadableStream<Uint8Array>): Promise<void> {
    const abort = this.#abort;
    let watchdog = setTimeout(() => abort.abort(), SILENCE_MAX_MS);
    try {
      for await (const batch of messages(body)) {
        clearTimeout(watchdog);
        watchdog = setTimeout(() => abort.abort(), SILENCE_MAX_MS);
        this.listener.heard();
        if (batch.length === 0) continue;
        this.listener.events(batch.map((message) => JSON.parse(message.data) as Event));
        this.#last = batch.at(-1)?.id ?? this.#last;
      }
    } finally {
      clearTimeout(watchdog);
    }
  }

  #address(): string {
    const query = new URLSearchParams();
    if (this.project !== undefined) query.set("project", this.project);
    if (this.#last === undefined) query.set("from_now", "true");
    return `/api/v1/events?${query.toString()}`;
  }

  #headers(): Headers {
    const headers = new Headers({ accept: "text/event-stream" });
    if (this.#last !== undefined) headers.set("last-event-id", this.#last);
    authorize(headers, "GET");
    return headers;
  }

  async #pause(): Promise<void> {
    const wait = Math.min(WAIT_MAX_MS, WAIT_MIN_MS * 2 ** this.#attempts) * (0.5 + Math.random() / 2);
    this.#attempts += 1;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, wait);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

//! The event streams of this tab and everything that follows them.

import type { Event } from "../api/types";
import { clock } from "./clock";
import { EventStream, type StreamState } from "./stream";

/** `project` is the stream of the chosen project, `platform` that of nodes, keys and control planes. */
export type Scope = "project" | "platform";

export interface Follower {
  events(events: Event[]): void;
  /** Events before `moment` (of `performance.now()`) may have been missed. */
  refreshSince(moment: number): void;
}

class ScopeStream {
  state = $state<StreamState>("connecting");
  /** Until when no event is missing, by the server's clock; `undefined` while the stream is not lost. */
  lostSince = $state<number>();
  /** When the server last sent something. */
  #heard: number | undefined;
  readonly followers = new Set<Follower>();
  #stream: EventStream | undefined;

  open(project: string | undefined): void {
    this.close();
    const stream = new EventStream(project, {
      state: (state) => this.#changed(state),
      heard: () => (this.#heard = clock.now()),
      opened: (complete) => this.#opened(complete),
      events: (events) => this.followers.forEach((follower) => follower.events(events)),
    });
    this.#stream = stream;
    void stream.run();
  }

  close(): void {
    this.#stream?.stop();
    this.#stream = undefined;
    this.state = "connecting";
    this.lostSince = undefined;
    this.#heard = undefined;
  }

  get isOpen(): boolean {
    return this.#stream !== undefined;
  }

  retry(): void {
    this.#stream?.retry();
  }

  #changed(state: StreamState): void {
    this.state = state;
    if (state === "lost") this.lostSince ??= this.#heard ?? clock.now();
    else this.lostSince = undefined;
  }

  #opened(complete: boolean): void {
    // What failed while the server was away is read again in any case.
    const moment = complete ? -Infinity : performance.now();
    this.followers.forEach((follower) => follower.refreshSince(moment));
  }
}

class Hub {
  readonly #scopes: Record<Scope, ScopeStream> = { project: new ScopeStream(), platform: new ScopeStream() };
  #hasPlatform = false;
  #isConnected = false;

  constructor() {
    if (typeof window === "undefined") return;
    window.addEventListener("online", () => this.retry());
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.retry();
    });
  }

  /** Follows a project. The stream of the platform is opened when something first needs it. */
  connect(project: string | undefined, hasPlatform: boolean): void {
    this.disconnect();
    this.#isConnected = true;
    this.#hasPlatform = hasPlatform;
    // Without a project, a platform role's default stream is the platform's.
    if (project !== undefined || !hasPlatform) this.#scopes.project.open(project);
    if (project === undefined || this.#scopes.platform.followers.size > 0) this.#openPlatform();
  }

  disconnect(): void {
    this.#isConnected = false;
    Object.values(this.#scopes).forEach((scope) => scope.close());
  }

  follow(scope: Scope, follower: Follower): () => void {
    const stream = this.#scopes[scope];
    stream.followers.add(follower);
    if (scope === "platform" && this.#isConnected && !stream.isOpen) this.#openPlatform();
    return () => stream.followers.delete(follower);
  }

  retry(): void {
    Object.values(this.#scopes).forEach((scope) => scope.retry());
  }

  /** The worst state of the open streams. */
  get state(): StreamState {
    const states = this.#open().map((scope) => scope.state);
    return states.find((state) => state === "lost") ?? states.find((state) => state === "connecting") ?? "live";
  }

  get lostSince(): number | undefined {
    const times = this.#open().flatMap((scope) => scope.lostSince ?? []);
    return times.length > 0 ? Math.min(...times) : undefined;
  }

  #openPlatform(): void {
    if (this.#hasPlatform) this.#scopes.platform.open(undefined);
  }

  #open(): ScopeStream[] {
    // Reads both states, so that a stream that opens later is noticed.
    return Object.values(this.#scopes).filter((scope) => scope.state !== "connecting" || scope.isOpen);
  }
}

export const hub = new Hub();

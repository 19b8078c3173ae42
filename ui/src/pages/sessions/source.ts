//! One's own browser sessions, live.

import { api, take } from "../../api/client";
import { session } from "../../api/session.svelte";
import type { BrowserSession } from "../../api/types";
import { listSource } from "../../live/list";
import type { LiveSource } from "../../live/live.svelte";
import { browserName } from "./browser";

/** The control plane writes the use of a session at most this often, without an event. */
const USE_WRITTEN_MS = 60_000;

/** The present session first, then those that were used last. */
export function ownSessions(): LiveSource<BrowserSession[]> {
  return listSource<BrowserSession>({
    // After a new sign-in, another one is the present one.
    key: `own sessions ${session.id ?? ""}`,
    scope: session.may("platform.read") ? "platform" : "project",
    page: (cursor, signal) => take(api.GET("/api/v1/sessions", { params: { query: { cursor } }, signal })),
    id: (entry) => entry.id,
    order: (a, b) => Number(b.current) - Number(a.current) || Date.parse(b.last_used_at) - Date.parse(a.last_used_at),
    what: "session",
    name: (entry) => browserName(entry.user_agent),
    // An event does not say whose session it is about. Those of other people change nothing here.
    on: (event) => event.subject_kind === "session",
    every: USE_WRITTEN_MS,
  });
}

/** Without an event, a session ends when its time is over or nobody has used it for a while. */
export function hasEnded(entry: BrowserSession, now: number): boolean {
  return !entry.current && Math.min(Date.parse(entry.expires_at), Date.parse(entry.idle_expires_at)) <= now;
}

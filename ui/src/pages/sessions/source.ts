//! One's own browser sessions.

import { api, take } from "../../api/client";
import { session } from "../../api/session.svelte";
import type { BrowserSession } from "../../api/types";
import type { LiveSource } from "../../live/live.svelte";

export function ownSessions(): LiveSource<BrowserSession[]> {
  return {
    // After a new sign-in, another one is the present one.
    key: `own sessions ${session.id ?? ""}`,
    load: async (signal) => {
      const { items } = await take(api.GET("/api/v1/sessions", { signal }));
      return [...items].sort((a, b) => Number(b.current) - Number(a.current) || compareUse(a, b));
    },
    // Events of sessions are on the platform's stream, which few people may read.
    on: () => false,
  };
}

function compareUse(a: BrowserSession, b: BrowserSession): number {
  return Date.parse(b.last_used_at) - Date.parse(a.last_used_at);
}

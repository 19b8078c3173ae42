//! One's own browser sessions.

import { authorize, inspect } from "../../api/client";
import { problemFrom, unreachable } from "../../api/problem";
import type { ListPage } from "../../api/types";
import type { LiveSource } from "../../live/live.svelte";

/** An entry of `GET /api/v1/sessions`. */
export interface BrowserSession {
  id: string;
  /** With what the session began. */
  proof?: "sign_in_link" | "token";
  created_at: string;
  last_used_at: string;
  idle_expires_at?: string;
  expires_at: string;
  user_agent?: string | null;
  current: boolean;
}

export function ownSessions(): LiveSource<BrowserSession[]> {
  return {
    key: "own sessions",
    load: async (signal) => {
      const page = (await request("GET", "/api/v1/sessions", signal)) as ListPage<BrowserSession>;
      return [...page.items].sort((a, b) => Number(b.current) - Number(a.current) || compareUse(a, b));
    },
    // Events of sessions are on the platform's stream, which few people may read.
    on: () => false,
  };
}

function compareUse(a: BrowserSession, b: BrowserSession): number {
  return Date.parse(b.last_used_at) - Date.parse(a.last_used_at);
}

export async function endSession(id: string): Promise<void> {
  await request("DELETE", `/api/v1/sessions/${encodeURIComponent(id)}`);
}

async function request(method: string, path: string, signal?: AbortSignal): Promise<unknown> {
  const headers = new Headers({ accept: "application/json" });
  authorize(headers, method);
  const init: RequestInit = { method, headers, credentials: "same-origin", ...(signal && { signal }) };
  const response = await fetch(path, init).catch((thrown: unknown) => {
    if (thrown instanceof DOMException && thrown.name === "AbortError") throw thrown;
    throw unreachable();
  });
  await inspect(response);
  const body: unknown = response.status === 204 ? undefined : await response.json().catch(() => undefined);
  if (!response.ok) throw problemFrom(body, response);
  return body;
}

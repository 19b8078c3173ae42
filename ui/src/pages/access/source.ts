//! Tokens and service accounts of a project, live.

import { api, take } from "../../api/client";
import { session } from "../../api/session.svelte";
import type { ServiceAccount, Token } from "../../api/types";
import type { Scope } from "../../live/hub.svelte";
import { listSource } from "../../live/list";
import type { LiveSource } from "../../live/live.svelte";

// The platform's stream has the events of all projects and of the platform's own tokens, a project's those of its own.
const scope = (): Scope => (session.may("platform.read") ? "platform" : "project");

/** Tokens of a project, newest first; all of them for a platform role without one. */
export function tokensOf(project: string | undefined): LiveSource<Token[]> {
  return listSource<Token>({
    key: `tokens ${project ?? ""}`,
    scope: scope(),
    page: (cursor, signal) => take(api.GET("/api/v1/tokens", { params: { query: { project, cursor } }, signal })),
    id: (token) => token.id,
    // Those made while the page is open come last, so that they move none of the others.
    order: (a, b) => Date.parse(b.created_at) - Date.parse(a.created_at),
    what: "token",
    name: (token) => token.name,
    on: (event) => event.subject_kind === "token" || event.subject_kind === "service_account",
  });
}

export function accountsOf(project: string): LiveSource<ServiceAccount[]> {
  return listSource<ServiceAccount>({
    key: `service accounts ${project}`,
    scope: scope(),
    page: (cursor, signal) =>
      take(api.GET("/api/v1/service-accounts", { params: { query: { project, cursor } }, signal })),
    id: (account) => account.id,
    what: "service account",
    name: (account) => account.name,
    on: (event) => event.subject_kind === "service_account",
  });
}

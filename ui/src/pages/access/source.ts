//! Tokens and service accounts of a project.

import { api, take } from "../../api/client";
import { session } from "../../api/session.svelte";
import type { ServiceAccount, Token } from "../../api/types";
import { listSource } from "../../live/list";
import type { LiveSource } from "../../live/live.svelte";

// Their events are on the platform's stream alone; a project admin's page is read again after each action.
const scope = () => (session.may("platform.read") ? "platform" : "project");

/** Tokens of a project; all of them for a platform role without one. */
export function tokensOf(project: string | undefined): LiveSource<Token[]> {
  return listSource<Token>({
    key: `tokens ${project ?? ""}`,
    scope: scope(),
    page: (cursor, signal) => take(api.GET("/api/v1/tokens", { params: { query: { project, cursor } }, signal })),
    id: (token) => token.id,
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
    on: (event) => event.subject_kind === "service_account",
  });
}

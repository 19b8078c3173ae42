//! Roles that may be given, and in which state a token is.

import type { ProjectRole, Role, Token } from "../../api/types";
import { type Look, lookOf } from "../../components/looks";

export const PROJECT_ROLES = ["project-admin", "project-member", "viewer", "auditor"] as const satisfies ProjectRole[];
export const PLATFORM_ROLES = [
  "platform-admin",
  "platform-operator",
  "platform-auditor",
  "platform-metrics",
] as const satisfies Role[];

export function isPlatformRole(role: Role): boolean {
  return role.startsWith("platform-");
}

/** What a role is for, in one line. */
export const ROLE_NOTES: Record<Role, string> = {
  "platform-admin": "Everything, in all projects",
  "platform-operator": "Nodes, allocations and releases; sees all projects",
  "platform-auditor": "Reads everything, changes nothing",
  "platform-metrics": "Reads metrics alone",
  "project-admin": "Everything in one project, with its tokens",
  "project-member": "Workloads of one project",
  viewer: "Reads one project",
  auditor: "Reads one project and its audit records",
  "app-controller": "Reports on one workload as its controller",
};

/** True if every word of the filter is in one of the texts. */
export function matches(filter: string, ...texts: readonly (string | null | undefined)[]): boolean {
  const text = texts.join("\n").toLowerCase();
  return filter
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

export type TokenState = "valid" | "expired" | "revoked";

export function tokenState(token: Token, now: number): TokenState {
  if (token.revoked_at) return "revoked";
  return token.expires_at && Date.parse(token.expires_at) <= now ? "expired" : "valid";
}

/** The looks of tokens are those of states that mean the same. */
export function tokenLook(state: TokenState): Look {
  switch (state) {
    case "valid":
      return { ...lookOf("signing_key", "active"), word: "Valid" };
    case "expired":
      return { ...lookOf("signing_key", "retired"), word: "Expired" };
    case "revoked":
      return { ...lookOf("signing_key", "retired"), word: "Revoked" };
  }
}

//! What can be chosen of an access kind: lifetimes and roles, by what the API offers.

import type { AccessGrant, AccessKind, Permission } from "../api/types";
import type { Look } from "../components/looks";
import { lookOf } from "../components/looks";
import { commandLine, quoted } from "../text/command";
import { DAY, HOUR, lifetimeFlag, MINUTE } from "../text/lifetime";

const LIFETIMES = [10 * MINUTE, 30 * MINUTE, HOUR, 8 * HOUR, DAY, 7 * DAY, 30 * DAY];

/** The lifetimes to choose from, in seconds: usual ones, the kind's default and its longest. */
export function lifetimesOf(kind: Pick<AccessKind, "ttl_seconds" | "ttl_seconds_max">): number[] {
  const all = new Set([...LIFETIMES, kind.ttl_seconds, kind.ttl_seconds_max]);
  return [...all].filter((seconds) => seconds <= kind.ttl_seconds_max).sort((a, b) => a - b);
}

/** What a person asks for. */
export interface AccessTerms {
  workload: string;
  kind: AccessKind;
  role: string | undefined;
  ttlSeconds: number;
  reason: string;
}

/** The line that delivers the same; `merge` puts it into the file that clients read. */
export function accessLine(terms: AccessTerms, merge: boolean): string {
  const { workload, kind, role, ttlSeconds, reason } = terms;
  const line = commandLine(
    "workload",
    "kubeconfig",
    workload,
    ...(kind.default ? [] : ["--kind", kind.name]),
    ...(role === undefined ? [] : ["--role", role]),
    "--ttl",
    lifetimeFlag(ttlSeconds),
    ...(kind.default ? [] : ["--reason", reason.trim() || "REASON"]),
    ...(merge ? ["--merge"] : []),
  );
  return merge ? line : `${line} > ${commandLine(fileName(workload, undefined)).slice("gpuaas ".length)}`;
}

/** Name of the file that a credential is saved as. */
export function fileName(workload: string, role: string | undefined): string {
  return `${workload}${role === undefined ? "" : `-${role}`}.yaml`;
}

type May = (permission: Permission) => boolean;

/** Why somebody with these permissions cannot take a role; `undefined` if they can. */
export function roleRefusal(kind: Pick<AccessKind, "offered_roles">, role: string, may: May): string | undefined {
  const needs = kind.offered_roles?.find((offered) => offered.name === role)?.permission;
  return needs === undefined || may(needs) ? undefined : `Your role does not have the permission ${needs}`;
}

/** Why somebody with these permissions cannot take a kind: none of its roles is for them. */
export function kindRefusal(kind: Pick<AccessKind, "offered_roles" | "roles">, may: May): string | undefined {
  const refusals = kind.roles.map((role) => roleRefusal(kind, role, may));
  return refusals.includes(undefined) ? undefined : refusals[0];
}

/** The chosen role, if somebody can take it of this kind; otherwise the one that they get who choose none: the highest that they can take. */
export function roleOf(
  kind: Pick<AccessKind, "offered_roles" | "roles">,
  chosen: string | undefined,
  may: May,
): string | undefined {
  const open = kind.roles.filter((role) => roleRefusal(kind, role, may) === undefined);
  return open.find((role) => role === chosen) ?? open[0];
}

/** Commands that use a delivered credential: its `file`, and the entry that a merge made of it. */
export function checkLines(
  kind: Pick<AccessKind, "offered_roles"> | undefined,
  role: string | undefined,
  file: string,
): { file: string; merged: string } | undefined {
  const offered = kind?.offered_roles?.find(({ name }) => name === role);
  return offered && { file: offered.check.replace("FILE", () => quoted(file)), merged: offered.check_merged };
}

/** How a delivered credential looks: valid, valid though an exception, or expired. */
export function grantLook(
  grant: Pick<AccessGrant, "expires_at" | "kind">,
  kinds: readonly AccessKind[],
  now: number,
): Look {
  if (Date.parse(grant.expires_at) <= now) return { ...lookOf("allocation", "released"), word: "Expired" };
  const kind = kinds.find((known) => known.name === grant.kind);
  if (kind?.default === false) return { ...lookOf("recovery", "repair_available"), word: `Valid, ${grant.kind}` };
  return { ...lookOf("recovery", "none"), word: "Valid" };
}

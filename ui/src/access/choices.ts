//! What can be chosen of an access kind: lifetimes and roles, by what the API offers.

import type { AccessGrant, AccessKind } from "../api/types";
import type { Look } from "../components/looks";
import { lookOf } from "../components/looks";
import { commandLine } from "../text/command";
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

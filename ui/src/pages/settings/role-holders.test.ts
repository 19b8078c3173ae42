import { expect, test } from "vitest";

import type { ServiceAccount, Token } from "../../api/types";
import { holdersOf } from "./role-holders";

const NOW = Date.parse("2026-07-01T12:00:00Z");

function token(id: string, name: string, role: Token["role"], more: Partial<Token> = {}): Token {
  return { id, name, role, created_at: `2026-06-0${id}T12:00:00Z`, expires_at: "2026-08-01T12:00:00Z", ...more };
}

function account(name: string, more: Partial<ServiceAccount> = {}): ServiceAccount {
  return { id: `account ${name}`, name, project: "p", role: "viewer", created_at: "2026-06-01T12:00:00Z", ...more };
}

test("each holder is listed once a role, with what its valid tokens have", () => {
  const holders = holdersOf(
    [
      token("1", "ann", "viewer"),
      token("2", "ann", "viewer", { expires_at: "2026-09-01T12:00:00Z" }),
      token("3", "ann", "project-admin"),
      token("4", "bo", "viewer", { revoked_at: "2026-06-20T12:00:00Z" }),
      token("5", "cy", "viewer", { expires_at: "2026-06-30T12:00:00Z" }),
      token("6", "di", "viewer", { expires_at: null }),
    ],
    [],
    NOW,
  );
  expect(holders.map(({ id, name, role, tokens, until }) => [id, name, role, tokens, until])).toEqual([
    ["3", "ann", "project-admin", 1, "2026-08-01T12:00:00Z"],
    ["1", "ann", "viewer", 2, "2026-09-01T12:00:00Z"],
    ["6", "di", "viewer", 1, undefined],
  ]);
});

test("a service account has its tokens, and is a holder without one", () => {
  const holders = holdersOf(
    [token("1", "service-account/ci", "project-member"), token("2", "service-account/gone", "viewer")],
    [
      account("ci", { role: "project-member" }),
      account("nightly"),
      account("slurm", { role: "app-controller", workload_name: "train" }),
      account("gone", { deleted_at: "2026-06-20T12:00:00Z" }),
    ],
    NOW,
  );
  expect(holders.map(({ name, isAccount, tokens, workload }) => [name, isAccount, tokens, workload])).toEqual([
    ["ci", true, 1, undefined],
    ["nightly", true, 0, undefined],
    ["slurm", true, 0, "train"],
  ]);
});

test("holders are ordered by what they may do, then by name", () => {
  const holders = holdersOf(
    [
      token("1", "gpu-10", "auditor"),
      token("2", "gpu-10", "viewer"),
      token("3", "gpu-2", "viewer"),
      token("4", "zoe", "project-admin"),
    ],
    [],
    NOW,
  );
  expect(holders.map(({ name, role }) => `${name} ${role}`)).toEqual([
    "zoe project-admin",
    "gpu-2 viewer",
    "gpu-10 viewer",
    "gpu-10 auditor",
  ]);
});

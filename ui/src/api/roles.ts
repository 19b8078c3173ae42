//! Why somebody may not do something, and who can change that: what `docs/roles.md` says, for the pages.

import type { Permission, Role } from "./types";

/** For each permission, the role that is meant for those who need it. */
const ROLE_WITH: Record<Permission, Role> = {
  "project.read": "viewer",
  "workloads.read": "viewer",
  "logs.read": "viewer",
  "workloads.write": "project-member",
  "workloads.report": "app-controller",
  "operations.control": "project-member",
  "access.view": "viewer",
  "access.take": "project-member",
  "access.break_glass": "project-admin",
  "audit.read": "auditor",
  "archives.read": "platform-auditor",
  "tokens.write": "project-admin",
  "platform.read": "platform-operator",
  "metrics.read": "platform-metrics",
  "nodes.write": "platform-operator",
  "allocations.write": "platform-operator",
  "artifacts.write": "platform-operator",
  "keys.write": "platform-admin",
  "projects.write": "platform-admin",
};

/** A role that has the permission, and the role whose holders can give it. */
export function rolesFor(needs: Permission): { has: Role; gives: "project-admin" | "platform-admin" } {
  const has = ROLE_WITH[needs];
  return { has, gives: has.startsWith("platform-") ? "platform-admin" : "project-admin" };
}

/** Why a holder of `role` may not do what needs the permission, in two sentences. */
export function whyNot(needs: Permission, role: Role | undefined): string {
  const { has, gives } = rolesFor(needs);
  const own = role === undefined ? "your role" : `your role ${role}`;
  return `${own} does not include ${needs}. The role ${has} does; a ${gives} can give it.`;
}

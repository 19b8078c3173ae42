import { readFileSync } from "node:fs";

import { expect, it } from "vitest";

import { rolesFor, whyNot } from "./roles";
import type { Permission } from "./types";

/** The roles with each permission, from the page that is generated from the code. */
function documented(): [Permission, string[]][] {
  const page = readFileSync(new URL("../../../docs/roles.md", import.meta.url), "utf8");
  const cells = (line: string): string[] => line.split("|").slice(1, -1).map((cell) => cell.trim()); // prettier-ignore
  const [head, , ...rows] = (page.split("## Operations")[0] ?? "").split("\n").filter((line) => line.startsWith("|"));
  const [, ...roles] = cells(head ?? "");
  return rows.map((row) => {
    const [name = "", ...marks] = cells(row);
    return [name.replaceAll("`", "") as Permission, roles.filter((_, at) => marks[at] === "✓")];
  });
}

it("the named role has the permission, and the one who gives it may give that role", () => {
  const permissions = documented();
  expect(permissions.length).toBeGreaterThan(15);
  for (const [permission, roles] of permissions) {
    const { has, gives } = rolesFor(permission);
    expect(roles, permission).toContain(has);
    // A project admin can give what it has, inside of the project.
    expect(gives, permission).toBe(roles.includes("project-admin") ? "project-admin" : "platform-admin");
  }
});

it("a refusal names the role, the permission, a role that has it, and who can give that", () => {
  expect(whyNot("nodes.write", "platform-auditor")).toBe(
    "your role platform-auditor does not include nodes.write. The role platform-operator does; a platform-admin can give it.",
  );
  expect(whyNot("workloads.write", undefined)).toContain("your role does not include workloads.write");
});

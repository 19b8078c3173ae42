import { expect, it } from "vitest";

import type { Permission } from "../api/types";
import { KeySequence, shortcutsFor } from "./keys";

it("knows single keys and sequences", () => {
  const keys = new KeySequence();
  expect(keys.push("/", 0)?.does).toBe("Search");
  expect(keys.push("g", 10)).toBeUndefined();
  expect(keys.push("w", 20)?.path).toBe("/workloads");
});

it("forgets a sequence that takes too long or goes elsewhere", () => {
  const keys = new KeySequence();
  keys.push("g", 0);
  expect(keys.push("n", 5_000)).toBeUndefined();
  keys.push("g", 6_000);
  expect(keys.push("x", 6_100)).toBeUndefined();
  expect(keys.push("w", 6_200)).toBeUndefined();
});

it("a page that a person may not see has no key", () => {
  const pages = [{ path: "/nodes", needs: "platform.read" as Permission }, { path: "/workloads" }];
  const offered = (...held: Permission[]): (string | undefined)[] =>
    shortcutsFor((permission) => held.includes(permission), pages).map(({ path }) => path);
  expect(offered()).not.toContain("/nodes");
  expect(offered()).toContain("/workloads");
  expect(offered("platform.read")).toContain("/nodes");
  const keys = new KeySequence();
  const shortcuts = shortcutsFor(() => false, pages);
  keys.push("g", 0, shortcuts);
  expect(keys.push("n", 10, shortcuts)).toBeUndefined();
});

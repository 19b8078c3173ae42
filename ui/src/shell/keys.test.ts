import { expect, it } from "vitest";

import { KeySequence } from "./keys";

it("knows single keys and sequences", () => {
  const keys = new KeySequence();
  expect(keys.push("/", 0)).toBe("/");
  expect(keys.push("g", 10)).toBeUndefined();
  expect(keys.push("w", 20)).toBe("g w");
});

it("forgets a sequence that takes too long or goes elsewhere", () => {
  const keys = new KeySequence();
  keys.push("g", 0);
  expect(keys.push("n", 5_000)).toBeUndefined();
  keys.push("g", 6_000);
  expect(keys.push("x", 6_100)).toBeUndefined();
  expect(keys.push("w", 6_200)).toBeUndefined();
});

import { expect, it } from "vitest";

import { merge } from "./list";

const list = { id: (entry: { id: string }) => entry.id };

it("replaces in place, adds at the end, and removes what is gone", () => {
  const [a, b, c] = [{ id: "a" }, { id: "b" }, { id: "c" }];
  const fresh = { id: "b", changed: true };
  const merged = merge(
    [a, b, c],
    new Map<string, { id: string; changed?: boolean } | undefined>([
      ["b", fresh],
      ["c", undefined],
      ["d", { id: "d" }],
    ]),
    list,
  );
  expect(merged).toEqual([a, fresh, { id: "d" }]);
  expect(merged[0]).toBe(a);
});

it("removes entries that no longer belong into a filtered list", () => {
  const merged = merge([{ id: "a" }], new Map([["a", { id: "a" }]]), { ...list, belongs: () => false });
  expect(merged).toEqual([]);
});

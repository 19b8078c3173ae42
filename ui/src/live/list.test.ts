import { expect, it } from "vitest";

import type { Arrival } from "./arrivals.svelte";
import { inPlaces, listSource, merge } from "./list";

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

interface Named {
  id: string;
  name: string;
}

/** A list whose entries a test changes, and what it announces. */
function setUp() {
  const server: Named[] = [];
  const announced: [string, readonly Arrival[]][] = [];
  const source = listSource<Named>(
    {
      key: "test",
      page: () => Promise.resolve({ items: [...server] }),
      one: (id) => Promise.resolve(server.find((entry) => entry.id === id) ?? { id, name: id }),
      id: (entry) => entry.id,
      name: (entry) => entry.name,
      belongs: (entry) => entry.name !== "other",
      what: "thing",
      on: () => true,
    },
    {
      add: (what, entries) => {
        if (entries.length > 0) announced.push([what, entries]);
      },
    },
  );
  return { server, announced, source, signal: new AbortController().signal };
}

it("announces what later readings add, once, and nothing of the first one", async () => {
  const { server, announced, source, signal } = setUp();
  server.push({ id: "1", name: "a" });
  const first = await source.load(signal);
  server.push({ id: "2", name: "b" });
  await source.load(signal);
  server.push({ id: "3", name: "c" }, { id: "4", name: "other" });
  await source.patch?.(first, ["1", "3", "4"], signal);
  // What went away and came back is not new.
  server.splice(0, 1);
  await source.load(signal);
  server.push({ id: "1", name: "a" });
  await source.load(signal);
  expect(announced.slice(0, 2)).toEqual([
    ["thing", [{ id: "2", name: "b" }]],
    ["thing", [{ id: "3", name: "c" }]],
  ]);
  expect(announced.slice(2).flatMap(([, entries]) => entries.map(({ id }) => id))).toEqual(["4"]);
});

it("announces nothing of a list that was left while it was read", async () => {
  const { server, announced, source } = setUp();
  await source.load(new AbortController().signal);
  server.push({ id: "1", name: "a" });
  const left = new AbortController();
  left.abort();
  await source.load(left.signal);
  expect(announced).toEqual([]);
});

it("keeps entries at their places, and appends new ones in order", () => {
  const byAge = {
    id: (entry: { id: string; age: number }) => entry.id,
    order: (a: { age: number }, b: { age: number }) => a.age - b.age,
  };
  const [a, b, c, d] = [1, 2, 3, 4].map((age) => ({ id: `e${age}`, age }));
  if (!a || !b || !c || !d) throw new Error("four entries");
  expect(inPlaces([c, a], new Map(), byAge)).toEqual([a, c]);
  const places = new Map([
    ["e3", 0],
    ["e4", 1],
  ]);
  expect(inPlaces([a, b, c, d], places, byAge)).toEqual([c, d, a, b]);
});

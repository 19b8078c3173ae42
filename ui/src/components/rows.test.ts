import { describe, expect, it } from "vitest";

import { nextSort, RENDERED_MAX, rowAfterKey, Slots, sorted, tracksOf, visibleRows } from "./rows";

describe("visibleRows", () => {
  it("shows all rows of a short table", () => expect(visibleRows(200, 39, 0, 700)).toEqual({ from: 0, to: 200 }));

  it("renders at most a hundred of 10,000 rows, and always the visible ones", () => {
    for (let top = 0; top <= 10_000 * 39; top += 1_717) {
      for (const height of [400, 1_000, 1_400]) {
        const { from, to } = visibleRows(10_000, 39, top, height);
        expect(to - from).toBeLessThanOrEqual(RENDERED_MAX);
        expect(from).toBeLessThanOrEqual(Math.floor(top / 39));
        expect(to).toBeGreaterThanOrEqual(Math.min(10_000, Math.ceil((top + height) / 39)));
      }
    }
  });
});

describe("Slots", () => {
  interface Node {
    name: string;
  }

  const nodes = Array.from({ length: 300 }, (_, number): Node => ({ name: `gpu-${number}` }));
  const id = (node: Node): string => node.name;
  const slice = { from: 50, to: 90 };

  function placed(held?: string) {
    const slots = new Slots<Node>();
    const before = slots.place(nodes, slice, { id, reuse: true });
    const slotOf = (name: string) => before.find(({ row }) => row.name === name)?.slot;
    return { slots, before, slotOf, now: { id, held: held === undefined ? undefined : slotOf(held), reuse: true } };
  }

  it("uses the elements of rows that leave for those that enter, and changes and moves nothing else", () => {
    const { slots, before, now } = placed();
    const after = slots.place(nodes, { from: 53, to: 93 }, now);
    expect(after.map(({ slot }) => slot)).toEqual(before.map(({ slot }) => slot));
    const changed = after.filter((line, place) => line !== before[place]);
    expect(changed.map(({ row }) => row.name)).toEqual(["gpu-90", "gpu-91", "gpu-92"]);
    expect(changed.map(({ index }) => index)).toEqual([90, 91, 92]);
  });

  it("keeps a row in its element when rows are added and removed above it and it gets other values", () => {
    const { slots, slotOf, now } = placed();
    const changed = nodes.map((node) => (node.name === "gpu-60" ? { ...node } : node));
    const added = [{ name: "gpu-a" }, { name: "gpu-b" }, ...changed];
    for (const rows of [added, changed.slice(5), changed.filter(({ name }) => name !== "gpu-55")]) {
      const line = slots.place(rows, slice, now).find(({ row }) => row.name === "gpu-60");
      expect(line?.slot).toBe(slotOf("gpu-60"));
      expect(line?.row).toBe(changed[60]);
      expect(line?.index).toBe(rows.findIndex(({ name }) => name === "gpu-60"));
    }
  });

  it("keeps the row that has the focus in the page, at its place, wherever the window and the row are", () => {
    const { slots, slotOf, now } = placed("gpu-60");
    const at = (rows: Node[], from: number) => slots.place(rows, { from, to: from + 40 }, now);
    const holder = (lines: { row: Node }[]) => lines.find(({ row }) => row.name === "gpu-60");
    expect(holder(at(nodes, 200))).toEqual({ slot: slotOf("gpu-60"), row: nodes[60], index: 60 });
    expect(holder(at([{ name: "gpu-a" }, ...nodes], 200))).toMatchObject({ slot: slotOf("gpu-60"), index: 61 });
    expect(holder(at(nodes, 0))).toMatchObject({ slot: slotOf("gpu-60"), index: 60 });
    expect(at(nodes, 0)).toHaveLength(41);
    expect(at(nodes, 55)).toHaveLength(40);
  });

  it("shows nothing else in the element with the focus when its row was removed", () => {
    const { slots, slotOf, now } = placed("gpu-60");
    const left = nodes.filter(({ name }) => name !== "gpu-60");
    for (const from of [50, 53, 200])
      expect(slots.place(left, { from, to: from + 40 }, now).map(({ slot }) => slot)).not.toContain(slotOf("gpu-60"));
  });

  it("gives every row of a short table an element of its own, in the order of the list", () => {
    const slots = new Slots<Node>();
    const few = nodes.slice(0, 3);
    const before = slots.place(few, { from: 0, to: 3 }, { id, reuse: false });
    const after = slots.place(
      [few[0], few[2], { name: "gpu-new" }] as Node[],
      { from: 0, to: 3 },
      { id, reuse: false },
    );
    expect(after[0]).toBe(before[0]);
    expect(after[1]?.slot).toBe(before[2]?.slot);
    expect(before.map(({ slot }) => slot)).not.toContain(after[2]?.slot);
  });
});

describe("sorted", () => {
  const rows = [{ name: "gpu-10" }, { name: "gpu-2" }, { name: undefined }];

  it("orders names naturally, and rows without a value last in both directions", () => {
    expect(sorted(rows, (row) => row.name, false).map((row) => row.name)).toEqual(["gpu-2", "gpu-10", undefined]);
    expect(sorted(rows, (row) => row.name, true).map((row) => row.name)).toEqual(["gpu-10", "gpu-2", undefined]);
  });
});

it("a heading sorts up, down, and not at all", () => {
  const up = nextSort(undefined, "name");
  const down = nextSort(up, "name");
  expect([up, down, nextSort(down, "name")]).toEqual([
    { column: "name", descending: false },
    { column: "name", descending: true },
    undefined,
  ]);
});

it("keys move between rows and stop at the ends", () => {
  expect(rowAfterKey("ArrowDown", 4, 5)).toBe(4);
  expect(rowAfterKey("ArrowUp", 4, 5)).toBe(3);
  expect(rowAfterKey("End", 0, 10_000)).toBe(9_999);
  expect(rowAfterKey("a", 0, 5)).toBeUndefined();
  // Row 4 was removed.
  const moves = ["ArrowDown", "ArrowUp", "PageDown", "PageUp"].map((key) => rowAfterKey(key, 3.5, 20));
  expect(moves).toEqual([4, 3, 13, 0]);
});

it("makes tracks of columns", () => {
  expect(tracksOf([{ width: "18%" }, {}, { width: "72px" }])).toBe("18% minmax(0, 1fr) 72px");
  expect(tracksOf([{ width: "18%" }, { width: "72px" }])).toBe("minmax(0, 18fr) 72px");
});

import { describe, expect, it } from "vitest";

import { nextSort, RENDERED_MAX, rowAfterKey, sorted, visibleRows } from "./rows";

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
});

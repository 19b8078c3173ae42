import { expect, test } from "vitest";

import type { Condition } from "./condition";
import { layoutOf, nodesAt, pathsOf, ROWS_MAX, worst } from "./strip";

test("a small fleet has a mark for each node", () => {
  expect(layoutOf(64, 960)).toEqual({ columns: 80, rows: 1, each: 1, height: 12 });
});

test("a large fleet shares marks and keeps its height", () => {
  const layout = layoutOf(10_000, 960);
  expect(layout.rows).toBeLessThanOrEqual(ROWS_MAX);
  expect(layout.columns * layout.rows * layout.each).toBeGreaterThanOrEqual(10_000);
});

test("a mark shows the worst of its nodes", () => {
  const conditions: Condition[] = ["well", "attention", "well", "unreachable", "unused"];
  expect(worst(conditions, 0, 2)).toBe("attention");
  expect(worst(conditions, 0, 4)).toBe("unreachable");
  expect(worst(conditions, 4, 5)).toBe("unused");
});

test("every node is in one mark of its condition", () => {
  const conditions: Condition[] = ["well", "attention", "well"];
  const paths = pathsOf(conditions, layoutOf(3, 24));
  expect(paths.well.match(/M/g)).toHaveLength(2);
  expect(paths.attention.match(/M/g)).toHaveLength(1);
  expect(paths.unreachable).toBe("");
});

test("a point names the nodes below it", () => {
  const layout = layoutOf(10, 24);
  expect(layout).toMatchObject({ columns: 2, each: 2, rows: 3 });
  expect(nodesAt(13, 1, 10, layout)).toEqual({ from: 2, to: 4 });
  expect(nodesAt(1, 25, 10, layout)).toEqual({ from: 8, to: 10 });
  expect(nodesAt(13, 25, 10, layout)).toBeUndefined();
  expect(nodesAt(25, 1, 10, layout)).toBeUndefined();
});

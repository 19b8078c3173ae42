import { expect, it } from "vitest";

import { lineAt, offsetsOf, RENDERED_MAX, rowsGuessed, sliceOf } from "./virtual";

it("finds the line at a position among lines of different heights", () => {
  const offsets = offsetsOf(4, (index) => (index === 1 ? 60 : 20));
  expect([...offsets]).toEqual([0, 20, 80, 100, 120]);
  expect([0, 19, 20, 79, 80, 500].map((position) => lineAt(offsets, position))).toEqual([0, 0, 1, 1, 2, 3]);
});

it("draws the visible lines and some around them, never too many", () => {
  const offsets = offsetsOf(20_000, () => 20);
  const { from, to } = sliceOf(offsets, 10_000, 600);
  expect(from).toBeLessThanOrEqual(500);
  expect(to).toBeGreaterThanOrEqual(530);
  expect(to - from).toBeLessThanOrEqual(RENDERED_MAX);
  expect(sliceOf(offsets, 0, 100_000)).toEqual({ from: 0, to: RENDERED_MAX });
  expect(
    sliceOf(
      offsetsOf(0, () => 20),
      0,
      600,
    ),
  ).toEqual({ from: 0, to: 0 });
});

it("guesses the rows of a wrapped text", () => {
  expect([0, 80, 81, 200].map((length) => rowsGuessed(length, 80))).toEqual([1, 1, 2, 3]);
});

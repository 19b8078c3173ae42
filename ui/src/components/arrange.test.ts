import { expect, it } from "vitest";

import { ascendingRun } from "./arrange";

it("finds what is in order already", () => {
  expect(ascendingRun([3, 4, 5])).toEqual({ from: 0, to: 3 });
  expect(ascendingRun([7, 8, 2, 3, 4, 5, 6])).toEqual({ from: 2, to: 7 });
  expect(ascendingRun([5, 6, 7, 8, 2, 3])).toEqual({ from: 0, to: 4 });
  expect(ascendingRun([])).toEqual({ from: 0, to: 0 });
});

it("prefers what has the focus, however short it is", () => {
  expect(ascendingRun([7, 8, 2, 3, 4, 5, 6], 1)).toEqual({ from: 0, to: 2 });
  expect(ascendingRun([7, 8, 2, 3, 4, 5, 6], 6)).toEqual({ from: 2, to: 7 });
});

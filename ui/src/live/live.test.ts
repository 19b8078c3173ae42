import { expect, it } from "vitest";

import { oldestOf } from "./live.svelte";

it("after the loss of the stream, the page is as old as its oldest value", () => {
  const lostSince = 1_000;
  // A value that was read before was kept current by events until the loss.
  expect(oldestOf(lostSince, [200, 1_500])).toBe(1_000);
  expect(oldestOf(lostSince, [1_500, 1_200, undefined])).toBe(1_200);
  expect(oldestOf(lostSince, [])).toBe(1_000);
});

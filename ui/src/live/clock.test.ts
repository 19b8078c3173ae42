import { expect, it } from "vitest";

import { ServerClock } from "./clock";

it("corrects a browser's clock that is an hour off", () => {
  const clock = new ServerClock(() => Date.parse("2026-07-01T13:00:00Z"));
  clock.observe("Wed, 01 Jul 2026 12:00:00 GMT");
  expect(new Date(clock.now()).toISOString()).toBe("2026-07-01T12:00:00.000Z");
});

it("takes the rounding of the header for no difference", () => {
  const clock = new ServerClock(() => Date.parse("2026-07-01T12:00:00.900Z"));
  clock.observe("Wed, 01 Jul 2026 12:00:00 GMT");
  expect(clock.offset).toBe(0);
});

it("ignores answers without a time", () => {
  const clock = new ServerClock(() => 5_000);
  clock.observe(null);
  clock.observe("soon");
  expect(clock.now()).toBe(5_000);
});

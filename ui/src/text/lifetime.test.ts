import { expect, it } from "vitest";

import { DAY, HOUR, lifetimeFlag, lifetimeName, MINUTE } from "./lifetime";

it.each([
  [45 * MINUTE, "45 minutes", "45m"],
  [HOUR, "1 hour", "1h"],
  [12 * HOUR, "12 hours", "12h"],
  [DAY, "24 hours", "24h"],
  [30 * DAY, "30 days", "30d"],
  [365 * DAY, "1 year", "365d"],
])("a lifetime of %i seconds is %s, or %s on the command line", (seconds, name, flag) => {
  expect([lifetimeName(seconds), lifetimeFlag(seconds)]).toEqual([name, flag]);
});

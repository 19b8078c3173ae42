import { expect, test } from "vitest";

import { browserName } from "./browser";

test("known browsers have short names", () => {
  const firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:141.0) Gecko/20100101 Firefox/141.0";
  const safari = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/18.5 Safari/605.1.15";
  const edge = "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/140.0.0.0 Safari/537.36 Edg/140.0.0.0";
  expect([firefox, safari, edge].map(browserName)).toEqual(["Firefox on Linux", "Safari on macOS", "Edge on Windows"]);
});

test("others are shown as they call themselves, shortened", () => {
  expect(browserName("x".repeat(300))).toHaveLength(60);
  expect(browserName(undefined)).toBe("Unknown browser");
});

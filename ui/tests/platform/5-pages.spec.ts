//! Every page, with what a platform has: no violation of WCAG in both themes, and none is wider than a window of 360 px.

import { contrast, overflow, settled, violations } from "../browser.ts";
import { addresses } from "../pages.ts";
import { objectsOf } from "../platform-objects.ts";
import { expect, test } from "../signed-in.ts";

test("no page violates WCAG in either theme, and none is wider than a window of 360 px", async ({ open, platform }) => {
  test.setTimeout(300_000);
  for (const { path } of addresses(await objectsOf(platform))) {
    const page = await open(path);
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 1280, height: 800 });
    await settled(page);
    expect.soft(await violations(page), path).toEqual([]);
    // The themes differ in nothing but their colours.
    await page.emulateMedia({ colorScheme: "dark" });
    expect.soft(await contrast(page), `${path}, dark`).toEqual([]);
    await page.setViewportSize({ width: 360, height: 640 });
    expect.soft(await overflow(page), `${path}, 360 px`).toBe(0);
  }
});

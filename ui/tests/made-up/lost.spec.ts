//! The control plane goes away under an open page.

import { settled } from "../browser.ts";
import { expect, test } from "../made-up.ts";

test("a lost connection greys the page, and says until when it was true", async ({ page, serve, console }) => {
  console.expect(/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE|ERR_NETWORK|ERR_CONNECTION_RESET|ERR_CONNECTION_CLOSED/);
  const server = await serve();
  await page.goto(`${server.url}/workloads`);
  await settled(page);
  const main = page.getByRole("main");
  await expect(main).toHaveCSS("filter", "none");

  server.stop();
  const bar = page.getByRole("status").filter({ hasText: "Connection lost" });
  await expect(bar).toContainText(/What is shown was true at \d\d:\d\d:\d\d, \d+ s ago/);
  await expect(bar.locator("[aria-live='off']"), "no screen reader says every second of it").toHaveText(/^\d+ s ago$/);
  await expect(main).toHaveCSS("filter", "grayscale(1)");
  await expect(page.getByRole("link", { name: "train", exact: true }), "the last data stay").toBeVisible();
  // The age grows, although nothing arrives any more.
  const age = async (): Promise<number> => Number(/(\d+) s ago/.exec(await bar.innerText())?.[1]);
  const before = await age();
  await expect.poll(age).toBeGreaterThan(before);
});

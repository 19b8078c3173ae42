//! Thousands of rows and of events a second.

import { expect, test } from "../made-up.ts";

test("10,000 nodes are a list with few row elements, and the last is reached", async ({ page, serve }) => {
  const server = await serve({ nodes: 10_000 });
  await page.goto(`${server.url}/nodes`);
  const rows = page.locator("tbody tr:not([aria-hidden])");
  await expect(rows.first()).toBeVisible();
  expect(await rows.count()).toBeLessThanOrEqual(100);
  await page.evaluate(() => {
    window.scrollTo(0, document.documentElement.scrollHeight);
  });
  await expect(page.getByRole("link", { name: "gpu-10000", exact: true })).toBeVisible();
  expect(await rows.count()).toBeLessThanOrEqual(100);
});

test("a filter finds one of 1,000 workloads", async ({ page, serve }) => {
  const server = await serve({ workloads: 1_000 });
  await page.goto(`${server.url}/workloads`);
  await page.getByRole("link", { name: "load-1", exact: true }).waitFor();
  await page.keyboard.press("f");
  await page.keyboard.type("load-977");
  await expect(page.getByRole("link", { name: "load-977", exact: true })).toBeVisible();
  await expect(page.getByRole("link", { name: "load-1", exact: true })).toBeHidden();
});

test("a page stays usable while 5,000 events arrive each second", async ({ page, serve }) => {
  const server = await serve({ workloads: 1_000, rate: 5_000 });
  await page.goto(`${server.url}/workloads`);
  await page.getByRole("link", { name: "train", exact: true }).waitFor();
  let requests = 0;
  page.on("request", (request) => (requests += request.url().includes("/api/") ? 1 : 0));
  await page.waitForTimeout(3_000);
  // Events are coalesced: the page asks for what changed, not once an event.
  expect(requests).toBeLessThan(60);
  const began = Date.now();
  await page.getByRole("link", { name: "train", exact: true }).click();
  await expect(page.getByRole("heading", { level: 1, name: "train" })).toBeVisible();
  expect(Date.now() - began).toBeLessThan(2_000);
});

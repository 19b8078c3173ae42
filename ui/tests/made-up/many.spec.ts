//! Thousands of rows and of events a second.

import type { Page } from "@playwright/test";

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

/** Waits until a page has drawn this many frames. */
async function drawn(page: Page, frames: number): Promise<void> {
  await page.evaluate(async (count) => {
    for (let frame = 0; frame < count; frame += 1) await new Promise(requestAnimationFrame);
  }, frames);
}

/** Readings of one address that a page sends without an event: first the page, then what a person opens. */
const FIRST_READINGS = 5;
/** At most one reading of a whole list in this time, on average: `ALL_MS` of `live/reader.ts`. */
const PACE_MS = 150;

/** Readings of all addresses together: about twice what a page sends, and a fiftieth of the events. */
const READINGS_PER_SECOND_MAX = 100;

/** Has the browser keep the times of all requests; by default it keeps those of 250. */
async function keepTimes(page: Page): Promise<void> {
  await page.addInitScript(() => performance.setResourceTimingBufferSize(100_000));
}

/** Expects that no reading follows each event: by the clock of the page, so that a busy machine changes nothing. */
async function expectPaced(page: Page): Promise<void> {
  const [readings, now] = await page.evaluate(() => {
    const entries = performance.getEntriesByType("resource") as PerformanceResourceTiming[];
    return [entries.map(({ name, startTime }) => ({ name, startTime })), performance.now()] as const;
  });
  const ofApi = readings.filter(({ name }) => name.includes("/api/"));
  const began = ofApi[0]?.startTime ?? now;
  expect(ofApi.length).toBeLessThanOrEqual(((now - began) * READINGS_PER_SECOND_MAX) / 1_000);
  for (const address of new Set(ofApi.map(({ name }) => name))) {
    const of = ofApi.filter(({ name }) => name === address);
    const span = now - (of[0]?.startTime ?? now);
    expect(of.length, `readings of ${address} in ${span} ms`).toBeLessThanOrEqual(FIRST_READINGS + span / PACE_MS);
  }
}

test("the overview of a running operation stays usable while 5,000 events arrive each second", async ({
  page,
  serve,
}) => {
  const server = await serve({ rate: 5_000 });
  await keepTimes(page);
  await page.goto(`${server.url}/workloads/vision-ft`);
  await page.getByRole("list", { name: "Steps of the operation" }).waitFor();
  await page.getByRole("group", { name: "Log of the operation" }).locator(".line").first().waitFor();
  await drawn(page, 150);
  await expectPaced(page);
  await page.getByRole("link", { name: /^Members/ }).click();
  await expect(page.getByRole("row").filter({ hasText: "server-1" })).toBeVisible();
});

test("the events of a workload are followed, and held, while 5,000 arrive each second", async ({ page, serve }) => {
  const server = await serve({ rate: 5_000 });
  await keepTimes(page);
  await page.goto(`${server.url}/workloads/train/events`);
  const events = page.getByRole("region", { name: "Events", exact: true }).locator("[data-line]");
  const newest = async (): Promise<number> => Number(await events.last().getAttribute("data-line"));
  await events.first().waitFor();
  const before = await newest();
  await drawn(page, 150);
  await expectPaced(page);
  expect(await newest(), "the newest are shown").toBeGreaterThan(before + 1_000);
  expect(await events.count(), "as few elements").toBeLessThanOrEqual(150);

  await page.getByRole("button", { name: "Pause" }).click();
  await expect(page.getByRole("button", { name: "Continue" })).toBeVisible();
  const held = await newest();
  await drawn(page, 30);
  expect(await newest()).toBe(held);
});

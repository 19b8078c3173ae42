//! A journal of 200 MB: a page reads the part that it shows, and holds a window of what it has read.

import { readFileSync } from "node:fs";

import type { Page } from "@playwright/test";

import { type MadeUp, expect, test } from "../made-up.ts";

/** A million lines of more than 200 bytes each, as the API sends them. */
const LINES = 1_000_000;
const ROWS_MAX = 150;
const HEAP_MB_MAX = 150;

async function openLogs(page: Page, server: MadeUp, query = ""): Promise<void> {
  await page.goto(`${server.url}/workloads/train/logs${query}`);
  await lines(page).locator("time").first().waitFor();
}

const lines = (page: Page) => page.getByRole("region", { name: "Log lines" });
const rows = (page: Page) => lines(page).locator("[data-line]");

/** Waits until the page says this about what it reads. */
async function expectState(page: Page, words: string): Promise<void> {
  await expect(page.getByRole("status").filter({ hasText: words })).toBeVisible();
}

async function heapMb(page: Page): Promise<number> {
  const protocol = await page.context().newCDPSession(page);
  await protocol.send("HeapProfiler.collectGarbage");
  const { usedSize } = await protocol.send("Runtime.getHeapUsage");
  return usedSize / 1e6;
}

/** Fails if the page answers to nothing for longer than a person accepts. */
async function expectResponsive(page: Page): Promise<void> {
  const began = Date.now();
  await page.evaluate(() => new Promise(requestAnimationFrame));
  expect(Date.now() - began, "milliseconds until the next frame").toBeLessThan(1_000);
}

test("the last lines of 200 MB are shown at once, without the rest", async ({ page, serve }) => {
  const server = await serve({ journalLines: LINES });
  const protocol = await page.context().newCDPSession(page);
  await protocol.send("Network.enable");
  let bytes = 0;
  protocol.on("Network.dataReceived", ({ dataLength }) => (bytes += dataLength));
  await openLogs(page, server);
  await expectState(page, "Following");
  await expect(page.getByText("These are the last 1,000 lines.")).toBeVisible();
  await page.getByRole("button", { name: "Show the last 10,000 lines" }).click();
  await expect(page.getByText("These are the last 1,000 lines.")).toBeHidden();
  await expectState(page, "Following");
  expect(bytes / 1e6, "MB that the page received").toBeLessThan(10);
  expect(await rows(page).count()).toBeLessThanOrEqual(ROWS_MAX);

  // The search covers what the page has read.
  await page.getByRole("searchbox", { name: "Search the lines" }).fill("node password rejected");
  await page.getByRole("button", { name: "Previous match" }).click();
  await expect(page.getByText(/^[\d,]+ of [\d,]+ lines$/)).toBeVisible();
  await expect(lines(page).locator(".current mark")).toBeVisible();
});

test("200 MB are read from the beginning in a window of bounded size", async ({ page, serve }) => {
  const server = await serve({ journalLines: LINES });
  await openLogs(page, server, "?since=beginning");
  await page.getByLabel("Follow").uncheck();
  await expectState(page, "More lines below");
  // Every scroll to the end reads 5,000 lines more; the window holds 20,000.
  const last = async (): Promise<number> => {
    await lines(page).evaluate((view) => view.scrollTo(0, view.scrollHeight));
    await expectResponsive(page);
    return Number(await rows(page).last().getAttribute("data-line"));
  };
  await expect.poll(last, { timeout: 30_000, intervals: [100] }).toBeGreaterThan(30_000);
  await expect(page.getByText(/This page holds a window of the log: [\d,]+ earlier lines/)).toBeVisible();
  expect(await rows(page).count()).toBeLessThanOrEqual(ROWS_MAX);
  expect(await heapMb(page)).toBeLessThan(HEAP_MB_MAX);
});

test("a log that gets 20,000 lines a second is followed, searched and held", async ({ page, serve }) => {
  const server = await serve({ journalLines: LINES, logRate: 20_000 });
  await openLogs(page, server);
  await expect(page.getByText(/This page holds a window of the log/)).toBeVisible();
  await expectResponsive(page);
  await page.getByRole("searchbox", { name: "Search the lines" }).fill("exited with status");
  await expect(page.getByText(/^[\d,]+ lines$/)).toBeVisible();
  await expect(lines(page).locator("mark").first()).toBeVisible();
  expect(await rows(page).count()).toBeLessThanOrEqual(ROWS_MAX);
  expect(await heapMb(page)).toBeLessThan(HEAP_MB_MAX);

  // A person who reads older lines keeps them: reading pauses until they choose the newest line.
  await expect(async () => {
    await lines(page).evaluate((view) => view.scrollTo(0, view.scrollHeight / 2));
    await expect(page.getByText("Paused: the window is full")).toBeVisible({ timeout: 1_000 });
  }).toPass();
  const kept = await rows(page).first().getAttribute("data-line");
  await page.waitForTimeout(500);
  expect(await rows(page).first().getAttribute("data-line")).toBe(kept);
  await page.getByRole("button", { name: "To the newest line" }).click();
  await expectState(page, "Following");
});

test("the download is a file of the chosen lines, from the beginning", async ({ page, serve }) => {
  const server = await serve({ journalLines: 5_000 });
  await openLogs(page, server, "?source=event");
  const arrives = page.waitForEvent("download");
  await page.getByRole("link", { name: "Download", exact: true }).click();
  const download = await arrives;
  expect(download.suggestedFilename()).toBe("train.log");
  const saved = readFileSync(await download.path(), "utf8")
    .trimEnd()
    .split("\n");
  // Every 31st of the made-up lines is an event; what cannot be read is in every choice.
  expect(saved.length).toBeGreaterThan(100);
  expect(saved.filter((line) => !/ (failed, rke2_node_password_rejected|the node is unreachable)$/.test(line))).toEqual(
    [],
  );
});

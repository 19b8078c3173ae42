//! The rows of a long list while it changes: the focus, the keys, and what readers of the screen learn.

import type { Page } from "@playwright/test";

import { violations } from "../browser.ts";
import { expect, type MadeUp, type Settings, test } from "../made-up.ts";

const NODES = 300;
const ROWS_MAX = 100;
const HEADERS = { "x-gpuaas-csrf": "fixture-csrf-1" };

const table = (page: Page) => page.getByRole("table", { name: "Nodes" });
const rows = (page: Page) => page.locator("tbody tr:not([aria-hidden])");
const node = (page: Page, name: string) => page.getByRole("link", { name, exact: true });
const rowOf = (page: Page, name: string) => page.getByRole("row").filter({ has: node(page, name) });

async function openList(page: Page, serve: (settings: Settings) => Promise<MadeUp>): Promise<MadeUp> {
  const server = await serve({ nodes: NODES });
  await page.goto(`${server.url}/nodes`);
  await node(page, "gpu-01").waitFor();
  return server;
}

/** Another person registers a node. */
async function register(page: Page, server: MadeUp, name: string): Promise<void> {
  const response = await page.request.post(`${server.url}/api/v1/nodes`, { data: { name }, headers: HEADERS });
  expect(response.status()).toBe(201);
}

/** Another person deletes a node. */
async function remove(page: Page, server: MadeUp, name: string): Promise<void> {
  const response = await page.request.delete(`${server.url}/api/v1/nodes/${name}`, { headers: HEADERS });
  expect(response.status()).toBe(200);
}

async function scrollToEnd(page: Page): Promise<void> {
  await page.evaluate(() => window.scrollTo(0, document.documentElement.scrollHeight));
  await expect(node(page, `gpu-${NODES}`)).toBeInViewport();
}

/** True if rows are in the window from its top to its bottom. */
function isCovered(page: Page): Promise<boolean> {
  return page.evaluate(() => {
    for (let y = 1; y < window.innerHeight; y += 20)
      if (!document.elementFromPoint(700, y)?.closest("tr[aria-rowindex]")) return false;
    return true;
  });
}

// The page asks for a deleted node, to learn that it is gone.
test.beforeEach(({ console }) => console.expect(/\/api\/v1\/nodes\//));

test("the focus stays with its node while others come and go above it", async ({ page, serve }) => {
  const server = await openList(page, serve);
  await node(page, "gpu-05").focus();
  await register(page, server, "gpu-00");
  await expect(node(page, "gpu-00")).toBeVisible();
  await expect(rowOf(page, "gpu-05")).toHaveAttribute("aria-rowindex", "7");
  await expect(node(page, "gpu-05")).toBeFocused();
  for (const gone of ["gpu-00", "gpu-01", "gpu-04"]) {
    await remove(page, server, gone);
    await expect(node(page, gone)).toHaveCount(0);
    await expect(node(page, "gpu-05")).toBeFocused();
  }
  await page.keyboard.press("ArrowUp");
  await expect(node(page, "gpu-03")).toBeFocused();
});

test("a node that is scrolled out of the window keeps the focus, and the arrow keys continue from it", async ({
  page,
  serve,
}) => {
  const server = await openList(page, serve);
  await node(page, "gpu-05").focus();
  await scrollToEnd(page);
  await expect(node(page, "gpu-05")).toBeFocused();
  await register(page, server, "gpu-00");
  await expect(rowOf(page, "gpu-05")).toHaveAttribute("aria-rowindex", "7");
  await expect(node(page, "gpu-05")).toBeFocused();
  expect(await rows(page).count()).toBeLessThanOrEqual(ROWS_MAX);
  await page.keyboard.press("ArrowDown");
  await expect(node(page, "gpu-06")).toBeFocused();
  await expect(node(page, "gpu-06")).toBeInViewport();
  await expect(node(page, `gpu-${NODES}`)).toHaveCount(0);
});

test("when the node with the focus is deleted, the list has the focus and the arrow keys continue", async ({
  page,
  serve,
}) => {
  const server = await openList(page, serve);
  await node(page, "gpu-05").focus();
  await remove(page, server, "gpu-05");
  await expect(node(page, "gpu-05")).toHaveCount(0);
  await expect(table(page)).toBeFocused();
  await page.keyboard.press("ArrowDown");
  await expect(node(page, "gpu-06")).toBeFocused();

  await scrollToEnd(page);
  await remove(page, server, "gpu-06");
  await expect(table(page)).toBeFocused();
  await page.keyboard.press("ArrowUp");
  await expect(node(page, "gpu-04")).toBeFocused();
  await expect(node(page, "gpu-04")).toBeInViewport();
});

test("keys move between all rows of a long list, and readers of the screen learn where they are", async ({
  page,
  serve,
}) => {
  await openList(page, serve);
  await expect(table(page)).toHaveAttribute("aria-rowcount", String(NODES + 1));
  await expect(page.getByRole("row").first()).toHaveAttribute("aria-rowindex", "1");
  await node(page, "gpu-01").focus();
  for (const [key, name] of [
    ["End", "gpu-300"],
    ["PageUp", "gpu-290"],
    ["ArrowUp", "gpu-289"],
    ["Home", "gpu-01"],
    ["PageDown", "gpu-11"],
    ["ArrowDown", "gpu-12"],
  ] as const) {
    await page.keyboard.press(key);
    await expect(node(page, name), key).toBeFocused();
    await expect(node(page, name), key).toBeInViewport();
    const index = Number(name.slice("gpu-".length)) + 1;
    await expect(rowOf(page, name), key).toHaveAttribute("aria-rowindex", String(index));
  }
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1, name: "gpu-12" })).toBeVisible();
});

test("once a scroll rests, rows follow each other for the tab key and for readers of the screen", async ({
  page,
  serve,
}) => {
  await openList(page, serve);
  await page.evaluate(async () => {
    for (let step = 0; step < 40; step += 1) {
      window.scrollBy(0, 120);
      await new Promise(requestAnimationFrame);
    }
  });
  const inOrder = (): Promise<boolean> =>
    rows(page).evaluateAll((elements) => {
      const indexes = elements.map((element) => Number(element.getAttribute("aria-rowindex")));
      return indexes.every((index, place) => place === 0 || index > (indexes[place - 1] ?? 0));
    });
  await expect.poll(inOrder).toBe(true);
  // The tab key does not wait for that: the list scrolls to the row that gets the focus, and the next one uses another element.
  const last = rows(page).last();
  const next = page.locator(`tr[aria-rowindex="${Number(await last.getAttribute("aria-rowindex")) + 1}"] a`);
  await last.getByRole("link").focus();
  await expect(next).toBeAttached();
  await page.keyboard.press("Tab");
  await expect(next).toBeFocused();
});

test("the middle of a long list violates no rule of WCAG", async ({ page, serve }) => {
  await openList(page, serve);
  await page.evaluate(() => window.scrollTo(0, 6_000));
  await expect.poll(() => isCovered(page)).toBe(true);
  expect(await violations(page)).toEqual([]);
});

test("rows are where the window is when it grows, and when something above the list does", async ({ page, serve }) => {
  await page.setViewportSize({ width: 1280, height: 400 });
  await openList(page, serve);
  await page.evaluate(() => window.scrollTo(0, 6_000));
  await expect.poll(() => isCovered(page)).toBe(true);
  await page.setViewportSize({ width: 1280, height: 2_000 });
  await expect.poll(() => isCovered(page)).toBe(true);
  await page.evaluate(() => document.querySelector("h1")?.style.setProperty("padding-bottom", "3000px"));
  await expect.poll(() => isCovered(page)).toBe(true);
  expect(await rows(page).count()).toBeLessThanOrEqual(ROWS_MAX);
});

test("a name that does not fit ends with an ellipsis, and what fits is not clipped", async ({ page, serve }) => {
  const server = await openList(page, serve);
  const long = `gpu-${"rack-b12-".repeat(6)}00`;
  await register(page, server, long);
  await page.evaluate(() => window.scrollTo(0, document.documentElement.scrollHeight));
  await expect(node(page, long)).toBeInViewport();
  const overflows = (name: string) =>
    rowOf(page, name)
      .getByRole("cell")
      .evaluateAll((cells) => cells.map((cell) => getComputedStyle(cell).overflowX));
  expect((await overflows(long))[0]).toBe("clip");
  expect((await overflows(`gpu-${NODES}`))[0]).toBe("visible");
});

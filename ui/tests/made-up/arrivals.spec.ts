//! Rows that others add while a person reads a list: they are marked and announced, and nothing that the person uses moves.

import type { Page } from "@playwright/test";

import { violations } from "../browser.ts";
import { expect, type MadeUp, test } from "../made-up.ts";

const HEADERS = { "x-gpuaas-csrf": "fixture-csrf-1" };
/** How long rows are marked and how far sentences are apart, with time for a busy machine. */
const WHILE = { timeout: 20_000 };

interface Sentence {
  text: string;
  /** By the clock of the page. */
  at: number;
}

const rowOf = (page: Page, name: string) =>
  page.getByRole("row").filter({ has: page.getByRole("link", { name, exact: true }) });
const said = (page: Page, text: string) => page.getByRole("status").filter({ hasText: text });
const marked = (page: Page) => page.locator("tr.arrived");

/** Another person registers a node. */
async function register(page: Page, server: MadeUp, name: string): Promise<void> {
  const response = await page.request.post(`${server.url}/api/v1/nodes`, { data: { name }, headers: HEADERS });
  expect(response.status()).toBe(201);
}

function topOf(page: Page, name: string): Promise<number> {
  return rowOf(page, name).evaluate((row) => row.getBoundingClientRect().top);
}

/** Fails unless a row is where it was, to the pixel that a browser rounds a scroll to. */
async function expectAt(page: Page, name: string, top: number): Promise<void> {
  await expect.poll(async () => Math.abs((await topOf(page, name)) - top)).toBeLessThanOrEqual(1);
}

for (const nodes of [64, 300]) {
  test(`of ${nodes} nodes, the row under the pointer stays where it is, and the new one is marked and named`, async ({
    page,
    serve,
  }) => {
    const server = await serve({ nodes });
    await page.goto(`${server.url}/nodes`);
    await rowOf(page, "gpu-20").hover();
    await page.mouse.wheel(0, 200);
    await rowOf(page, "gpu-20").hover();
    await expect(marked(page), "nothing that was there at first is new").toHaveCount(0);
    const before = await topOf(page, "gpu-20");
    await register(page, server, "gpu-19-b");
    await expect(said(page, "New node: gpu-19-b")).toBeVisible();
    await expect(rowOf(page, "gpu-19-b")).toHaveClass(/arrived/);
    await expectAt(page, "gpu-20", before);
    expect(await violations(page)).toEqual([]);
    await expect(marked(page)).toHaveCount(0, WHILE);
    await expect(said(page, "New node")).toHaveCount(0, WHILE);
    await expectAt(page, "gpu-20", before);
  });
}

test("nothing that a person reads moves in a list that is scrolled", async ({ page, serve }) => {
  const server = await serve({ nodes: 300 });
  await page.goto(`${server.url}/nodes`);
  await rowOf(page, "gpu-01").waitFor();
  await page.mouse.move(1, 1);
  await page.evaluate(() => window.scrollTo(0, 6_000));
  await rowOf(page, "gpu-160").waitFor();
  const before = await topOf(page, "gpu-160");
  await register(page, server, "gpu-00");
  await expect(said(page, "New node: gpu-00")).toBeVisible();
  await expectAt(page, "gpu-160", before);
});

test("many arrivals are few sentences", async ({ page, serve }) => {
  const server = await serve();
  await page.goto(`${server.url}/nodes`);
  await rowOf(page, "gpu-01").waitFor();
  await page.evaluate(() => {
    const sentences: Sentence[] = [];
    Object.assign(window, { sentences });
    new MutationObserver(() => {
      const texts = [...document.querySelectorAll("[role='status']")].map((status) => status.textContent.trim());
      const sentence = texts.find((text) => / ?new nodes?/i.test(text));
      if (sentence !== undefined && sentence !== sentences.at(-1)?.text)
        sentences.push({ text: sentence, at: performance.now() });
    }).observe(document.body, { childList: true, characterData: true, subtree: true });
  });
  for (let number = 0; number < 20; number += 1) await register(page, server, `new-${number}`);
  await expect(rowOf(page, "new-19")).toBeVisible();
  const sentences = () => page.evaluate(() => (window as unknown as { sentences: Sentence[] }).sentences);
  const named = (all: Sentence[]) =>
    all.reduce((sum, { text }) => sum + Number(/^(\d+) new nodes$/.exec(text)?.[1] ?? 1), 0);
  await expect.poll(async () => named(await sentences()), WHILE).toBe(20);
  const times = (await sentences()).map(({ at }) => at);
  const gaps = times.slice(1).map((at, place) => at - (times[place] ?? 0));
  expect(Math.min(...gaps, Infinity), "a reader of the screen has time for each").toBeGreaterThan(4_500);
});

test("with reduced motion, a new row is marked all the same", async ({ page, serve }) => {
  await page.emulateMedia({ reducedMotion: "reduce" });
  const server = await serve();
  await page.goto(`${server.url}/nodes`);
  await rowOf(page, "gpu-01").waitFor();
  const plain = await rowOf(page, "gpu-01").evaluate((row) => getComputedStyle(row).backgroundColor);
  await register(page, server, "gpu-00");
  const colour = await rowOf(page, "gpu-00").evaluate((row) => getComputedStyle(row).backgroundColor);
  expect(colour).not.toBe(plain);
});

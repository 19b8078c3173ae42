//! What a person waits for, and what a long list costs the browser. Writes `figures.json`, which `cargo xtask bench ui` prints.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import type { Page } from "@playwright/test";

import { MadeUp } from "../made-up.ts";
import { PROJECT } from "../platform.ts";
import { output } from "../settings.ts";
import { test } from "../signed-in.ts";
import { CATEGORIES, isInstalled, scoresOf } from "./scores.ts";
import { framesOf, partsOf, total } from "./trace.ts";

interface Figure {
  what: string;
  unit: string;
  value: number;
  target?: number;
}

const figures: Figure[] = [];
const LOADS = 7;
const EVENTS_MS = 20_000;
const ROWS = 10_000;
const FRAMES = 300;

function percentile(values: readonly number[], percent: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil((sorted.length * percent) / 100) - 1)] ?? Number.NaN;
}

test.afterAll(() => {
  writeFileSync(join(output, "figures.json"), JSON.stringify(figures));
});

test("first load", async ({ open, page }) => {
  const protocol = await page.context().newCDPSession(page);
  await protocol.send("Network.enable");
  await protocol.send("Network.setCacheDisabled", { cacheDisabled: true });
  let bytes = 0;
  const addresses = new Map<string, string>();
  protocol.on("Network.responseReceived", ({ requestId, response }) => addresses.set(requestId, response.url));
  protocol.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => {
    if (!(addresses.get(requestId) ?? "").includes("/api/")) bytes += encodedDataLength;
  });
  const usable: number[] = [];
  for (let load = 0; load < LOADS; load += 1) {
    bytes = 0;
    const began = performance.now();
    await open("/workloads");
    await page.getByRole("heading", { level: 1, name: "Workloads" }).waitFor();
    await page.getByRole("link", { name: "Deploy an app" }).first().waitFor();
    usable.push(performance.now() - began);
  }
  figures.push(
    { what: "first load, compressed, without API answers", unit: "kB", value: bytes / 1_000, target: 200 },
    { what: `first load until usable, median of ${LOADS}`, unit: "ms", value: percentile(usable, 50), target: 1_000 },
  );
});

test("scores", async ({ platform }) => {
  const cookies = await platform.cookies(platform.running.token);
  const pages = ["/workloads", "/nodes", "/deploy"].map((path) => `${platform.url}${path}?project=${PROJECT}`);
  const results = [];
  for (const address of isInstalled ? pages : []) results.push(await scoresOf(address, cookies));
  for (const { lost } of results) lost.forEach((audit) => process.stdout.write(`lost points: ${audit}\n`));
  for (const category of CATEGORIES)
    figures.push({
      what: `Lighthouse, ${category}, worst of ${pages.length} pages, at least`,
      unit: "",
      // Infinity, if nothing was measured, is null in JSON.
      value: Math.min(...results.map(({ scores }) => scores[category])),
      target: 95,
    });
});

test("event to pixel", async ({ page }) => {
  // Every event is of the next workload; one of them shows its progress.
  const server = await MadeUp.start({ rate: 9 });
  try {
    await page.addInitScript(recordArrivals);
    await page.goto(`${server.url}/workloads`);
    await page.getByRole("link", { name: "vision-ft", exact: true }).waitFor();
    const took = await page.evaluate(untilShown, { forMs: EVENTS_MS, workload: "vision-ft" });
    figures.push(
      { what: `event to pixel, p50 of ${took.length}`, unit: "ms", value: percentile(took, 50), target: 100 },
      { what: `event to pixel, p95 of ${took.length}`, unit: "ms", value: percentile(took, 95) },
    );
  } finally {
    server.stop();
  }
});

interface Recording {
  arrivals: { at: number; text: string }[];
}

/** Runs in the page: notes when parts of the event stream arrive. */
function recordArrivals(): void {
  const recording = globalThis as unknown as Recording;
  recording.arrivals = [];
  const original = globalThis.fetch;
  globalThis.fetch = async (...args) => {
    const response = await original(...args);
    if (!(response.headers.get("content-type") ?? "").includes("event-stream") || response.body === null)
      return response;
    const decoder = new TextDecoder();
    const note = new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        recording.arrivals.push({ at: performance.now(), text: decoder.decode(chunk, { stream: true }) });
        controller.enqueue(chunk);
      },
    });
    return new Response(response.body.pipeThrough(note), response);
  };
}

/** Runs in the page: the time from each event of a workload until the first frame with what it changed. */
async function untilShown({ forMs, workload }: { forMs: number; workload: string }): Promise<number[]> {
  const { arrivals } = globalThis as unknown as Recording;
  const answer = await fetch(`/api/v1/workloads/${workload}`);
  const { id } = ((await answer.json()) as { workload: { id: string } }).workload;
  const took: number[] = [];
  const progress = (): string => /\d+\/\d+/.exec(document.querySelector("main")?.textContent ?? "")?.[0] ?? "";
  let before = progress();
  const observer = new MutationObserver(() => {
    const after = progress();
    if (after === before) return;
    before = after;
    const event = arrivals.findLast(({ text }) => text.includes(id));
    requestAnimationFrame(() => {
      if (event !== undefined) took.push(performance.now() - event.at);
    });
  });
  observer.observe(document.body, { subtree: true, childList: true, characterData: true });
  await new Promise((resolve) => setTimeout(resolve, forMs));
  observer.disconnect();
  return took;
}

test("a list of 10,000 rows", async ({ page }) => {
  const server = await MadeUp.start({ nodes: ROWS });
  try {
    await page.goto(`${server.url}/nodes`);
    await page.locator("tbody tr:not([aria-hidden])").first().waitFor();
    const browser = page.context().browser();
    await browser?.startTracing(page, {
      path: join(output, "scroll.json"),
      categories: ["devtools.timeline", "toplevel"],
    });
    await scroll(page);
    await browser?.stopTracing();
    const rows = await page.locator("tbody tr:not([aria-hidden])").count();
    const heap = await page.evaluate(() => {
      const { gc } = globalThis as unknown as { gc?: () => void };
      gc?.();
      return (performance as unknown as { memory: { usedJSHeapSize: number } }).memory.usedJSHeapSize;
    });
    const work = framesOf(join(output, "scroll.json"));
    const frames = work.map(total);
    const slow = work.filter((frame) => total(frame) >= percentile(frames, 95));
    process.stdout.write(`main-thread work a frame, mean: ${partsOf(work)}\n`);
    process.stdout.write(`main-thread work of the slowest frames, mean: ${partsOf(slow)}\n`);
    figures.push(
      {
        what: `${ROWS} rows, main-thread work a frame while scrolling, p50`,
        unit: "ms",
        value: percentile(frames, 50),
      },
      {
        what: `${ROWS} rows, main-thread work a frame while scrolling, p95`,
        unit: "ms",
        value: percentile(frames, 95),
        target: 8,
      },
      { what: `${ROWS} rows, row elements`, unit: "", value: rows, target: 100 },
      { what: `${ROWS} rows, heap`, unit: "MB", value: heap / 1e6 },
      { what: `${ROWS} rows, memory of the page's process`, unit: "MB", value: await privateMemory(page), target: 150 },
    );
  } finally {
    server.stop();
  }
});

/** Megabytes of the process of a page that it shares with no other process, such as the browser's program code. */
async function privateMemory(page: Page): Promise<number> {
  const protocol = await page.context().browser()?.newBrowserCDPSession();
  const processes = (await protocol?.send("SystemInfo.getProcessInfo"))?.processInfo ?? [];
  const ofPages = processes.filter(({ type }) => type === "renderer").map(({ id }) => privateKilobytes(id));
  return (Math.max(...ofPages) * 1_024) / 1e6;
}

function privateKilobytes(pid: number): number {
  const lines = readFileSync(`/proc/${pid}/smaps_rollup`, "utf8").matchAll(/^Private_\w+: +(\d+) kB$/gm);
  return [...lines].reduce((total, [, kilobytes]) => total + Number(kilobytes), 0);
}

async function scroll(page: Page): Promise<void> {
  await page.evaluate(async (frames) => {
    for (let frame = 0; frame < frames; frame += 1) {
      window.scrollBy(0, 120);
      await new Promise(requestAnimationFrame);
    }
  }, FRAMES);
}

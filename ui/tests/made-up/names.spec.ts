//! Names and values as long as the API lets them be, of emoji, of right-to-left text and of markup: labels, units, reports, tokens.

import type { Page } from "@playwright/test";

import { overflow, settled } from "../browser.ts";
import { type MadeUp, expect, test } from "../made-up.ts";

const MARKUP = "<img src=x onerror=\"document.title='run'\">";
const NAMES = [
  { what: "200 letters without a space", text: "x".repeat(200) },
  { what: "200 emoji", text: "🚀".repeat(200) },
  { what: "200 letters from right to left", text: "שלוםשלום ".repeat(22).trim() },
  { what: "markup and an override of direction", text: `${MARKUP}\u202egnp.exe` },
];
/** What a page shows of it: overrides of the direction are taken out. */
const shown = (text: string): string => text.replace("\u202e", "");

/** Changes what the API answers at these addresses. */
async function change(page: Page, path: RegExp, by: (body: Record<string, unknown>) => void): Promise<void> {
  await page.route(path, async (route) => {
    const response = await route.fetch();
    const body = (await response.json()) as Record<string, unknown>;
    by(body);
    await route.fulfill({ response, json: body });
  });
}

/** One line of a journal from a unit with this name, once. */
async function journalOf(page: Page, unit: string): Promise<void> {
  const line = {
    at: "2026-07-01T14:02:00.000Z",
    source: "journal",
    member: "agent-1",
    unit,
    text: unit,
    position: "1",
  };
  await page.route(/\/logs\?/, (route) => {
    const isFirst = !route.request().url().includes("resume=");
    return route.fulfill({ contentType: "application/x-ndjson", body: isFirst ? `${JSON.stringify(line)}\n` : "" });
  });
}

/** Opens a page and fails unless it shows the text whole, as text, apart from its neighbours, and in the window. */
async function expectShown(page: Page, server: MadeUp, path: string, text: string): Promise<void> {
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.goto(server.url + path);
  await settled(page);
  await expect(
    page
      .locator("main bdi")
      .filter({ hasText: shown(text) })
      .first(),
    path,
  ).toBeVisible();
  expect(await page.title(), path).not.toBe("run");
  expect(await page.locator("main img, main script").count(), path).toBe(0);
  expect(await page.locator("main").innerText(), path).not.toContain("\u202e");
  for (const width of [1280, 360]) {
    await page.setViewportSize({ width, height: 800 });
    expect(await overflow(page), `${path}, ${width} px`).toBe(0);
  }
}

for (const { what, text } of NAMES) {
  test(`${what}: a label, a token, a unit and a member's report`, async ({ page, serve }) => {
    const server = await serve();
    await change(page, /\/api\/v1\/nodes\/gpu-01$/, (node) => (node["labels"] = { rack: "b12", note: text }));
    await expectShown(page, server, "/nodes/gpu-01", text);
    await change(page, /\/api\/v1\/tokens(\?|$)/, (list) => {
      (list["items"] as { name: string }[]).forEach((token) => (token.name = text));
    });
    await expectShown(page, server, "/access", text);
    await change(page, /\/api\/v1\/workloads\/eval(\?|$)/, (detail) => {
      const [, second] = detail["members"] as { reported: { by: string; message: string } }[];
      Object.assign(second?.reported ?? {}, { by: text, message: text });
    });
    await expectShown(page, server, "/workloads/eval/members?member=agent-1", text);
    await journalOf(page, text);
    await expectShown(page, server, "/workloads/train/logs", text);
  });
}

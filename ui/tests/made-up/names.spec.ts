//! Names and values as long as the API lets them be, of emoji, of right-to-left text and of markup: labels, units, reports, tokens, and the
//! texts of an app's manifest.

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
  await expectAsText(page, path);
}

/** Fails if a text ran as markup, has marks that reorder it, or makes the page wider than the window. */
async function expectAsText(page: Page, path: string): Promise<void> {
  expect(await page.title(), path).not.toBe("run");
  expect(await page.locator("main img, main script").count(), path).toBe(0);
  expect(await page.locator("main").innerText(), path).not.toContain("\u202e");
  for (const width of [1280, 360]) {
    await page.setViewportSize({ width, height: 800 });
    expect(await overflow(page), `${path}, ${width} px`).toBe(0);
  }
}

type Manifest = Record<string, unknown>;

/** Replaces every text that the manifest of an app has for people. */
function rename(app: Manifest, text: string): void {
  Object.assign(app, { name: text, summary: text, promises: [text], not_promised: [text] });
  for (const schema of [app["placement_schema"], app["config_schema"]]) {
    const { properties = {} } = (schema ?? {}) as { properties?: Record<string, Manifest> };
    Object.values(properties).forEach((property) => (property["description"] = text));
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

  test(`${what}: the catalog, a deployment and the settings`, async ({ page, serve }) => {
    const server = await serve();
    await change(page, /\/api\/v1\/apps(\?|$)/, (list) => {
      (list["items"] as Manifest[]).forEach((app) => rename(app, text));
    });
    await change(page, /\/api\/v1\/apps\/rke2(\?|$)/, (app) => rename(app, text));
    for (const path of ["/deploy", "/apps", "/apps/rke2", "/apps/rke2/deploy"])
      await expectShown(page, server, path, text);
    await expect(page.locator("main form"), "the descriptions of its fields").toContainText(shown(text));

    await change(page, /\/api\/v1\/tokens(\?|$)/, (list) => {
      (list["items"] as { name: string }[]).forEach((token) => (token.name = text));
    });
    await change(page, /\/api\/v1\/session(\?|$)/, (session) => (session["user"] = text));
    for (const path of ["/settings", "/settings/role"]) await expectShown(page, server, path, text);
    for (const keys of [/\/api\/v1\/signing-keys(\?|$)/, /\/api\/v1\/authorities(\?|$)/])
      await change(page, keys, (list) => {
        (list["items"] as { waiting_for: string }[]).forEach((key) => (key.waiting_for = text));
      });
    await change(page, /\/api\/v1\/replicas(\?|$)/, (list) => {
      (list["items"] as Record<string, unknown>[]).forEach((replica) => Object.assign(replica, { version: text }));
    });
    for (const path of ["/settings/keys", "/settings/replicas"]) {
      await page.setViewportSize({ width: 1280, height: 800 });
      await page.goto(server.url + path);
      await settled(page);
      await expect(page.locator("main"), path).toContainText(shown(text));
      await expectAsText(page, path);
    }
  });
}

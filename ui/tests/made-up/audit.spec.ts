//! The audit: its filter, which is in the address and in the command, and its export.

import { readFileSync } from "node:fs";

import type { Page } from "@playwright/test";

import { answer, refusal } from "../forms.ts";
import { expect, test } from "../made-up.ts";

/** Of the 400 made-up records, every sixth is by this node. */
const NODE = "node/gpu-07";
const BY_NODE = 67;
/** Every 29th was refused. */
const REFUSED = 13;

const records = (page: Page) => page.getByRole("table", { name: "Audit records" });
const filter = (page: Page) => page.locator("main search");

/** The queries that the page has sent. */
function watch(page: Page): URLSearchParams[] {
  const queries: URLSearchParams[] = [];
  page.on("request", (request) => {
    const { pathname, searchParams } = new URL(request.url());
    if (pathname === "/api/v1/audit") queries.push(searchParams);
  });
  return queries;
}

async function fill(page: Page, label: string, text: string): Promise<void> {
  await filter(page).getByLabel(label, { exact: true }).fill(text);
  await filter(page).getByLabel(label, { exact: true }).press("Tab");
}

test("a filter selects records, stays after a reload and is in the command", async ({ page, serve }) => {
  const server = await serve();
  await page.goto(`${server.url}/audit`);
  await expect(records(page).getByRole("row")).toHaveCount(1 + 100);
  await fill(page, "Actor", NODE);
  await expect(records(page).getByRole("row")).toHaveCount(1 + BY_NODE);
  await expect(page.getByText(`gpuaas audit list --actor ${NODE} --project research`)).toBeVisible();
  await filter(page).getByLabel("Action", { exact: true }).selectOption("task.dispatch");
  await expect(page.getByText("No record matches")).toBeVisible();
  await filter(page).getByLabel("Action", { exact: true }).selectOption("task.complete");
  await expect(records(page).getByRole("row")).toHaveCount(1 + BY_NODE);
  await page.reload();
  await expect(filter(page).getByLabel("Actor", { exact: true })).toHaveValue(NODE);
  await expect(records(page).getByRole("row")).toHaveCount(1 + BY_NODE);
  await filter(page).getByRole("button", { name: "Clear" }).click();
  await expect(records(page).getByRole("row")).toHaveCount(1 + 100);
  expect(new URL(page.url()).search).toBe("");
});

test("what was refused can be selected", async ({ page, serve }) => {
  const server = await serve();
  await page.goto(`${server.url}/audit`);
  await filter(page).getByLabel("Result", { exact: true }).selectOption("Refused");
  await expect(records(page).getByRole("row")).toHaveCount(1 + REFUSED);
  await expect(page.getByText("gpuaas audit list --result refused --project research")).toBeVisible();
});

test("times of the form are those of the browser, and the API gets instants", async ({ page, serve }) => {
  const server = await serve();
  const queries = watch(page);
  await page.goto(`${server.url}/audit`);
  await records(page).waitFor();
  await fill(page, "From", "2026-07-01T12:00");
  await fill(page, "Before", "2026-07-02T12:00");
  await expect
    .poll(() => queries.map((query) => [query.get("since"), query.get("until")]))
    .toContainEqual(["2026-07-01T12:00:00.000Z", "2026-07-02T12:00:00.000Z"]);
});

test("older records follow on demand", async ({ page, serve }) => {
  const server = await serve();
  await page.goto(`${server.url}/audit`);
  await expect(records(page).getByRole("row")).toHaveCount(1 + 100);
  await page.getByRole("button", { name: "Older records" }).click();
  await expect(records(page).getByRole("row")).toHaveCount(1 + 200);
});

test("an export has every record of the filter as a line of JSON, the newest first", async ({ page, serve }) => {
  const server = await serve();
  await page.goto(`${server.url}/audit?actor=${encodeURIComponent(NODE)}`);
  await records(page).waitFor();
  const downloading = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export" }).click();
  const download = await downloading;
  expect(download.suggestedFilename()).toMatch(/^audit-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ\.jsonl$/);
  const lines = readFileSync(await download.path(), "utf8")
    .trimEnd()
    .split("\n");
  const exported = lines.map((line) => JSON.parse(line) as { sequence: number; actor: string });
  expect(exported).toHaveLength(BY_NODE);
  expect(new Set(exported.map(({ actor }) => actor))).toEqual(new Set([NODE]));
  const numbers = exported.map(({ sequence }) => sequence);
  expect(numbers).toEqual([...numbers].sort((a, b) => b - a));
  await expect(page.getByRole("status").filter({ hasText: `Exported ${BY_NODE} records.` })).toBeVisible();
});

test("an export of several pages has each record once", async ({ page, serve }) => {
  const server = await serve();
  const record = (sequence: number) => ({ sequence, at: "2026-07-01T12:00:00Z", actor: "ann", action: "token.create" });
  const request = /\/api\/v1\/audit\?.*limit=1000/;
  await answer(page, { method: "GET", request }, ({ searchParams }) => {
    const before = Number(searchParams.get("after") ?? 2_501);
    const count = Math.min(1_000, before - 1);
    const items = Array.from({ length: count }, (_, index) => record(before - 1 - index));
    const last = items.at(-1)?.sequence ?? 1;
    return Promise.resolve({ status: 200, json: { items, next_cursor: last > 1 ? String(last) : null } });
  });
  await page.goto(`${server.url}/audit`);
  await records(page).waitFor();
  const downloading = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export" }).click();
  const lines = readFileSync(await (await downloading).path(), "utf8")
    .trimEnd()
    .split("\n");
  const numbers = lines.map((line) => (JSON.parse(line) as { sequence: number }).sequence);
  expect(numbers).toEqual(Array.from({ length: 2_500 }, (_, index) => 2_500 - index));
  await expect(page.getByRole("status").filter({ hasText: "Exported 2,500 records." })).toBeVisible();
});

test("an export that fails saves nothing, says why, and is repeated on demand", async ({ page, serve, console }) => {
  const request = /\/api\/v1\/audit\?.*limit=1000/;
  console.expect(request);
  const server = await serve();
  let isDown = true;
  await page.route(request, (route) => {
    if (!isDown) return route.continue();
    const { status, json } = refusal([]);
    return route.fulfill({ status, contentType: "application/problem+json", body: JSON.stringify(json) });
  });
  let saved = 0;
  page.on("download", () => (saved += 1));
  await page.goto(`${server.url}/audit`);
  await records(page).waitFor();
  await page.getByRole("button", { name: "Export" }).click();
  await expect(page.getByRole("alert").filter({ hasText: "the request is refused" })).toBeVisible();
  expect(saved).toBe(0);
  isDown = false;
  const downloading = page.waitForEvent("download");
  await page.getByRole("button", { name: "Try again" }).click();
  await downloading;
});

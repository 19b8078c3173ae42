//! The fleet at a glance, and what the page of a node offers in each state.

import type { Page } from "@playwright/test";

import { ofNode } from "../actions.ts";
import { expect, test } from "../made-up.ts";

const rows = (page: Page) => page.getByRole("table", { name: "Nodes" }).getByRole("row");
const condition = (page: Page, name: RegExp) =>
  page.getByRole("group", { name: "Show nodes by condition" }).getByRole("button", { name });

test("the conditions of the fleet are counted, and each limits the list until it is chosen again", async ({
  page,
  serve,
}) => {
  const server = await serve();
  await page.goto(`${server.url}/nodes`);
  for (const name of [/^Unreachable 1$/, /^Needs attention 5$/, /^Well 57$/, /^Not in use 1$/])
    await expect(condition(page, name)).toHaveAttribute("aria-pressed", "false");
  await condition(page, /^Needs attention/).click();
  await expect(rows(page), "the heading and five nodes").toHaveCount(6);
  await page.reload();
  await expect(condition(page, /^Needs attention/)).toHaveAttribute("aria-pressed", "true");
  await expect(rows(page)).toHaveCount(6);
  await condition(page, /^Unreachable/).click();
  await expect(rows(page)).toHaveCount(2);
  await expect(page.getByRole("link", { name: "gpu-37", exact: true })).toBeVisible();
  await condition(page, /^Unreachable/).click();
  await expect(rows(page)).toHaveCount(65);
});

test("a mark of the strip names its node and opens its page", async ({ page, serve }) => {
  const server = await serve();
  await page.goto(`${server.url}/nodes`);
  const strip = page.locator(".strip svg");
  // A mark is 12 pixels wide, and the marks are in the order of the names.
  const mark = { position: { x: 36 * 12 + 6, y: 6 } };
  await strip.hover(mark);
  await expect(page.getByText("gpu-37: unreachable")).toBeVisible();
  await strip.click(mark);
  await expect(page.getByRole("heading", { level: 1, name: "gpu-37" })).toBeVisible();
});

test("a large fleet has few rows of marks, each for several nodes and as the worst of them", async ({
  page,
  serve,
}) => {
  const server = await serve({ nodes: 1_000 });
  await page.goto(`${server.url}/nodes`);
  await expect(page.getByText(/^one mark for \d+ nodes, as the worst of them$/)).toBeVisible();
  const strip = page.locator(".strip svg");
  expect(Number(await strip.getAttribute("height"))).toBeLessThanOrEqual(4 * 12);
  await strip.hover({ position: { x: 6, y: 6 } });
  await expect(page.getByText(/^gpu-01 to gpu-\d+: needs attention$/)).toBeVisible();
});

test("the list shows the member on each node with its workload", async ({ page, serve }) => {
  const server = await serve();
  await page.goto(`${server.url}/nodes`);
  const row = page.getByRole("row").filter({ has: page.getByRole("link", { name: "gpu-09", exact: true }) });
  await expect(row).toContainText("agent-2 of train");
  await row.getByRole("link", { name: "train", exact: true }).click();
  await expect(page.getByRole("heading", { level: 1, name: "train" })).toBeVisible();
});

for (const [nodes, kind] of [
  [64, "short"],
  [300, "long"],
] as const) {
  test(`in a ${kind} list, the state of a node fits at 1280 pixels, and ends with an ellipsis where it does not`, async ({
    page,
    serve,
  }) => {
    const server = await serve({ nodes });
    await page.setViewportSize({ width: 1_280, height: 1_400 });
    await page.goto(`${server.url}/nodes`);
    const row = page.getByRole("row").filter({ has: page.getByRole("link", { name: "gpu-23", exact: true }) });
    const cell = row.getByRole("cell").filter({ hasText: "Needs reimage" });
    const isCut = () => cell.evaluate((shown) => shown.scrollWidth > shown.clientWidth);
    await expect(cell).toBeVisible();
    expect(await isCut()).toBe(false);
    await expect(cell, "it has no clip of its own").not.toHaveAttribute("data-cut");
    await page.setViewportSize({ width: 900, height: 1_400 });
    await expect.poll(isCut).toBe(true);
    if (kind === "long") await expect(cell).toHaveAttribute("data-cut");
    await expect(cell).toHaveCSS("text-overflow", "ellipsis");
    await expect(cell).toHaveCSS("overflow-x", kind === "long" ? "clip" : "hidden");
    // A box in a line is clipped; only words leave room for an ellipsis.
    await expect(cell.getByText("Needs reimage")).toHaveCSS("display", "inline");
  });
}

test("a member is drained from the page of its node, or its page says why not", async ({ page, serve }) => {
  const server = await serve();
  await page.goto(`${server.url}/nodes/gpu-09`);
  const dialog = await ofNode(page, "Drain agent-2");
  await expect(dialog.getByRole("region", { name: "Steps of the plan" })).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(dialog).toBeHidden();
  for (const [node, reason] of [
    ["gpu-08", "Workload train accepts no drain of agent-1 while it is ready."],
    ["gpu-14", "No workload that you may see uses the node."],
  ] as const) {
    await page.goto(`${server.url}/nodes/${node}`);
    await page.getByRole("button", { name: "Actions", exact: true }).click();
    await expect(page.getByRole("menuitem", { name: /^Drain/ })).toContainText(reason);
  }
});

test("a viewer learns why a member is not drained", async ({ page, serve }) => {
  const server = await serve({ readOnly: true });
  await page.goto(`${server.url}/nodes/gpu-09`);
  await expect(page.getByText("Drain agent-2: your role viewer does not include workloads.write.")).toBeVisible();
  await expect(page.getByRole("button", { name: /^Drain/ })).toHaveCount(0);
});

test("a node whose machine must be reimaged is handed to the hook", async ({ page, serve }) => {
  const server = await serve();
  await page.goto(`${server.url}/nodes/gpu-23`);
  const box = page.getByRole("region", { name: "Why this state" });
  await expect(box.getByRole("button", { name: "Reset…", exact: true })).toBeVisible();
  const dialog = await ofNode(page, "Reimage");
  await expect(dialog.getByText("Everything on the machine's disks is lost.")).toBeVisible();
  await expect(dialog.getByRole("group", { name: "command" })).toHaveText("gpuaas node reimage gpu-23");
  const sent = page.waitForRequest((request) => /\/nodes\/[^/]+\/reimage$/.test(request.url()));
  await dialog.getByRole("button", { name: "Reimage", exact: true }).click();
  expect(await (await sent).headerValue("if-match"), "what the dialog has shown").not.toBeNull();
  await expect(dialog).toBeHidden();
});

test("the box of an allocation has its next action as a button", async ({ page, serve }) => {
  const server = await serve();
  await page.goto(`${server.url}/allocations`);
  await page.getByRole("link", { name: "gpu-16", exact: true }).click();
  const box = page.getByRole("region", { name: "Why this state" });
  await box.getByRole("button", { name: "Release again…", exact: true }).click();
  await expect(page.getByRole("dialog").getByText("The project loses the node")).toBeVisible();
});

test("the box of an operation has its next action as a button", async ({ page, serve }) => {
  const server = await serve();
  const { operation } = (await (await page.request.get(`${server.url}/api/v1/workloads/train`)).json()) as {
    operation: string;
  };
  await page.goto(`${server.url}/operations/${operation}`);
  const box = page.getByRole("region", { name: "Why this state" }).first();
  await box.getByRole("button", { name: "Repair agent-2", exact: true }).click();
  await expect(page.getByRole("dialog").getByRole("region", { name: "Steps of the plan" })).toBeVisible();
});

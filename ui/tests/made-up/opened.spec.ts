//! What opens over a page or in it: menus, lists, dialogs, and the review of a deployment.

import type { Page } from "@playwright/test";

import { contrast, violations } from "../browser.ts";
import { expect, test } from "../made-up.ts";

const DIALOG = "[role='dialog']";
const MENU = "[role='menu']";
const PLAN = `${DIALOG} [aria-label='Steps of the plan']`;

interface Opened {
  name: string;
  path: string;
  open: (page: Page) => Promise<void>;
  /** Selector of what opens. */
  part: string;
  /** Selector of what is in it once it is complete; by default itself. */
  until?: string;
}

const named = (name: string | RegExp) => (typeof name === "string" ? { name, exact: true } : { name });
const button = (name: string | RegExp) => (page: Page) => page.getByRole("button", named(name)).first().click();
const item = (menu: string, name: string | RegExp) => async (page: Page) => {
  await button(menu)(page);
  await page.getByRole("menuitem", named(name)).click();
};

const OPENED: readonly Opened[] = [
  { name: "a workload's actions", path: "/workloads/infer", open: button("Actions"), part: MENU },
  { name: "a member's actions", path: "/workloads/train/members", open: button("Actions for agent-2"), part: MENU },
  // Some of its items are refused, with a reason.
  { name: "a node's actions", path: "/nodes/gpu-07", open: button("Actions"), part: MENU },
  { name: "the person's menu", path: "/workloads", open: button("user@example.com"), part: MENU },
  {
    name: "the found things",
    path: "/workloads",
    open: async (page) => {
      await page.getByRole("combobox", { name: /^Search/ }).fill("tr");
    },
    part: "[role='search']",
    until: "[role='option']",
  },
  {
    name: "the keys",
    path: "/workloads",
    open: async (page) => {
      await page.getByRole("heading", { level: 1 }).waitFor();
      await page.keyboard.press("?");
    },
    part: DIALOG,
  },
  { name: "an addition", path: "/workloads/infer", open: button("Add member"), part: DIALOG, until: `${DIALOG} table` },
  { name: "a stop", path: "/workloads/infer", open: item("Actions", "Stop…"), part: DIALOG, until: PLAN },
  { name: "a repair", path: "/workloads/train", open: button("Repair agent-2"), part: DIALOG, until: PLAN },
  {
    name: "a decommission",
    path: "/workloads/infer",
    open: item("Actions", "Decommission…"),
    part: DIALOG,
    until: PLAN,
  },
  { name: "a revocation", path: "/workloads/infer/access", open: button(/^Revoke access of /), part: DIALOG },
  {
    name: "a cancellation",
    path: "/workloads/vision-ft",
    open: item("Actions", /^Cancel/),
    part: DIALOG,
  },
  { name: "a registration", path: "/nodes", open: button("Register a machine"), part: DIALOG },
  { name: "an enrollment", path: "/nodes/gpu-02", open: item("Actions", "New enrollment command…"), part: DIALOG },
  { name: "a retirement", path: "/nodes/gpu-30", open: item("Actions", "Retire…"), part: DIALOG },
  { name: "an allocation", path: "/allocations", open: button("Allocate a node"), part: DIALOG },
  { name: "an import", path: "/artifacts", open: button("Import a release"), part: DIALOG },
  { name: "a token", path: "/access", open: button("Create a token"), part: DIALOG },
  { name: "a service account", path: "/access", open: button("Create a service account"), part: DIALOG },
  { name: "a project", path: "/settings", open: button("Create a project"), part: DIALOG },
  { name: "a rotation", path: "/settings/keys", open: button(/^Continue without the nodes that delay /), part: DIALOG },
  {
    name: "a record of the audit",
    path: "/audit",
    open: (page) => page.getByRole("table", { name: "Audit records" }).getByRole("button").first().click(),
    part: DIALOG,
  },
  {
    name: "the review of a deployment",
    path: "/apps/rke2/deploy",
    open: async (page) => {
      await page.getByLabel("Name", { exact: true }).fill("train-2");
      await page.getByRole("radio", { name: /gpu-10$/ }).check();
      await page.getByRole("button", { name: "Review the plan" }).click();
    },
    part: ".review",
  },
];

test("menus, dialogs and the review violate no rule of WCAG in either theme", async ({ page, serve }) => {
  test.setTimeout(120_000);
  const server = await serve({ rate: 0.01 });
  for (const { name, path, open, part, until = part } of OPENED) {
    await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
    await page.goto(server.url + path);
    await open(page);
    await expect(page.locator(until).first(), name).toBeVisible();
    expect.soft(await violations(page, part), name).toEqual([]);
    await page.emulateMedia({ colorScheme: "dark", reducedMotion: "reduce" });
    expect.soft(await contrast(page, part), `${name}, dark`).toEqual([]);
  }
});

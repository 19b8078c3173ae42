//! The whole deployment in the browser: by mouse, and by keyboard alone.

import type { Page } from "@playwright/test";

import { expect, test } from "../signed-in.ts";

/** Counts requests that start a deployment; dry runs start nothing. */
function deployments(page: Page): { count: number } {
  const seen = { count: 0 };
  page.on("request", (request) => {
    const { pathname, searchParams } = new URL(request.url());
    const isDeployment = request.method() === "POST" && pathname === "/api/v1/workloads";
    if (isDeployment && searchParams.get("dry_run") !== "true") seen.count += 1;
  });
  return seen;
}

test("a cluster is deployed by mouse, and its progress is shown without a reload", async ({ open, platform }) => {
  const page = await open("/workloads");
  const started = deployments(page);
  let loads = 0;
  page.on("load", () => (loads += 1));
  await page.getByRole("link", { name: "Deploy an app" }).first().click();
  await page
    .getByRole("link", { name: /^Deploy / })
    .first()
    .click();
  await page.getByLabel("Name", { exact: true }).fill("train");
  await page.getByRole("radio", { name: /demo-1$/ }).check();
  await page.getByRole("checkbox", { name: /demo-2$/ }).check();
  await page.getByRole("button", { name: "Review the plan" }).click();
  const review = page.getByRole("region", { name: "Review" });
  await expect(review.getByText("demo-2").first()).toBeVisible();
  await expect(review.getByRole("region", { name: "Steps of the plan" })).toBeVisible();
  // A double click is one request.
  await review.getByRole("button", { name: "Deploy", exact: true }).dblclick();
  await expect(page.getByRole("heading", { level: 1, name: "train" })).toBeVisible();
  await expect(page.getByText("stand-in", { exact: true }).first()).toBeVisible();
  await expect(page.getByText("2 of 2 members ready")).toBeVisible({ timeout: 50_000 });
  await expect(page.getByText("Healthy").first()).toBeVisible();
  expect(loads, "the page was not loaded again").toBe(0);
  expect(started.count, "a double click is one request").toBe(1);
  expect((await platform.workload("train")).workload.lifecycle).toBe("running");
});

/** Presses Tab until the focused element has this role and name. */
async function tabTo(page: Page, role: "button" | "link" | "radio" | "textbox", name: RegExp): Promise<void> {
  const wanted = page.getByRole(role, { name }).first();
  await wanted.waitFor();
  for (let presses = 0; presses < 80; presses += 1) {
    if (await wanted.evaluate((element) => element === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  throw new Error(`Tab does not reach ${role} ${name}`);
}

test("a cluster is deployed by keyboard alone", async ({ open, platform }) => {
  const page = await open("/nodes");
  await page.getByRole("heading", { level: 1 }).waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("w");
  await expect(page.getByRole("heading", { level: 1, name: "Workloads" })).toBeVisible();
  await tabTo(page, "link", /^Deploy an app$/);
  await page.keyboard.press("Enter");
  await tabTo(page, "link", /^Deploy /);
  await page.keyboard.press("Enter");
  await tabTo(page, "textbox", /^Name/);
  await page.keyboard.type("keys");
  // One radio button of a group takes the focus; the arrows choose among them.
  await tabTo(page, "radio", /demo-3$/);
  await page.keyboard.press("Space");
  await tabTo(page, "button", /^Review the plan$/);
  await page.keyboard.press("Enter");
  await tabTo(page, "button", /^Deploy$/);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1, name: "keys" })).toBeVisible();
  await platform.untilWorkload("keys", "runs", ({ workload }) => workload.health === "healthy");
  await expect(page.getByText("1 of 1 member ready")).toBeVisible();
});

test("every refusal of a form is shown at its field at once", async ({ open, console }) => {
  console.expect(/\/api\/v1\/workloads\?/);
  const page = await open("/deploy");
  await page
    .getByRole("link", { name: /^Deploy / })
    .first()
    .click();
  await page.getByLabel("Name", { exact: true }).fill("Not A Name");
  await page.getByRole("button", { name: "Review the plan" }).click();
  await expect(page.getByLabel("Name", { exact: true })).toHaveAttribute("aria-invalid", "true");
  const alerts = page.getByRole("alert").filter({ hasText: /\S/ });
  await expect(alerts.first()).toBeVisible();
  expect(await alerts.count(), "the name and the placement").toBeGreaterThanOrEqual(2);
});

test("nodes that cannot be used stay visible with the reason", async ({ open }) => {
  const page = await open("/deploy");
  await page
    .getByRole("link", { name: /^Deploy / })
    .first()
    .click();
  const row = page.getByRole("row").filter({ hasText: "demo-1" });
  await expect(row).toContainText("train");
  await expect(row.getByRole("radio")).toBeDisabled();
});

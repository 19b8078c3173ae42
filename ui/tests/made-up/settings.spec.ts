//! The projects of the settings: who has which role in them.

import { overflow, settled, violations } from "../browser.ts";
import { expect, test } from "../made-up.ts";

test("the holders of roles in a project are listed, and each leads to what it has", async ({ page, serve }) => {
  const server = await serve();
  await page.goto(`${server.url}/settings`);
  const holders = page.getByRole("table", { name: "Roles in research" });
  await expect(holders.getByRole("row")).toHaveCount(1 + 4);
  const controller = holders.getByRole("row").filter({ hasText: "slurm-controller" });
  await expect(controller).toContainText("app-controller");
  await expect(controller).toContainText("Service account");
  await expect(holders, "an expired token gives no role").not.toContainText("old laptop");
  await expect(holders, "roles of the platform belong to no project").not.toContainText("user@example.com");
  expect(await violations(page)).toEqual([]);
  await page.setViewportSize({ width: 360, height: 640 });
  expect(await overflow(page)).toBe(0);
  await page.setViewportSize({ width: 1280, height: 800 });

  await controller.getByRole("link", { name: "slurm-controller" }).click();
  await expect(page.getByRole("heading", { level: 1, name: "Access" })).toBeVisible();
  await expect(page.getByRole("searchbox", { name: "Filter tokens and service accounts" })).toHaveValue(
    "slurm-controller",
  );
  const accounts = page.getByRole("table", { name: "Service accounts" });
  await expect(accounts.getByRole("row")).toHaveCount(2);
  await expect(page.getByText("No token matches the filter")).toBeVisible();
  await page.getByRole("searchbox", { name: "Filter tokens and service accounts" }).fill("ci");
  await expect(page.getByRole("table", { name: "Tokens" }).getByRole("row")).toHaveCount(2);
});

test("the roles in another project are one link away", async ({ page, serve }) => {
  const server = await serve();
  await page.goto(`${server.url}/settings`);
  await page.getByRole("link", { name: "Holders of roles in vision" }).click();
  const holders = page.getByRole("table", { name: "Roles in vision" });
  await expect(holders.getByRole("row")).toHaveCount(2);
  await expect(holders).toContainText("auditor");
  await expect(page.getByRole("table", { name: "Roles in research" })).toHaveCount(0);
});

test("a viewer learns why it does not see who has which role", async ({ page, serve }) => {
  const server = await serve({ readOnly: true });
  await page.goto(`${server.url}/settings`);
  await settled(page);
  await expect(
    page.getByText("See who has which role in research: your role viewer does not include tokens.write"),
  ).toBeVisible();
  await expect(page.getByRole("table", { name: /^Roles in / })).toHaveCount(0);
});

//! Pages of a platform on which there is nothing yet: each says what it is for, and leads to what fills it.

import type { Page } from "@playwright/test";

import { contrast, overflow, settled, violations } from "../browser.ts";
import { expect, test } from "../made-up.ts";

/** What fills each page, for somebody who may do everything. */
const FILLED_BY = {
  platform: {
    "/workloads": "Create a project",
    "/allocations": "Create a project",
    "/deploy": "Create a project",
    "/apps": "Import a release",
    "/operations": "gpuaas workload deploy --help",
    "/nodes": "Register a machine",
    "/artifacts": "Import a release",
    "/audit": "No records yet",
    "/access": "Create a token",
    "/settings": "Create a project",
  },
  project: {
    "/workloads": "Deploy an app",
    "/allocations": "Allocate a node",
    "/deploy": "Import a release",
    "/apps/rke2": "Import a release",
    "/apps/rke2/deploy": "Import a release",
    "/access": "Create a service account",
  },
} as const;

for (const empty of ["platform", "project"] as const) {
  test(`every page of an empty ${empty} says what fills it, in both themes and in a window of 360 px`, async ({
    page,
    serve,
  }) => {
    test.setTimeout(120_000);
    const server = await serve({ empty });
    for (const [path, filler] of Object.entries(FILLED_BY[empty])) {
      await page.emulateMedia({ colorScheme: "light" });
      await page.setViewportSize({ width: 1280, height: 800 });
      await page.goto(server.url + path);
      await settled(page);
      await expect(page.getByRole("main").getByText(filler, { exact: true }).first(), path).toBeVisible();
      expect.soft(await violations(page), path).toEqual([]);
      await page.emulateMedia({ colorScheme: "dark" });
      expect.soft(await contrast(page), `${path}, dark`).toEqual([]);
      await page.setViewportSize({ width: 360, height: 640 });
      expect.soft(await overflow(page), `${path}, 360 px`).toBe(0);
    }
  });
}

const steps = (page: Page) => page.getByRole("region", { name: "From nothing to a cluster" });

test("the first page leads to every step towards a cluster", async ({ page, serve }) => {
  const bare = await serve({ empty: "platform" });
  await page.goto(bare.url);
  await steps(page).getByRole("link", { name: "Create a project" }).click();
  await expect(page.getByRole("dialog", { name: "Create a project" })).toBeVisible();

  const server = await serve({ empty: "project" });
  for (const [link, dialog] of [
    ["Import a release", "Import a release"],
    ["Register a machine", "Register a machine"],
    ["Allocate a node", "Allocate a node"],
  ] as const) {
    await page.goto(server.url);
    await steps(page).getByRole("link", { name: link }).click();
    await expect(page.getByRole("dialog", { name: dialog })).toBeVisible();
  }
  await page.goto(server.url);
  await steps(page).getByRole("link", { name: "Deploy an app" }).click();
  await expect(page.getByRole("heading", { level: 1, name: "Deploy" })).toBeVisible();
});

test("a viewer of an empty project learns what is missing, and who can change that", async ({ page, serve }) => {
  const server = await serve({ empty: "project", readOnly: true });
  for (const [path, missing] of [
    ["/workloads", "Deploy an app: your role viewer does not include workloads.write."],
    ["/allocations", "Allocate a node: your role viewer does not include allocations.write."],
    ["/artifacts", "Import a release: your role viewer does not include artifacts.write."],
    ["/settings", "Create a project: your role viewer does not include projects.write."],
  ] as const) {
    await page.goto(server.url + path);
    await settled(page);
    await expect(page.getByText(missing).first(), path).toBeVisible();
    expect(await violations(page), path).toEqual([]);
  }
  await page.goto(server.url);
  await expect(steps(page).getByText("a member does this")).toBeVisible();
  await expect(steps(page).getByRole("link")).toHaveCount(0);
});

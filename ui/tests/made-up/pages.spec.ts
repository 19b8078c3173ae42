import { contrast, overflow, settled, violations } from "../browser.ts";
import { expect, test } from "../made-up.ts";

// The first page of a session and the page of a workload in each state; all other pages are tested on a platform.
const PAGES = [
  "/workloads",
  "/workloads/train",
  "/workloads/vision-ft",
  "/workloads/batch-q3",
  "/nodes",
  "/no-such-page",
];

test("pages of every state violate no rule of WCAG in either theme", async ({ page, serve }) => {
  const server = await serve();
  for (const path of PAGES) {
    await page.emulateMedia({ colorScheme: "light" });
    await page.goto(server.url + path);
    await settled(page);
    expect.soft(await violations(page), path).toEqual([]);
    await page.emulateMedia({ colorScheme: "dark" });
    expect.soft(await contrast(page), `${path}, dark`).toEqual([]);
  }
});

test("the sign-in page violates no rule of WCAG in either theme", async ({ page, serve, console }) => {
  console.expect(/\/api\/v1\/session$/);
  const server = await serve({ signedIn: false });
  await page.goto(server.url);
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
  expect(await violations(page)).toEqual([]);
  await page.emulateMedia({ colorScheme: "dark" });
  expect(await contrast(page)).toEqual([]);
});

test("pages fit in a window of 360 px, and the menu opens", async ({ page, serve }) => {
  const server = await serve();
  await page.setViewportSize({ width: 360, height: 640 });
  for (const path of PAGES) {
    await page.goto(server.url + path);
    await settled(page);
    expect(await overflow(page), path).toBe(0);
  }
  await page.getByRole("button", { name: "Menu", exact: true }).click();
  await page.getByRole("link", { name: /^Workloads/ }).click();
  await expect(page.getByRole("heading", { level: 1, name: "Workloads" })).toBeVisible();
});

test("an address without a page says so", async ({ page, serve }) => {
  const server = await serve();
  await page.goto(`${server.url}/no-such-page`);
  await expect(page.getByRole("heading", { level: 1, name: "Not found" })).toBeVisible();
});

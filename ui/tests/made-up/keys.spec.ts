//! Keys of the whole shell, and the theme.

import type { Page } from "@playwright/test";

import { expect, test } from "../made-up.ts";

const heading = (page: Page, name: string) => page.getByRole("heading", { level: 1, name });
const help = (page: Page) => page.getByRole("dialog", { name: "Keys" });

test("/ searches, g n goes to the nodes, ? shows the keys, and Escape closes them", async ({ page, serve }) => {
  const server = await serve();
  await page.goto(`${server.url}/workloads`);
  await expect(heading(page, "Workloads")).toBeVisible();
  const search = page.getByRole("combobox", { name: /^Search/ });
  await page.keyboard.press("/");
  await expect(search).toBeFocused();
  // In a text field, letters are text.
  await page.keyboard.type("g n?");
  await expect(search).toHaveValue("g n?");
  await page.keyboard.press("Escape");
  await expect(search).not.toBeFocused();
  await expect(search).toHaveValue("");

  await page.keyboard.press("?");
  await expect(help(page)).toContainText("Go to nodes");
  // The keys of the shell wait while a dialog is open.
  await page.keyboard.press("g");
  await page.keyboard.press("n");
  await page.keyboard.press("Escape");
  await expect(help(page)).toBeHidden();
  await expect(heading(page, "Workloads")).toBeVisible();
  await page.keyboard.press("g");
  await page.keyboard.press("n");
  await expect(heading(page, "Nodes")).toBeVisible();
  const filter = page.getByRole("searchbox", { name: "Filter nodes" });
  await expect(filter).toBeVisible();
  await page.keyboard.press("f");
  await expect(filter).toBeFocused();
});

test("a focused checkbox or radio button leaves the keys to the shell", async ({ page, serve }) => {
  const server = await serve();
  await page.goto(`${server.url}/access`);
  await page.getByRole("checkbox", { name: "Of all projects and the platform" }).focus();
  await page.keyboard.press("?");
  await expect(help(page)).toBeVisible();
  await page.keyboard.press("Escape");
  await page.goto(`${server.url}/apps/rke2/deploy`);
  await page.getByRole("radio", { disabled: false }).first().focus();
  await page.keyboard.press("g");
  await page.keyboard.press("w");
  await expect(heading(page, "Workloads")).toBeVisible();
});

test("without the right to see nodes, no key leads to them", async ({ page, serve }) => {
  const server = await serve();
  await page.route(/\/api\/v1\/session$/, async (route) => {
    const response = await route.fetch();
    const session = (await response.json()) as { permissions: string[] };
    const permissions = session.permissions.filter((permission) => permission !== "platform.read");
    await route.fulfill({ response, json: { ...session, permissions } });
  });
  await page.goto(`${server.url}/workloads`);
  await expect(heading(page, "Workloads")).toBeVisible();
  await page.keyboard.press("?");
  await expect(help(page)).toContainText("Go to allocations");
  await expect(help(page)).not.toContainText("Go to nodes");
  await page.keyboard.press("Escape");
  await expect(help(page)).toBeHidden();
  await page.keyboard.press("g");
  await page.keyboard.press("n");
  // The next sequence works, and nothing happened before it.
  await page.keyboard.press("g");
  await page.keyboard.press("a");
  await expect(heading(page, "Allocations")).toBeVisible();
  await page.goBack();
  await expect(heading(page, "Workloads")).toBeVisible();
});

test("the theme is switched in the menu and stays after a reload", async ({ page, serve }) => {
  const server = await serve();
  await page.emulateMedia({ colorScheme: "dark" });
  await page.goto(`${server.url}/workloads`);
  const background = (): Promise<string> =>
    page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const choose = async (shown: string): Promise<void> => {
    await page.getByRole("button", { name: "user@example.com" }).click();
    await page.getByRole("menuitem", { name: `Theme: ${shown}` }).click();
  };
  const [LIGHT, DARK] = ["rgb(247, 247, 245)", "rgb(19, 20, 22)"];
  await expect.poll(background).toBe(DARK);
  // Each choice is the next one: light, dark, and the system's again.
  await choose("system");
  await expect.poll(background).toBe(LIGHT);
  await page.reload();
  await expect(heading(page, "Workloads")).toBeVisible();
  expect(await background(), "the choice outlives the page").toBe(LIGHT);
  await choose("light");
  await page.emulateMedia({ colorScheme: "light" });
  await expect.poll(background).toBe(DARK);
  await choose("dark");
  await expect.poll(background).toBe(LIGHT);
});

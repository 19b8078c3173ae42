//! A session that ends under an open page: the sign-in covers the page, which stays for the same person and for nobody else.

import type { Locator, Page } from "@playwright/test";

import { violations } from "../browser.ts";
import { answer } from "../forms.ts";
import { expect, type MadeUp, test } from "../made-up.ts";

const TYPED = "typed before the session ended";
const SECRET = "gpuaas_a-secret-that-is-shown-once";

async function current(page: Page, server: MadeUp): Promise<{ id: string; csrf: string }> {
  return (await (await page.request.get(`${server.url}/api/v1/session`)).json()) as { id: string; csrf: string };
}

/** Ends the session of the page as somebody else would who revokes it. */
async function revoke(page: Page, server: MadeUp): Promise<void> {
  const { id, csrf } = await current(page, server);
  const revoked = await page.request.delete(`${server.url}/api/v1/sessions/${id}`, {
    headers: { "x-gpuaas-csrf": csrf },
  });
  expect(revoked.status()).toBe(200);
  await expect(page.getByRole("heading", { level: 1, name: "Sign in" })).toBeVisible();
}

async function signIn(page: Page, token: string): Promise<void> {
  await page.getByLabel("Token, or a whole sign-in link").fill(token);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
}

/** Opens a dialog and types into it. */
async function typeInto(page: Page, server: MadeUp): Promise<Locator> {
  await page.goto(`${server.url}/access?project=vision`);
  await page.getByRole("button", { name: "Create a token" }).click();
  const dialog = page.getByRole("dialog", { name: "Create a token" });
  await dialog.getByLabel("Name", { exact: true }).fill(TYPED);
  return dialog;
}

test("the same person finds the dialog and the typed text, and sends it once", async ({ page, serve, console }) => {
  console.expect(/\/api\/v1\//);
  const server = await serve({ rate: 100 });
  let counts = 0;
  const streams: { lastId: string | undefined; url: string }[] = [];
  const created: (string | undefined)[] = [];
  page.on("request", (request) => {
    const headers = request.headers();
    const { pathname, searchParams } = new URL(request.url());
    if (pathname === "/api/v1/workloads" && searchParams.get("limit") === "1") counts += 1;
    const isStream = headers["accept"] === "text/event-stream";
    if (isStream) streams.push({ lastId: headers["last-event-id"], url: request.url() });
    if (request.method() === "POST" && pathname === "/api/v1/tokens") created.push(headers["x-gpuaas-csrf"]);
  });
  const dialog = await typeInto(page, server);
  const title = await page.title();
  // The number in the navigation is read at the start, when the stream is open, and then because of events.
  await expect.poll(() => counts).toBeGreaterThan(2);
  await revoke(page, server);

  await expect(page.getByText(/^Your session ended/)).toBeVisible();
  await expect(dialog).toBeHidden();
  await expect(page.getByRole("heading", { level: 1, name: "Access", includeHidden: true })).toBeHidden();
  expect(await page.title()).toBe("Sign in · GPUaaS");
  expect(await violations(page)).toEqual([]);
  // Neither Escape nor a key of the shell reaches what is under it.
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");
  await expect(page.getByRole("heading", { level: 1, name: "Sign in" })).toBeVisible();

  await signIn(page, "the-same-token");
  await expect(dialog.getByLabel("Name", { exact: true })).toHaveValue(TYPED);
  await expect(dialog.getByLabel("Name", { exact: true })).toBeFocused();
  await expect(page).toHaveTitle(title);
  await expect(page.getByRole("banner").getByRole("status").filter({ hasText: "Live" })).toBeVisible();
  const again = streams.filter(({ url }) => !url.includes("from_now"));
  expect(again.length, "streams continue after the last event").toBeGreaterThan(0);
  for (const { lastId } of again) expect(Number(lastId)).toBeGreaterThan(0);

  await dialog.getByRole("button", { name: "Create", exact: true }).click();
  await expect(page.getByText("This token is shown only now.")).toBeVisible();
  expect(created).toEqual([(await current(page, server)).csrf]);
});

test("nothing that one person typed or read is there for another", async ({ page, serve, console }) => {
  console.expect(/\/api\/v1\//);
  const server = await serve();
  await typeInto(page, server);
  await page.evaluate(() => Object.assign(window, { before: "of the first person" }));
  await revoke(page, server);
  await signIn(page, "a-token-of-another-person");
  await expect(page.getByRole("heading", { level: 1, name: "Workloads" })).toBeVisible();
  await expect(page.getByRole("button", { name: "other@example.com" })).toBeVisible();
  await expect(page.getByRole("dialog")).toHaveCount(0);
  expect(await page.content()).not.toContain(TYPED);
  expect(new URL(page.url()).search, "the filter of an address is something typed").not.toContain("vision");
  expect(await page.evaluate(() => "before" in window), "the memory of the page is gone, too").toBe(false);
});

test("a secret that is shown once is not in the document under the sign-in", async ({ page, serve, console }) => {
  console.expect(/\/api\/v1\//);
  const server = await serve();
  const token = { id: "t", name: "ann", role: "viewer", expires_at: "2036-07-01T12:00:00Z" };
  await answer(page, { method: "POST", request: /\/api\/v1\/tokens$/ }, () =>
    Promise.resolve({ status: 201, json: { secret: SECRET, token } }),
  );
  const dialog = await typeInto(page, server);
  await dialog.getByRole("button", { name: "Create", exact: true }).click();
  await expect(page.getByText(SECRET)).toBeVisible();
  await revoke(page, server);
  expect(await page.content()).not.toContain(SECRET);
  await signIn(page, "the-same-token");
  await expect(page.getByText(SECRET)).toBeVisible();
});

test("a sign-in in one tab uncovers the others, and a sign-out leaves nothing in them", async ({
  page,
  context,
  serve,
  console,
}) => {
  console.expect(/\/api\/v1\//);
  const server = await serve();
  const dialog = await typeInto(page, server);
  const second = await context.newPage();
  await second.goto(`${server.url}/workloads/train`);
  await revoke(page, server);
  await expect(second.getByRole("heading", { level: 1, name: "Sign in" })).toBeVisible();
  await signIn(second, "the-same-token");
  await expect(second.getByRole("heading", { level: 1, name: "train" })).toBeVisible();
  await expect(dialog.getByLabel("Name", { exact: true })).toHaveValue(TYPED);

  await second.getByRole("button", { name: "user@example.com" }).click();
  await second.getByRole("menuitem", { name: "Sign out…" }).click();
  const question = second.getByRole("dialog", { name: "Sign out" });
  const { id } = await current(page, server);
  await expect(question.getByRole("group", { name: "command" })).toHaveText(`gpuaas session revoke ${id}`);
  await question.getByRole("button", { name: "Sign out", exact: true }).click();
  for (const tab of [page, second]) {
    await expect(tab.getByRole("heading", { level: 1, name: "Sign in" })).toBeVisible();
    await expect(tab.getByRole("navigation", { name: "Pages", includeHidden: true })).toHaveCount(0);
    await expect(tab.getByText(/Your session ended/)).toHaveCount(0);
  }
});

test("under the sign-in, the tab has the title of no page, also not of one that somebody goes back to", async ({
  page,
  serve,
  console,
}) => {
  console.expect(/\/api\/v1\//);
  const server = await serve();
  await page.goto(`${server.url}/workloads/train`);
  await expect(page).toHaveTitle("train · GPUaaS");
  const pages = page.getByRole("navigation", { name: "Pages" });
  await pages.getByRole("link", { name: /^Workloads/ }).click();
  await expect(page).toHaveTitle("Workloads · GPUaaS");
  await revoke(page, server);
  await page.goBack();
  await expect(page.locator("h1", { hasText: /^train$/ }), "it is there, but hidden").toHaveCount(1);
  expect(await page.title()).toBe("Sign in · GPUaaS");
  await signIn(page, "the-same-token");
  await expect(page.getByRole("heading", { level: 1, name: "train" })).toBeVisible();
  await expect(page).toHaveTitle("train · GPUaaS");
});

test("a page that the browser kept, and shows again to a person who goes back, reloads", async ({
  page,
  serve,
  console,
}) => {
  console.expect(/\/api\/v1\//);
  const server = await serve();
  await page.goto(`${server.url}/workloads`);
  await expect(page.getByRole("heading", { level: 1, name: "Workloads" })).toBeVisible();
  const loaded = page.waitForEvent("load");
  await page.evaluate(() => {
    Object.assign(window, { before: "of the first person" });
    window.dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true }));
  });
  await loaded;
  expect(await page.evaluate(() => "before" in window)).toBe(false);
});

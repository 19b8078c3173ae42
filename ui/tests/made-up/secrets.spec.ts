//! Secrets of tokens are shown once: they are in no address, no request, no storage, no line of the console and no later page.

import type { Locator, Page } from "@playwright/test";

import { answer } from "../forms.ts";
import { expect, test } from "../made-up.ts";

const SECRET = "gpuaas_a-secret-that-is-shown-once";
const TOKEN = {
  id: "0198c0de-7a3b-7c11-9b54-0242ac12c001",
  name: "ann",
  role: "viewer",
  project_name: "research",
  created_at: "2026-07-01T12:00:00Z",
  expires_at: "2036-07-01T12:00:00Z",
};

interface Way {
  name: string;
  /** Matches the address of the request whose answer has the secret. */
  request: RegExp;
  /** Opens the dialog that asks for the token. */
  open: (page: Page) => Promise<void>;
}

const WAYS: readonly Way[] = [
  {
    name: "a token",
    request: /\/api\/v1\/tokens$/,
    open: async (page) => {
      await page.getByRole("button", { name: "Create a token", exact: true }).click();
      await page.getByRole("dialog").locator('[name="name"]').fill("ann");
    },
  },
  {
    name: "a token of a service account",
    request: /\/api\/v1\/service-accounts\/ci\/tokens/,
    open: async (page) => {
      await page.getByRole("button", { name: "Actions for ci", exact: true }).click();
      await page.getByRole("menuitem", { name: "Create a token…" }).click();
    },
  },
  {
    name: "the first token of a new service account",
    request: /\/api\/v1\/service-accounts\/[^/]+\/tokens/,
    open: async (page) => {
      await page.getByRole("button", { name: "Create a service account", exact: true }).click();
      const dialog = page.getByRole("dialog", { name: "Create a service account" });
      await dialog.locator('[name="name"]').fill("nightly");
      await dialog.getByRole("button", { name: "Create", exact: true }).click();
      await expect(page.getByRole("dialog", { name: /^Token of / })).toBeVisible();
    },
  },
];

/** The places in which the browser has the secret, apart from what it shows. */
function keptIn(page: Page): Promise<string[]> {
  return page.evaluate(async (secret) => {
    const fields = [...document.querySelectorAll("input, textarea")] as HTMLInputElement[];
    const places: Record<string, string> = {
      address: location.href,
      "window's name": window.name,
      title: document.title,
      "state of the history": JSON.stringify(history.state),
      cookies: document.cookie,
      "local storage": JSON.stringify({ ...localStorage }),
      "session storage": JSON.stringify({ ...sessionStorage }),
      databases: JSON.stringify(await indexedDB.databases()),
      caches: JSON.stringify(await caches.keys()),
      "addresses of requests": JSON.stringify(performance.getEntries()),
      fields: fields.map(({ value }) => value).join("\n"),
    };
    return Object.keys(places).filter((place) => places[place]?.includes(secret));
  }, SECRET);
}

/** Collects the requests and the lines of the console that contain the secret. */
function watch(page: Page): string[] {
  const found: string[] = [];
  page.on("request", (request) => {
    const sent = [request.url(), JSON.stringify(request.headers()), request.postData() ?? ""];
    if (sent.some((text) => text.includes(SECRET))) found.push(`${request.method()} ${request.url()}`);
  });
  page.on("console", (message) => {
    if (message.text().includes(SECRET)) found.push(`console: ${message.type()}`);
  });
  return found;
}

/** Asks for the token and waits until its secret is shown. */
async function create(page: Page, way: Way): Promise<Locator> {
  await way.open(page);
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Create", exact: true }).click();
  await expect(dialog.getByText("This token is shown only now.")).toBeVisible();
  await expect(dialog.getByRole("group", { name: "token" })).toHaveText(SECRET);
  return dialog;
}

for (const way of WAYS) {
  test(`the secret of ${way.name} is nowhere but in its dialog, and nowhere after it`, async ({ page, serve }) => {
    const server = await serve();
    const found = watch(page);
    let asked = 0;
    await answer(page, { method: "POST", request: way.request }, () => {
      asked += 1;
      return Promise.resolve({ status: 201, json: { secret: SECRET, token: TOKEN } });
    });
    await page.goto(`${server.url}/access`);
    const dialog = await create(page, way);
    expect(await keptIn(page)).toEqual([]);
    await dialog.getByRole("button", { name: "Copy token" }).click();
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(SECRET);

    await dialog.getByRole("button", { name: "Close", exact: true }).last().click();
    await expect(dialog).toBeHidden();
    const gone = async (when: string): Promise<void> => {
      expect(await page.content(), when).not.toContain(SECRET);
      expect(await keptIn(page), when).toEqual([]);
    };
    await gone("after the dialog");
    await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Audit" }).click();
    await expect(page.getByRole("heading", { level: 1, name: "Audit" })).toBeVisible();
    await gone("on the next page");
    await page.goBack();
    await expect(page.getByRole("heading", { level: 1, name: "Access" })).toBeVisible();
    await gone("on the way back");
    await page.reload();
    await expect(page.getByRole("heading", { level: 1, name: "Access" })).toBeVisible();
    await gone("after a reload");
    expect([asked, found], "asked for once, and sent nowhere").toEqual([1, []]);
  });
}

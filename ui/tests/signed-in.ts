//! Pages of people who are signed in to the platform.

import { existsSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";

import type { BrowserContext, Page } from "@playwright/test";

import { test as base } from "./browser.ts";
import { type Platform, PROJECT, running } from "./platform.ts";

/** A built shell to use instead of the one in the program: tests of a change then need no build of the control plane. */
const dist = process.env["UI_DIST"];
const TYPES: Record<string, string> = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};

async function replaceShell(context: BrowserContext, folder: string): Promise<void> {
  await context.route(/^https:\/\/[^/]+\/(?!api\/|docs\/)/, async (route) => {
    const { pathname } = new URL(route.request().url());
    const file = join(folder, pathname);
    const body = readFileSync(extname(pathname) !== "" && existsSync(file) ? file : join(folder, "index.html"));
    await route.fulfill({ body, contentType: TYPES[extname(pathname)] ?? "text/html" });
  });
}

export interface Fixtures {
  platform: Platform;
  /** Signs this test's browser in, as the platform's administrator or with a token of this role. */
  signIn: (role?: string) => Promise<void>;
  /** Another person, in a browser of their own, with a token of this role. */
  person: (role: string) => Promise<Page>;
  /** Opens a page of the shell for the tests' project. */
  open: (path: string) => Promise<Page>;
}

const tokens = new Map<string, string>();

async function tokenOf(platform: Platform, role: string): Promise<string> {
  const token = tokens.get(role) ?? (await platform.token(`${role}-${process.pid}`, role));
  tokens.set(role, token);
  return token;
}

export const test = base.extend<Fixtures>({
  // eslint-disable-next-line no-empty-pattern -- Playwright reads the names of a fixture's dependencies from this pattern.
  platform: async ({}, use) => {
    const platform = running();
    // Those of the test before: its pages are closed now.
    await platform.endSessions();
    await use(platform);
  },
  signIn: async ({ context, platform }, use) => {
    if (dist !== undefined) await replaceShell(context, dist);
    await use(async (role) => {
      const token = role === undefined ? platform.running.token : await tokenOf(platform, role);
      await context.clearCookies();
      await context.addCookies(await platform.cookies(token));
    });
  },
  person: async ({ browser, platform, console }, use) => {
    const contexts: BrowserContext[] = [];
    await use(async (role) => {
      const context = await browser.newContext({ ignoreHTTPSErrors: true });
      contexts.push(context);
      console.watch(context);
      if (dist !== undefined) await replaceShell(context, dist);
      await context.addCookies(await platform.cookies(await tokenOf(platform, role)));
      return context.newPage();
    });
    await Promise.all(contexts.map((context) => context.close()));
  },
  open: async ({ page, platform, signIn }, use) => {
    await signIn();
    await use(async (path) => {
      const query = `${path.includes("?") ? "&" : "?"}project=${PROJECT}`;
      await page.goto(platform.url + path + query);
      return page;
    });
  },
});

export { expect } from "@playwright/test";

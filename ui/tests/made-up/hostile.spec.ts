//! Names, texts and journals that contain markup, right-to-left text and escape sequences: what a tenant or a node can put there.

import type { Page, Route } from "@playwright/test";

import { overflow, settled } from "../browser.ts";
import { expect, test } from "../made-up.ts";

const MARKUP = '<img src=x onerror="document.title=\'run\'"><script>document.title="run"</script>';
const TEXTS = [MARKUP, "\u202egnp.exe", "\u001b[31mred\u001b[0m\u0007", "名前 😀 עברית", "x".repeat(200)];

/** Replaces every text of an answer that nothing depends on by a hostile one. */
function hostile(value: unknown, text: string): unknown {
  const free = new Set([
    "detail",
    "summary",
    "evidence",
    "evidence_source",
    "next",
    "what",
    "version",
    "endpoint",
    "region",
  ]);
  if (Array.isArray(value)) return value.map((entry) => hostile(entry, text));
  if (typeof value !== "object" || value === null) return value;
  const changed = Object.entries(value).map(([name, of]) => [
    name,
    free.has(name) && typeof of === "string" ? text : hostile(of, text),
  ]);
  return Object.fromEntries(changed) as unknown;
}

async function answerHostile(page: Page, text: string): Promise<void> {
  await page.route(/\/api\/v1\/(workloads|nodes|operations|tasks|audit)/, async (route: Route) => {
    const response = await route.fetch();
    const type = response.headers()["content-type"] ?? "";
    if (!type.includes("json") || !response.ok()) return route.fulfill({ response });
    return route.fulfill({ response, json: hostile(await response.json(), text) });
  });
}

for (const [index, text] of TEXTS.entries()) {
  test(`hostile text ${index + 1} is shown as text`, async ({ page, serve }) => {
    const server = await serve();
    await answerHostile(page, text);
    for (const path of ["/workloads", "/workloads/train", "/nodes"]) {
      await page.goto(server.url + path);
      await settled(page);
      expect(await page.title(), path).not.toBe("run");
      expect(await page.locator("img[src=x], main script").count(), path).toBe(0);
      // Escape sequences and other control characters reach no terminal and no clipboard from here.
      // eslint-disable-next-line no-control-regex -- Control characters are what this looks for.
      expect(await page.locator("main").innerText(), path).not.toMatch(/[\u0000-\u0008\u000b-\u001f]/);
      expect(await overflow(page), path).toBe(0);
    }
  });
}

//! The tests' own `test`: any error in the console of any page fails the test.

import { AxeBuilder } from "@axe-core/playwright";
import { type BrowserContext, expect, type Page, test as base } from "@playwright/test";

export { expect };

/** Errors of the console, except those that the test expects. */
export class Console {
  readonly #errors: { text: string; url: string }[] = [];
  readonly #expected: RegExp[] = [];

  /** Permits errors whose text or address matches: requests that the test has refused. */
  expect(pattern: RegExp): void {
    this.#expected.push(pattern);
  }

  watch(context: BrowserContext): void {
    context.on("console", (message) => {
      if (message.type() === "error") this.#errors.push({ text: message.text(), url: message.location().url });
    });
    context.on("weberror", (error) => {
      this.#errors.push({ text: error.error().stack ?? error.error().message, url: error.page()?.url() ?? "" });
    });
    context.on("dialog", (dialog) => {
      this.#errors.push({ text: `a script opened a dialog: ${dialog.message()}`, url: "" });
      void dialog.dismiss();
    });
  }

  unexpected(): string[] {
    return this.#errors
      .filter(({ text, url }) => !this.#expected.some((pattern) => pattern.test(text) || pattern.test(url)))
      .map(({ text, url }) => `${text} (${url})`);
  }
}

export const test = base.extend<{ console: Console }>({
  console: [
    async ({ context }, use) => {
      const errors = new Console();
      errors.watch(context);
      await use(errors);
      if (errors.unexpected().length > 0) throw new Error(`errors in the console:\n${errors.unexpected().join("\n")}`);
    },
    { auto: true },
  ],
});

/** Violations of WCAG 2.2 A and AA, and of axe's best practices, on a page or in the part of it that a selector names, one a line. */
export async function violations(page: Page, part?: string): Promise<string[]> {
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  return found(axe(page, part).withTags(tags));
}

/** Violations of the rules about colours alone. */
export async function contrast(page: Page, part?: string): Promise<string[]> {
  return found(axe(page, part).withRules(["color-contrast", "link-in-text-block"]));
}

function axe(page: Page, part: string | undefined): AxeBuilder {
  const builder = new AxeBuilder({ page });
  return part === undefined ? builder : builder.include(part);
}

async function found(builder: AxeBuilder): Promise<string[]> {
  const { violations } = await builder.analyze();
  return violations.flatMap(({ id, help, nodes }) =>
    nodes.map((node) => `${id}: ${help}: ${node.target.join(" ")}: ${node.failureSummary ?? ""}`),
  );
}

/** How many pixels the page is wider than the window. */
export async function overflow(page: Page): Promise<number> {
  return page.evaluate(async () => {
    // Parts of a page follow its width when they have been laid out: two frames later.
    for (let frame = 0; frame < 2; frame += 1) await new Promise(requestAnimationFrame);
    return Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth);
  });
}

/** Waits until the page has loaded what it shows: its heading is there, and no request is under way. */
export async function settled(page: Page): Promise<void> {
  await page.getByRole("heading", { level: 1 }).first().waitFor();
  await page.waitForLoadState("load");
  await page.waitForFunction(() => document.querySelector("[aria-busy='true']") === null);
  // Requests follow each other: the page's code, then its data. The event stream stays open, so the network is never idle.
  await page.waitForTimeout(250);
}

/** Marks that reorder the text around them: a page takes them out. */
const REORDERS = /[\u200e\u200f\u202a-\u202e\u2066-\u2069]/;
// eslint-disable-next-line no-control-regex -- Control characters are what this looks for.
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/;

/** Fails if a hostile text ran as markup, if its control characters reach the clipboard, or if it makes the page wider than the window. */
export async function expectHarmless(page: Page, what: string): Promise<void> {
  expect(await page.title(), what).not.toBe("run");
  const parts = page.locator("main, [role='dialog']");
  expect(await parts.locator("img, script").count(), what).toBe(0);
  const text = (await parts.allInnerTexts()).join("\n");
  expect(text, what).not.toMatch(CONTROLS);
  expect(text, what).not.toMatch(REORDERS);
  expect(await overflow(page), what).toBe(0);
}

//! Two clicks at once are one request, wherever a request changes something.

import type { Locator, Page } from "@playwright/test";

import { answer, type FormCase, FORMS, refusal } from "../forms.ts";
import { expect, test } from "../made-up.ts";

interface Click extends Pick<FormCase, "name" | "path" | "open" | "method" | "request"> {
  button: string;
  signedOut?: boolean;
  /** What the request answers. */
  given: { status: number; json: unknown };
  /** Waits for what the page shows after it. */
  done: (page: Page, button: Locator) => Promise<void>;
}

const closed = (page: Page): Promise<void> => expect(page.getByRole("dialog")).toBeHidden();

const ACTIONS: readonly Click[] = [
  {
    name: "a confirmation",
    path: "/access",
    open: async (page) => {
      await page.getByRole("button", { name: "Revoke the token of ci" }).click();
      return page.getByRole("dialog");
    },
    button: "Revoke",
    method: "DELETE",
    request: /\/api\/v1\/tokens\/[^/?]+$/,
    given: { status: 200, json: {} },
    done: closed,
  },
  {
    name: "the run of a plan",
    path: "/workloads/infer",
    open: async (page) => {
      await page.getByRole("button", { name: "Actions", exact: true }).click();
      await page.getByRole("menuitem", { name: "Stop…" }).click();
      return page.getByRole("dialog");
    },
    button: "Stop",
    method: "POST",
    request: /\/api\/v1\/workloads\/[^/]+\/operations\?.*plan_digest=/,
    given: { status: 202, json: { operation: {}, workload: {} } },
    done: closed,
  },
  {
    name: "the copy of a credential",
    path: "/workloads/infer/access",
    open: (page) => Promise.resolve(page.getByRole("region", { name: "Get access" })),
    button: "Copy",
    method: "POST",
    request: /\/api\/v1\/workloads\/[^/]+\/kubeconfig/,
    given: {
      status: 201,
      json: { grant: "g", kind: "direct", role: "cluster-view", kubeconfig: "v1", expires_at: "2036-07-01T12:00:00Z" },
    },
    done: (page) =>
      expect(page.getByRole("region", { name: "Get access" }).getByText(/^Delivered with the role/)).toBeVisible(),
  },
];

const SENT: readonly Click[] = FORMS.flatMap((form) => {
  const { button } = form;
  if (button === undefined) return [];
  // A refused form stays open, and can be sent again.
  const done = (_: Page, sent: Locator): Promise<void> => expect(sent).toBeEnabled();
  return [{ ...form, button, given: refusal(["name"]), done }];
});

for (const click of [...ACTIONS, ...SENT]) {
  test(`two clicks are one request: ${click.name}`, async ({ page, serve, console }) => {
    console.expect(click.request);
    if (click.signedOut === true) console.expect(/\/api\/v1\/session$/);
    let sent = 0;
    let held = Promise.resolve();
    await answer(page, click, async () => {
      sent += 1;
      await held;
      return click.given;
    });
    const server = await serve({ signedIn: click.signedOut !== true });
    await page.goto(server.url + click.path);
    const opened = await click.open(page);
    const button = opened.getByRole("button", { name: click.button, exact: true });
    // A dialog may ask for its plan, or whether the action is possible, before the button works.
    await expect(button).toBeEnabled();
    sent = 0;
    let release = (): void => undefined;
    held = new Promise((resolve) => (release = resolve));
    // Both before the page draws again.
    await button.evaluate((element: HTMLElement) => {
      element.click();
      element.click();
    });
    await expect.poll(() => sent).toBeGreaterThan(0);
    release();
    await click.done(page, button);
    expect(sent).toBe(1);
  });
}

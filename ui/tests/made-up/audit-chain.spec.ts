//! The chain of the audit: its state, a verification, and what a person reads when it is broken.

import type { Page } from "@playwright/test";

import { expect, test } from "../made-up.ts";

const chain = (page: Page) => page.getByRole("region", { name: "Chain", exact: true });

test("the page shows the last seal, verifies the audit and gives the line that proves the same later", async ({
  page,
  serve,
}) => {
  const server = await serve({ rate: 0.01 });
  await page.goto(`${server.url}/audit`);
  await expect(chain(page)).toContainText("last seal 57");
  await expect(chain(page)).toContainText("1 record not sealed yet");
  await expect(chain(page).getByText("gpuaas audit verify", { exact: true })).toBeVisible();

  await chain(page).getByRole("button", { name: "Verify" }).click();
  await expect(chain(page).getByRole("status").filter({ hasText: "Intact" })).toContainText("38,114 records");
  await expect(chain(page).getByText(/^gpuaas audit verify --head 412:[0-9a-f]{64}$/)).toBeVisible();
});

test("a broken chain is named with its place and its page", async ({ page, serve }) => {
  const server = await serve({ rate: 0.01 });
  await page.route("**/api/v1/audit/verify", (route) =>
    route.fulfill({
      json: {
        result: "broken",
        records: 38_114,
        archived: 0,
        unsealed: 0,
        seals: 412,
        defects: [
          { kind: "missing", seal: 3, record: 21, detail: "record 21 is missing" },
          { kind: "changed", seal: 9, detail: "records 80 to 90 differ from seal 9" },
        ],
        defects_found: 2,
      },
    }),
  );
  await page.goto(`${server.url}/audit`);
  await chain(page).getByRole("button", { name: "Verify" }).click();
  const why = page.getByRole("region", { name: "Why the chain is broken" });
  await expect(why).toContainText("Record 21, of seal 3, is missing.");
  await expect(why.getByRole("link", { name: "audit_chain_broken" })).toBeVisible();
  const others = page.getByRole("list", { name: "Other defects" });
  await expect(others).toContainText("Seal 9 or one of its records was changed.");
});

test("the page says that sealing has stopped, and why", async ({ page, serve }) => {
  const server = await serve({ rate: 0.01 });
  const stopped = "audit seal 57 is gone; the newest in the database is 54";
  await page.route("**/api/v1/audit/chain", (route) =>
    route.fulfill({ json: { records: 400, sealed_until: 380, unsealed: 20, stopped } }),
  );
  await page.goto(`${server.url}/audit`);
  await expect(chain(page)).toContainText("Sealing has stopped");
  await expect(page.getByRole("region", { name: "Why sealing has stopped" })).toContainText(stopped);
});

test("who may not read archives sees no chain", async ({ page, serve }) => {
  const server = await serve({ rate: 0.01 });
  await page.route("**/api/v1/session", async (route) => {
    const answer = await route.fetch();
    const session = (await answer.json()) as { permissions: string[] };
    session.permissions = session.permissions.filter((permission) => permission !== "archives.read");
    await route.fulfill({ response: answer, json: session });
  });
  await page.goto(`${server.url}/audit`);
  await expect(page.getByRole("table", { name: "Audit records" })).toBeVisible();
  await expect(chain(page)).toBeHidden();
});

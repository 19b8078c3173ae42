//! The control plane restarts under an open page. Last: what runs on the nodes restarts with it.

import { readFileSync } from "node:fs";
import { join } from "node:path";

import { PROJECT } from "../platform.ts";
import { expect, test } from "../signed-in.ts";

test("a page outlives a restart of the control plane and catches up without a reload", async ({
  open,
  platform,
  console,
}) => {
  test.setTimeout(120_000);
  console.expect(
    /ERR_CONNECTION_REFUSED|ERR_INCOMPLETE|ERR_NETWORK|ERR_CONNECTION_RESET|ERR_CONNECTION_CLOSED|50[0-9]/,
  );
  const page = await open("/workloads/train");
  await expect(page.getByText("2 of 2 members ready")).toBeVisible();
  let loads = 0;
  page.on("load", () => (loads += 1));
  const status = page.getByRole("banner").getByRole("status");
  await expect(status.filter({ hasText: "Live" })).toBeVisible();

  await platform.stop();
  await expect(page.getByText(/^Connection lost/)).toBeVisible();
  await expect(page.getByText("2 of 2 members ready"), "the last data stay").toBeVisible();
  await expect(page.getByRole("main")).toHaveCSS("filter", "grayscale(1)");

  await platform.start();
  await expect(page.getByText(/^Connection lost/)).toBeHidden({ timeout: 30_000 });
  await expect(status.filter({ hasText: "Live" })).toBeVisible();
  await expect(page.getByRole("main")).toHaveCSS("filter", "none");
  // An event of the new process reaches the page. No later test uses this workload.
  await platform.take("DELETE", `/api/v1/workloads/train?project=${PROJECT}`);
  await expect(page.getByText(/Decommissioning|Decommissioned/).first()).toBeVisible({ timeout: 30_000 });
  expect(loads, "the page was not loaded again").toBe(0);
});

test("the link that gpuaas dev prints opens a signed-in shell", async ({
  page,
  platform,
  context,
  signIn,
  console,
}) => {
  // Until the link is exchanged, nobody is signed in.
  console.expect(/\/api\/v1\/session$/);
  await signIn();
  await context.clearCookies();
  // Of the start in the test before: a link works for 10 minutes.
  const printed = [...readFileSync(join(platform.folder, "dev.log"), "utf8").matchAll(/^browser +(https:\S+)/gm)];
  const link = printed.at(-1)?.[1];
  expect(link, "what gpuaas dev prints").toMatch(/\/#sign-in=\S+$/);
  await page.goto(link ?? "");
  await expect(page.getByRole("heading", { level: 1, name: "Workloads" })).toBeVisible();
  await expect(page.getByRole("banner").getByRole("status").filter({ hasText: "Live" })).toBeVisible();
  expect(page.url()).not.toContain("sign-in");
});

//! The control plane restarts under an open page. Last: what runs on the nodes restarts with it.

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

  await platform.start();
  await expect(page.getByText(/^Connection lost/)).toBeHidden({ timeout: 30_000 });
  await expect(status.filter({ hasText: "Live" })).toBeVisible();
  // An event of the new process reaches the page. No test comes after this one.
  await platform.take("DELETE", `/api/v1/workloads/train?project=${PROJECT}`);
  await expect(page.getByText(/Decommissioning|Decommissioned/).first()).toBeVisible({ timeout: 30_000 });
  expect(loads, "the page was not loaded again").toBe(0);
});

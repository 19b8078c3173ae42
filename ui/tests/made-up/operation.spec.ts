//! The steps of an operation on a time axis, on its own page and on the overview of its workload.

import type { Page } from "@playwright/test";

import { type MadeUp, expect, test } from "../made-up.ts";

/** Id of the latest operation of a workload. */
async function operationOf(page: Page, server: MadeUp, workload: string): Promise<string> {
  const answer = await page.request.get(`${server.url}/api/v1/workloads/${workload}`);
  return ((await answer.json()) as { operation: string }).operation;
}

const steps = (page: Page) => page.getByRole("list", { name: "Steps of the operation" });

test("bars show what steps wait for, also in words, and a failed step its attempts, digest and last lines", async ({
  page,
  serve,
}) => {
  // Without events: each reading of the made-up operation begins a little later.
  const server = await serve({ rate: 0.01 });
  await page.goto(`${server.url}/operations/${await operationOf(page, server, "train")}`);
  const failed = steps(page).getByRole("listitem").filter({ hasText: "agent-2 start" });
  await expect(failed).toContainText(/4 attempts: .* running on the node, .* backing off between attempts/);
  await expect(failed.locator(".backoff")).toHaveCount(3);
  await expect(failed.locator(".run")).toHaveCount(4);
  const legend = page.getByRole("list", { name: "Parts of a step" });
  for (const words of ["running on the node", "backing off between attempts", "without a task on a node"])
    await expect(legend.getByText(words)).toBeVisible();

  // The failed step is shown without a choice.
  const panel = page.getByRole("region", { name: "agent-2 start" });
  await expect(panel.getByText("earlier attempts and waits")).toBeVisible();
  await expect(panel.getByText(/^sha256:/)).toBeVisible();
  await expect(page.getByRole("group", { name: "Log of the step agent-2 start" }).locator(".line")).toHaveCount(12);
});

test("an overview says what the platform took, opens a step, and follows the log of an operation that runs", async ({
  page,
  serve,
}) => {
  const server = await serve();
  await page.goto(`${server.url}/workloads/train`);
  await expect(page.getByText(/^took 8 min \d+ s, of which the platform \d+ ms$/)).toBeVisible();
  const tail = page.getByRole("group", { name: "Log of the operation" });
  await expect(tail, "the operation has ended").toBeHidden();

  await page.goto(`${server.url}/workloads/vision-ft`);
  await expect(page.getByText(/^8 min \d+ s so far, of which the platform /)).toBeVisible();
  const lines = tail.locator(".line");
  await expect(lines).toHaveCount(8);
  const [first = ""] = await lines.allInnerTexts();
  // New lines push it out, and the tail keeps its height.
  const height = (await tail.boundingBox())?.height;
  await expect(lines.first()).not.toHaveText(first);
  expect((await tail.boundingBox())?.height).toBe(height);

  await steps(page).getByRole("link", { name: "server-1 install" }).click();
  await expect(page.getByRole("heading", { level: 1, name: "Deploy vision-ft" })).toBeVisible();
  await expect(steps(page).getByRole("button", { name: "server-1 install" })).toHaveAttribute("aria-pressed", "true");
  await expect(page.getByRole("region", { name: "server-1 install" })).toBeVisible();
});

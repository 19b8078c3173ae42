//! A member that fails, why it does, and its repair from the page.

import { expectDifferencesFirst, expectPlan, run, untilOperation } from "../actions.ts";
import { expect, test } from "../signed-in.ts";

test("a failed member shows why, since when and what to do; its repair fails, shows where, and is resumed", async ({
  open,
  platform,
}) => {
  const page = await open("/workloads/train");
  await expect(page.getByText("3 of 3 members ready")).toBeVisible();
  const why = page.getByRole("region", { name: "Why this state" });
  await expect(why).toBeHidden();

  platform.injectFaults("demo-2", "exit-at-once");
  platform.killDistribution("demo-2");
  // Shown without a reload.
  const repair = why.getByRole("button", { name: "Repair agent-1" });
  await expect(repair).toBeVisible({ timeout: 45_000 });
  for (const part of ["Why", "Since", "Evidence", "Next"]) {
    await expect(why.getByText(part, { exact: true })).toBeVisible();
  }
  await expect(why.getByText(/gpuaas workload repair train --project ours/)).toBeVisible();
  await expect(why.getByRole("link", { name: /^[a-z0-9_]+$/ })).toHaveAttribute("href", /^\/docs\/errors\/[a-z0-9_]+$/);

  await repair.click();
  const dialog = page.getByRole("dialog");
  await expectPlan(dialog, platform, {
    consequence: "What the scope contains is stopped, reinstalled where something is missing, and started",
    command: "gpuaas workload repair train --project ours --scope member --member agent-1",
  });
  const differences = await expectDifferencesFirst(dialog);
  await expect(differences.getByRole("row").filter({ hasText: "agent-1" }).first()).toBeVisible();
  // Without a fault, the member could become well by itself, and its repair would be refused. With this one, a start fails at once.
  platform.injectFaults("demo-2", "address-in-use");
  await run(dialog, "Repair agent-1");
  const failed = await untilOperation(platform, "repair", "needs_attention");

  // The page of the operation shows the failed step: its attempts, what was signed, and the last lines of its log.
  await open(`/operations/${failed.id}`);
  await expect(page.getByRole("heading", { level: 1, name: "Repair agent-1 of train" })).toBeVisible();
  const row = page.getByRole("list", { name: "Steps of the operation" }).getByRole("listitem");
  await expect(row.filter({ hasText: "agent-1 start" })).toContainText("running on the node");
  const step = page.getByRole("region", { name: "agent-1 start", exact: true });
  await expect(step.getByText("Failed", { exact: true }).first()).toBeVisible();
  await expect(step.locator("dt", { hasText: "Attempts" }).locator("xpath=following-sibling::dd[1]")).toHaveText("1");
  const tail = page.getByRole("group", { name: "Log of the step agent-1 start" });
  await expect(tail).toContainText("bind: address already in use");
  const { steps } = await platform.take("GET", `/api/v1/operations/${failed.id}`);
  const { task } = steps.find(({ key }: { key: string }) => key === "agent-1/start");
  const digest = (await platform.take("GET", `/api/v1/tasks/${task}`)).envelope_sha256 as string;
  await expect(step.getByText(`sha256:${digest.slice(0, 6)}`)).toBeVisible();
  await step.getByRole("button", { name: "Copy envelope digest" }).click();
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toBe(digest);

  platform.injectFaults("demo-2", "");
  await page.getByRole("button", { name: "Resume…", exact: true }).click();
  await expectPlan(dialog, platform, {
    consequence: "The operation that did not succeed is repeated. Steps that are done already change nothing.",
    command: "gpuaas workload resume train --project ours",
  });
  await run(dialog, "Resume");
  await expect(page.getByRole("heading", { level: 1, name: "train", exact: true })).toBeVisible();
  await expect(page.getByText("3 of 3 members ready")).toBeVisible({ timeout: 45_000 });
  await expect(why).toBeHidden({ timeout: 30_000 });
  await expect(page.getByText("Healthy").first()).toBeVisible();
});

test("a plan that no longer holds is shown again instead of being run", async ({ open, platform, console }) => {
  console.expect(/\/api\/v1\/workloads\/[^/]+\/operations/);
  const page = await open("/workloads/train");
  await page.getByRole("button", { name: "Actions" }).click();
  await page.getByRole("menuitem", { name: /^Stop/ }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog.getByRole("region", { name: "Steps of the plan" })).toBeVisible();
  // Meanwhile somebody else changes the workload.
  const path = "/api/v1/workloads/train/operations?project=ours";
  const parameters = { member: "agent-1" };
  const [app] = ((await platform.take("GET", "/api/v1/apps")) as { items: { slug: string }[] }).items;
  for (const kind of ["drain_member", "uncordon_member"]) {
    const started = await platform.take("POST", path, { app: app?.slug, kind, parameters });
    await platform.untilWorkload("train", `${kind} has ended`, async () => {
      const { operation } = await platform.take("GET", `/api/v1/operations/${started.operation.id}`);
      return operation.state === "succeeded";
    });
    if (kind === "drain_member") {
      await dialog.getByRole("button", { name: /^Stop/ }).click();
      await expect(
        dialog
          .getByText(/plan/i)
          .filter({ hasText: /chang|newer|again/i })
          .first(),
      ).toBeVisible();
    }
  }
  await dialog.getByRole("button", { name: "Close" }).last().click();
  expect((await platform.workload("train")).workload.lifecycle).toBe("running");
});

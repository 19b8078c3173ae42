//! A member that fails, why it does, and its repair from the page.

import { expectDifferencesFirst, expectPlan, run } from "../actions.ts";
import { expect, test } from "../signed-in.ts";

test("a failed member shows why, since when and what to do, and is repaired from the page", async ({
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
  // Not before: the member could become well by itself, and its repair would be refused.
  platform.injectFaults("demo-2", "");
  await run(dialog, "Repair agent-1");
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

//! The other actions on a running workload, each with its plan, its consequence and its command. Leaves a workload of two members.

import { readFileSync, writeFileSync } from "node:fs";

import {
  clusterNodes,
  expectDifferencesFirst,
  expectPlan,
  ofMember,
  ofWorkload,
  run,
  untilOperation,
} from "../actions.ts";
import { expect, test } from "../signed-in.ts";

test("a member is replaced by another node, and one is removed", async ({ open, platform }) => {
  const page = await open("/workloads/train/members");
  const replace = await ofMember(page, "agent-1", "Replace");
  await replace.getByRole("radio", { name: /demo-3$/ }).check();
  await replace.getByRole("button", { name: "Show the plan" }).click();
  await expectPlan(replace, platform, {
    consequence: "A new member joins first. Then the work of agent-1 moves to other members",
    command: "gpuaas workload replace-member train agent-1 --project ours --by demo-3",
  });
  await run(replace, "Replace agent-1");
  await untilOperation(platform, "replace_member");
  expect(await clusterNodes(platform)).toEqual(["demo-1", "demo-3", "demo-4!"]);

  const remove = await ofMember(page, "agent-2", "Remove");
  await expectPlan(remove, platform, {
    consequence: "Then it is stopped, and its files are deleted from its node.",
    command: "gpuaas workload remove-member train agent-2 --project ours",
  });
  await run(remove, "Remove agent-2");
  await untilOperation(platform, "remove_member");
  expect(await clusterNodes(platform)).toEqual(["demo-1", "demo-3"]);
  await expect(page.getByText("2 of 2 members ready")).toBeVisible();
});

test("a reconciliation writes a changed file again", async ({ open, platform }) => {
  const file = platform.nodeFile("demo-3", "etc/rancher/rke2/config.yaml");
  const before = readFileSync(file, "utf8");
  const page = await open("/workloads/train");
  const dialog = await ofWorkload(page, "Reconcile");
  await expectPlan(dialog, platform, {
    consequence: "What deviates from the desired state is written again. Nothing is restarted.",
    command: "gpuaas workload reconcile train --project ours",
  });
  const differences = await expectDifferencesFirst(dialog);
  // Now, because the platform finds such a change by itself soon, and corrects it two seconds later.
  writeFileSync(file, `${before}# changed by hand\n`);
  await differences.getByText("config.yaml was changed").first().waitFor({ timeout: 30_000 });
  await run(dialog, "Reconcile");
  const { requested_by: by } = await untilOperation(platform, "reconcile");
  expect(by).not.toBe("control-plane");
  expect(readFileSync(file, "utf8")).toBe(before);
});

test("a workload is stopped; its start is cancelled and resumed", async ({ open, platform }) => {
  const page = await open("/workloads/train");
  const stop = await ofWorkload(page, "Stop");
  await expectPlan(stop, platform, {
    consequence: "Everything that runs in it ends on every member. Its data and its allocations stay.",
    command: "gpuaas workload stop train --project ours",
  });
  await run(stop, "Stop");
  await untilOperation(platform, "stop");
  await expect(page.getByText("Stopped", { exact: true }).first()).toBeVisible();
  expect(platform.distribution("demo-1"), "nothing of the distribution runs").toEqual([]);

  // An agent that does not come up keeps the start going.
  platform.injectFaults("demo-3", "exit-at-once");
  const start = await ofWorkload(page, "Start");
  await expectPlan(start, platform, {
    consequence: "Everything starts again on every member.",
    command: "gpuaas workload start train --project ours",
  });
  await run(start, "Start");
  const { id } = await untilOperation(platform, "start", "running");
  const cancel = await ofWorkload(page, "Cancel operation");
  await expect(cancel.getByText("Steps that have not begun never run. What is done already stays done.")).toBeVisible();
  await expect(cancel.getByRole("group", { name: "command" })).toHaveText(`gpuaas operation cancel ${id}`);
  await page.keyboard.press("Escape");
  await expect(cancel).toBeHidden();

  // From the page of the operation, which shows its end without a reload.
  await open(`/operations/${id}`);
  await expect(page.getByRole("list", { name: "Parts of a step" })).toContainText("running on the node");
  await page.getByRole("button", { name: /^Cancel/ }).click();
  await expect(cancel.getByText(/steps that have not begun never run/)).toBeVisible();
  await expect(cancel.getByRole("group", { name: "command" })).toHaveText(`gpuaas operation cancel ${id}`);
  await cancel.getByRole("button", { name: /^Cancel/ }).click();
  await untilOperation(platform, "start", "cancelled");
  await expect(page.getByRole("button", { name: "Resume…", exact: true })).toBeVisible();
  await expect(page.getByText("Cancelled", { exact: true }).first()).toBeVisible();

  platform.injectFaults("demo-3", "");
  await open("/workloads/train");
  const resume = await ofWorkload(page, "Resume");
  await expectPlan(resume, platform, {
    consequence: "The operation that did not succeed is repeated. Steps that are done already change nothing.",
    command: "gpuaas workload resume train --project ours",
  });
  await run(resume, "Resume");
  await untilOperation(platform, "start");
  await expect(page.getByText("2 of 2 members ready")).toBeVisible();
  expect(await clusterNodes(platform)).toEqual(["demo-1", "demo-3"]);
});

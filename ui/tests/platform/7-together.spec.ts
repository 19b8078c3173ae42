//! Two people at once on the same workload, in two browsers: one sees what the other starts, and neither overrides the other unseen. `3-failure` has a
//! plan that changed after it was shown.

import type { Locator, Page } from "@playwright/test";

import { clusterNodes, expectPlan, ofMember, run, untilOperation } from "../actions.ts";
import { PROJECT } from "../platform.ts";
import { expect, test } from "../signed-in.ts";

test("what one person starts appears at another, who has no controls and learns why", async ({
  open,
  person,
  platform,
}) => {
  const viewer = await person("viewer");
  await viewer.goto(`${platform.url}/workloads/train?project=${PROJECT}`);
  let loads = 0;
  viewer.on("load", () => (loads += 1));
  await expect(viewer.getByText("3 of 3 members ready")).toBeVisible();
  await expect(viewer.getByText("your role viewer does not include workloads.write")).toBeVisible();

  const page = await open("/workloads/train/members");
  const dialog = await ofMember(page, "agent-1", "Drain");
  await expectPlan(dialog, platform, {
    consequence: "The work of agent-1 moves to other members, and it accepts no new work until it is uncordoned.",
    command: "gpuaas workload drain-member train agent-1 --project ours",
  });
  await run(dialog, "Drain agent-1");
  await untilOperation(platform, "drain_member");

  await expect(viewer.getByRole("heading", { level: 2, name: "Drain" })).toBeVisible();
  await expect(viewer.getByText("Succeeded · ")).toBeVisible();
  await expect(viewer.getByText("2 of 3 members ready")).toBeVisible();
  await viewer.getByRole("link", { name: /^Members/ }).click();
  await expect(viewer.getByRole("row").filter({ hasText: "agent-1" })).toContainText("Drained");
  await expect(viewer.getByRole("button", { name: /Actions|Add member/ })).toHaveCount(0);
  expect(loads, "the viewer's page was not loaded again").toBe(0);
  expect(await clusterNodes(platform)).toEqual(["demo-1", "demo-2!", "demo-4"]);
});

test("a plan runs as it was shown although another person changed what it does not concern", async ({
  open,
  person,
  platform,
  console,
}) => {
  // Without force, the first preview is refused.
  console.expect(/\/api\/v1\/workloads\/[^/]+\/operations/);
  const page = await open("/workloads/train/members");
  const drain = await ofMember(page, "agent-2", "Drain");
  await drain.locator("[name=timeout_seconds]").fill("45");
  // It is the last ready agent, as long as the other one is drained.
  await drain.getByRole("checkbox", { name: "Force" }).check();
  await drain.getByRole("button", { name: "Show the plan" }).click();
  await expect(drain.getByRole("region", { name: "Steps of the plan" })).toBeVisible();

  const other = await person("project-member");
  await other.goto(`${platform.url}/workloads/train/members?project=${PROJECT}`);
  const uncordon = await ofMember(other, "agent-1", "Uncordon");
  await expectPlan(uncordon, platform, {
    consequence: "agent-1 accepts new work again. Nothing is interrupted.",
    command: "gpuaas workload uncordon-member train agent-1 --plan-digest ",
  });
  await run(uncordon, "Uncordon agent-1");
  await untilOperation(platform, "uncordon_member");

  await run(drain, "Drain agent-2");
  const drained = await untilOperation(platform, "drain_member");
  expect(drained.parameters).toMatchObject({ member: "agent-2", timeout_seconds: 45 });
  expect(await clusterNodes(platform)).toEqual(["demo-1", "demo-2", "demo-4!"]);

  // What it was asked for is on its page.
  const shown = await open(`/operations/${drained.id}`);
  await expect(shown.getByRole("heading", { level: 1, name: "Drain agent-2 of train" })).toBeVisible();
  await expect(shown.locator("dl > div", { hasText: "Timeout seconds" })).toContainText("45");
});

test("a form about a node that somebody else changed shows its newer state, and keeps what was typed", async ({
  open,
  person,
  platform,
  console,
}) => {
  console.expect(/\/api\/v1\/nodes\/[^/]+\/enrollment/);
  await platform.take("POST", "/api/v1/nodes", { name: "spare" });
  const fill = async (at: Page): Promise<Locator> => {
    await at.getByRole("button", { name: "Actions", exact: true }).click();
    await at.getByRole("menuitem", { name: "New enrollment command…" }).click();
    await at
      .getByRole("dialog")
      .getByRole("checkbox", { name: /^Force/ })
      .check();
    await at.getByRole("dialog").getByLabel("Reason").fill("INC-4711");
    return at.getByRole("dialog");
  };
  const page = await open("/nodes/spare");
  const mine = await fill(page);
  const other = await person("platform-admin");
  await other.goto(`${platform.url}/nodes/spare`);
  const theirs = await fill(other);
  await theirs.getByRole("button", { name: "Issue" }).click();
  await expect(theirs.getByText("This command is shown only now.")).toBeVisible();

  await mine.getByRole("button", { name: "Issue" }).click();
  await expect(
    mine.getByRole("alert").filter({ hasText: "spare has changed since you opened this dialog" }),
  ).toContainText("Registered");
  await expect(mine.getByLabel("Reason")).toHaveValue("INC-4711");
  // After that, the decision is made again with the newer state in sight.
  await mine.getByRole("button", { name: "Issue" }).click();
  await expect(mine.getByText("This command is shown only now.")).toBeVisible();
  // An open page would ask for the deleted node.
  await Promise.all([page, other].map((opened) => opened.close()));
  await platform.take("POST", "/api/v1/nodes/spare/retire");
  await platform.take("DELETE", "/api/v1/nodes/spare");
});

//! Two people at once on the same workload, in two browsers: one sees what the other starts, and neither overrides the other unseen. `3-failure` has a
//! plan that changed after it was shown.

import type { Locator, Page } from "@playwright/test";

import { clusterNodes, confirm, expectPlan, ofMember, ofNode, present, run, untilOperation } from "../actions.ts";
import { Newcomer } from "../newcomer.ts";
import { type Platform, PROJECT, until } from "../platform.ts";
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

  // The operator of the machine drains the member on it.
  const page = await open("/nodes");
  await expect(page.getByRole("row").filter({ hasText: "demo-2" })).toContainText("agent-1 of train");
  await page.getByRole("link", { name: "demo-2", exact: true }).click();
  const dialog = await ofNode(page, "Drain agent-1");
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

  await open("/nodes/demo-2");
  await page.getByRole("button", { name: "Actions", exact: true }).click();
  await expect(page.getByRole("menuitem", { name: /^Drain agent-1…/ })).toContainText("agent-1 is drained.");
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

/** What a dialog says about the change that it was refused for. */
function changes(dialog: Locator): Locator {
  return dialog.getByRole("alert").filter({ hasText: /has changed.* Nothing was done/ });
}

/** Opens the form for a new enrollment command of a node, and fills it. */
async function enrollment(page: Page): Promise<Locator> {
  const dialog = await ofNode(page, "New enrollment command");
  await expect(present(dialog)).toContainText("Registered");
  await dialog.getByRole("checkbox", { name: /^Force/ }).check();
  await dialog.getByLabel("Reason").fill("INC-4711");
  return dialog;
}

async function issue(dialog: Locator): Promise<void> {
  await dialog.getByRole("button", { name: "Issue", exact: true }).click();
  await expect(dialog.getByText("This command is shown only now.")).toBeVisible();
}

test("what one person decides about a node is decided again once another person has changed it", async ({
  open,
  person,
  platform,
  console,
}) => {
  console.expect(/\/api\/v1\/nodes\/[^/]+\/(enrollment|retire)$/);
  await platform.take("POST", "/api/v1/nodes", { name: "spare" });
  // Two commands of the same second look alike.
  const newer = /Its enrollment command is now valid until .* when you opened this dialog|something that is not shown/;
  const page = await open("/nodes/spare");
  const other = await person("platform-admin");
  await other.goto(`${platform.url}/nodes/spare`);

  const mine = await enrollment(page);
  const theirs = await enrollment(other);
  await issue(theirs);
  await mine.getByRole("button", { name: "Issue", exact: true }).click();
  await expect(changes(mine)).toContainText(newer);
  await expect(mine.getByLabel("Reason"), "what was typed stays").toHaveValue("INC-4711");
  await issue(mine);
  await mine.getByRole("button", { name: "Close" }).last().click();
  await theirs.getByRole("button", { name: "Close" }).last().click();

  const retire = await ofNode(page, "Retire");
  await confirm(retire, "spare", "Registered");
  await issue(await enrollment(other));
  await retire.getByRole("button", { name: "Retire", exact: true }).click();
  await expect(changes(retire)).toContainText(newer);
  expect((await platform.take("GET", "/api/v1/nodes/spare")).state, "nothing was done").toBe("registered");
  await run(retire, "Retire");
  expect((await platform.take("GET", "/api/v1/nodes/spare")).state).toBe("retired");
  // An open page would ask for the deleted node.
  await Promise.all([page, other].map((opened) => opened.close()));
  await platform.take("DELETE", "/api/v1/nodes/spare");
});

test("an allocation that another person released shows that, and is not released again", async ({
  open,
  person,
  platform,
  console,
}) => {
  test.setTimeout(120_000);
  console.expect(/\/api\/v1\/allocations\/[^/]+$/);
  const { enrollment: issued } = await platform.take("POST", "/api/v1/nodes", { name: "visitor" });
  const newcomer = Newcomer.start(platform, "visitor", issued.command);
  try {
    await untilState(platform, "nodes/visitor", "active");
    const { id } = await platform.take("POST", "/api/v1/allocations", { project: PROJECT, node: "visitor" });
    await untilState(platform, `allocations/${id}`, "active");
    const release = async (at: Page): Promise<Locator> => {
      await at.getByRole("button", { name: "Release…", exact: true }).click();
      return confirm(at.getByRole("dialog"), "visitor", "Active");
    };
    const mine = await release(await open(`/allocations/${id}`));
    const other = await person("platform-admin");
    await other.goto(`${platform.url}/allocations/${id}`);
    await run(await release(other), "Release");

    const button = mine.getByRole("button", { name: "Release", exact: true });
    await button.click();
    await expect(changes(mine)).toContainText(
      "The allocation is now released; it was active when you opened this dialog.",
    );
    await expect(present(mine)).toContainText("Released");
    await expect(button, "the control plane would refuse it").toHaveAttribute("aria-disabled", "true");
  } finally {
    await newcomer.stop();
  }
  await platform.take("POST", "/api/v1/nodes/visitor/retire");
  await platform.take("DELETE", "/api/v1/nodes/visitor");
});

async function untilState(platform: Platform, path: string, state: string): Promise<void> {
  await until(`${path} is ${state}`, async () => (await platform.take("GET", `/api/v1/${path}`)).state === state);
}

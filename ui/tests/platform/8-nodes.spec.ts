//! The page of a node: a fix, the journal of its member, and what happens to a machine that a tenant left. Leaves the workload as it is.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";

import { confirm, ofNode, run } from "../actions.ts";
import { Newcomer } from "../newcomer.ts";
import { type Platform, PROJECT, until } from "../platform.ts";
import { expect, test } from "../signed-in.ts";

/** A node of `gpuaas dev` that no project holds. */
const FREE = "demo-5";
const FIXED = "etc/sysctl.d/60-gpuaas-inotify.conf";

test("a finding is fixed from the page of its node, whose newest task comes first", async ({ open, platform }) => {
  // The sandbox's own kernel parameter; that of the machine stays as it is.
  const parameter = platform.nodeFile(FREE, "proc/sys/fs/inotify/max_user_instances");
  mkdirSync(dirname(parameter), { recursive: true });
  writeFileSync(parameter, "128\n");
  const page = await open(`/nodes/${FREE}/preflight`);
  await page.getByRole("button", { name: "Inspect", exact: true }).click();
  const finding = page.getByRole("article", { name: "inotify_low" });
  await expect(finding).toContainText("8192 (now 128)");
  expect(existsSync(platform.nodeFile(FREE, FIXED))).toBe(false);
  await finding.getByRole("button", { name: "Fix", exact: true }).click();
  await expect(page.getByText("max_user_instances is 8192")).toBeVisible();
  await expect(finding).toHaveCount(0);
  expect(readFileSync(platform.nodeFile(FREE, FIXED), "utf8")).toContain("fs.inotify.max_user_instances = 8192");

  // The fix ended with another inspection.
  await page.getByRole("link", { name: "Tasks", exact: true }).click();
  const tasks = page.getByRole("table", { name: "Tasks of the node" }).getByRole("row");
  await expect(tasks.nth(1)).toContainText("host.inspect");
  await expect(tasks.nth(2)).toContainText("host.fix");
});

test("the journal of the member on a node is followed", async ({ open, platform }) => {
  const page = await open("/nodes/demo-3/journal");
  await expect(page.getByRole("status").filter({ hasText: "Following" })).toBeVisible();
  platform.writeJournal("demo-3", "news for the page of the node");
  const lines = page.getByRole("region", { name: "Lines of the journal" });
  await expect(lines.getByText("news for the page of the node")).toBeVisible();
  await page.getByLabel("Follow", { exact: true }).uncheck();
  await expect(page.getByRole("status").filter({ hasText: "End of the log" })).toBeVisible();
  await expect(lines.getByText("news for the page of the node")).toBeVisible();
});

const NODE = "returned";

/** The node when a project has used it and gave it back. Its machine is off. */
async function giveBack(platform: Platform): Promise<void> {
  const { enrollment: issued } = await platform.take("POST", "/api/v1/nodes", { name: NODE });
  const newcomer = Newcomer.start(platform, NODE, issued.command);
  try {
    await untilNode(platform, "active", ({ state }) => state === "active");
    const { id } = await platform.take("POST", "/api/v1/allocations", { project: PROJECT, node: NODE });
    await until("the allocation is active", async () => {
      return (await platform.take("GET", `/api/v1/allocations/${id}`)).state === "active";
    });
    await platform.take("DELETE", `/api/v1/allocations/${id}`);
  } finally {
    await newcomer.stop();
  }
  // The last change by itself: a dialog is refused what it has not shown.
  await untilNode(platform, "unreachable", ({ connectivity }) => connectivity === "unreachable");
}

interface Shown {
  state: string;
  connectivity: string;
}

async function untilNode(platform: Platform, what: string, holds: (node: Shown) => boolean): Promise<void> {
  await until(`the node is ${what}`, async () => holds(await platform.take("GET", `/api/v1/nodes/${NODE}`)));
}

test("a node that a tenant left is not reimaged without a hook, reset from its box, and retired", async ({
  open,
  platform,
  console,
}) => {
  test.setTimeout(150_000);
  console.expect(/\/api\/v1\/nodes\/[^/]+\/reimage/);
  await giveBack(platform);
  const page = await open(`/nodes/${NODE}`);
  const box = page.getByRole("region", { name: "Why this state" });
  await expect(box).toContainText("its machine to be reimaged");

  const reimage = await ofNode(page, "Reimage");
  await expect(reimage.getByRole("alert")).toContainText("reimage_hook_missing");
  await expect(reimage.getByRole("button", { name: "Reimage", exact: true })).toHaveAttribute("aria-disabled", "true");
  await page.keyboard.press("Escape");
  await expect(reimage).toBeHidden();

  await box.getByRole("button", { name: "Reset…", exact: true }).click();
  const reset = page.getByRole("dialog");
  await reset.getByRole("button", { name: "Reset", exact: true }).click();
  await expect(reset.getByText("This command is shown only now.")).toBeVisible();
  const command = await reset.getByRole("group", { name: "command" }).innerText();
  const reimaged = Newcomer.start(platform, NODE, command);
  try {
    await expect(reset.getByText("The machine is here.")).toBeVisible({ timeout: 30_000 });
    await reset.getByRole("button", { name: "Close" }).last().click();
    await expect(box).toHaveCount(0);

    const retire = await confirm(await ofNode(page, "Retire"), NODE, "Active");
    await run(retire, "Retire");
    await expect(page.getByText("Retired", { exact: true }).first()).toBeVisible();
    // Its identity ended with it.
    await untilNode(platform, "disconnected", ({ state, connectivity }) => {
      return state === "retired" && connectivity !== "connected";
    });
  } finally {
    await reimaged.stop();
  }
  // An open page would ask for the deleted node.
  await page.close();
  await platform.take("DELETE", `/api/v1/nodes/${NODE}`);
});

//! Actions on a running workload, and the credentials that it delivers.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { byShownLine, downloadKubeconfig, expectPlan, ofWorkload, run } from "../actions.ts";
import { output, type Platform } from "../platform.ts";
import { kubectl } from "../settings.ts";
import { expect, test } from "../signed-in.ts";

/** The nodes that kubectl prints, or what it says instead. */
async function nodesBy(file: string, platform: Platform): Promise<string> {
  const args = ["--kubeconfig", file, "get", "nodes", "-o", "name"];
  return output(kubectl, args, { HOME: platform.folder }).catch((thrown: unknown) =>
    String((thrown as { stderr?: string }).stderr),
  );
}

test("the copied and the downloaded kubeconfig are used by kubectl, with the line beside them", async ({
  open,
  platform,
}) => {
  const page = await open("/workloads/train/access");
  await page.getByRole("button", { name: "Copy", exact: true }).and(page.locator("button:not(.copy)")).click();
  await expect(page.getByRole("button", { name: "Copied", exact: true }).first()).toBeVisible();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  const file = join(platform.folder, "copied.kubeconfig");
  writeFileSync(file, copied, { mode: 0o600 });
  const nodes = await nodesBy(file, platform);
  expect(nodes.trim().split("\n").sort()).toEqual(["node/demo-1", "node/demo-2"]);
  // The same credential as a file.
  const downloaded = await downloadKubeconfig(page, platform);
  expect(downloaded.name).toBe("train-cluster-admin.yaml");
  expect(readFileSync(downloaded.file, "utf8")).toBe(copied);
  expect(await byShownLine(page, platform, downloaded)).toMatch(/^demo-1 +Ready/m);
  await expect(page.getByRole("group", { name: "command that uses the merged entry" })).toHaveText("kubectl get nodes");
  // Each delivery appears in the list of holders, and in the audit.
  await expect(page.getByRole("table", { name: "Delivered credentials" }).getByRole("row")).toHaveCount(2);
  const { items } = (await platform.take("GET", "/api/v1/audit?limit=200")) as { items: { action: string }[] };
  expect(items.some(({ action }) => action.includes("access") || action.includes("kubeconfig"))).toBe(true);
});

test("break-glass access needs a reason; once it is revoked, the cluster refuses it", async ({
  open,
  platform,
  console,
}) => {
  console.expect(/\/api\/v1\/workloads\/train\/kubeconfig/);
  const page = await open("/workloads/train/access");
  const panel = page.getByRole("region", { name: "Get access" });
  const rows = page.getByRole("table", { name: "Delivered credentials" }).getByRole("row");
  await expect(rows, "that of the test before").toHaveCount(2);
  await panel.getByRole("radio", { name: "break-glass" }).check();
  await panel.getByRole("button", { name: "Download", exact: true }).click();
  const reason = panel.getByLabel("Reason");
  await expect(reason).toHaveAttribute("aria-invalid", "true");
  await expect(reason).toHaveAccessibleDescription(/break-glass access needs a reason/);
  await expect(rows).toHaveCount(2);

  await reason.fill("INC-4711");
  const { file } = await downloadKubeconfig(page, platform);
  const row = rows.filter({ hasText: "INC-4711" });
  await expect(row).toContainText("Valid, break-glass");
  await row.getByRole("button", { name: /^Revoke/ }).click();
  await run(page.getByRole("dialog"), "Revoke");
  await expect(rows).toHaveCount(2);
  await expect(row).toHaveCount(0);
  // It was not used before: for ten seconds an apiserver remembers which tokens are valid.
  await expect.poll(() => nodesBy(file, platform)).toMatch(/logged in|forbidden/i);
  expect(await nodesBy(join(platform.folder, "copied.kubeconfig"), platform), "others stay valid").toContain("demo-1");
});

test("an agent is added from the page, after its plan was shown", async ({ open, platform }) => {
  const page = await open("/workloads/train");
  await page.getByRole("button", { name: "Add member" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("checkbox", { name: /demo-4$/ }).check();
  await dialog.getByRole("button", { name: "Show the plan" }).click();
  await expectPlan(dialog, platform, {
    consequence: "New members join. Nothing that runs is interrupted.",
    command: "gpuaas workload add-member train --project ours --agent demo-4",
  });
  await run(dialog, "Add member");
  await expect(page.getByText("3 of 3 members ready")).toBeVisible({ timeout: 45_000 });
});

test("a decommission starts only after the name was typed, and moves the workload to the history", async ({
  open,
  platform,
}) => {
  const page = await open("/workloads/keys");
  const dialog = await ofWorkload(page, "Decommission");
  await expectPlan(dialog, platform, {
    consequence: "keys and all data in it are deleted from every node. This cannot be undone.",
    command: "gpuaas workload decommission keys --project ours",
  });
  await expect(dialog.getByRole("button", { name: "Decommission", exact: true })).toBeDisabled();
  await dialog.getByLabel(/^Type keys to confirm/).fill("keys");
  await run(dialog, "Decommission");
  await platform.untilWorkload("keys", "is removed", ({ workload }) => workload.lifecycle === "decommissioned");
  await expect(page.getByText("Decommissioned").first()).toBeVisible();
  await page
    .getByRole("link", { name: /^Workloads/ })
    .first()
    .click();
  await expect(page.getByRole("heading", { name: /^History/ })).toBeVisible();
});

test("the logs of several members follow the journal, and are searched", async ({ open }) => {
  const page = await open("/workloads/train/logs");
  const lines = page.getByRole("region", { name: "Log lines" });
  await expect(lines.locator("time").first()).toBeVisible();
  const search = page.getByRole("searchbox", { name: "Search the lines" });
  await search.fill("rke2");
  await expect(lines.locator("mark").first()).toBeVisible();
  await search.fill("no line has this text");
  await expect(page.getByText("0 lines")).toBeVisible();
});

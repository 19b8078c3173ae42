//! Actions on a running workload, and the credentials that it delivers.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import type { Page } from "@playwright/test";

import { byShownLine, downloadKubeconfig, expectPlan, ofWorkload, run } from "../actions.ts";
import { expectHarmless } from "../browser.ts";
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
  console.expect(/\/api\/v1\/workloads\/[^/]+\/kubeconfig/);
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

const lines = (page: Page) => page.getByRole("region", { name: "Log lines" });
/** What the page says about what it reads. */
const following = (page: Page) => page.getByRole("status").filter({ hasText: "Following" });

test("the logs of two members are followed, searched, wrapped and downloaded, without those of a third", async ({
  open,
  platform,
}) => {
  const page = await open("/workloads/train/logs");
  const search = page.getByRole("searchbox", { name: "Search the lines" });
  await search.fill("rke2");
  await expect(lines(page).locator("mark").first()).toBeVisible();
  await search.fill("no line has this text");
  await expect(page.getByText(/^0 lines$/)).toBeVisible();

  await page.getByLabel("Members: All members").click();
  const members = page.getByRole("group", { name: "Members", exact: true });
  for (const member of ["server-1", "agent-1"]) await members.getByRole("checkbox", { name: member }).check();
  await page.keyboard.press("Escape");
  await expect(following(page)).toBeVisible();
  // New lines appear by themselves. Those of the third member come first, so they would be there by then.
  platform.writeJournal("demo-4", "news of a member that was not chosen");
  platform.writeJournal("demo-1", "news of the server", `news in a line of ${"many ".repeat(200)}words`);
  platform.writeJournal("demo-2", "news of the agent");
  for (const text of ["news of the server", "news of the agent"])
    await expect(lines(page).getByText(text, { exact: true })).toBeVisible();
  await search.fill("news");
  await expect(page.getByText(/^3 lines$/)).toBeVisible();

  const long = lines(page).locator("[data-line]").filter({ hasText: "many many" });
  const height = async (): Promise<number> => (await long.boundingBox())?.height ?? 0;
  const single = await height();
  await page.getByLabel("Wrap").check();
  await expect.poll(height).toBeGreaterThan(2 * single);
  await page.getByLabel("Wrap").uncheck();
  await expect.poll(height).toBe(single);

  const link = page.getByRole("link", { name: "Download", exact: true });
  await expect(link).toHaveAttribute("download", "train.log");
  const file = await page.request.get(platform.url + ((await link.getAttribute("href")) ?? ""));
  const text = await file.text();
  for (const line of ["server-1 rke2-server: news of the server", "news of the agent"]) expect(text).toContain(line);
  expect(text).not.toContain("not chosen");
});

test("the logs begin at the chosen time", async ({ open, platform }) => {
  const page = await open("/workloads/train/logs?source=journal");
  /** Time of the first line that is drawn, as `14:11:08`. */
  const first = async (): Promise<string> => (await lines(page).locator("time").allInnerTexts())[0] ?? "";
  await expect.poll(first).not.toBe("");
  // Whole minutes would be shortened by the browser. The tests' zone is UTC.
  const since = new Date(Date.now() - 1_000);
  if (since.getUTCSeconds() === 0) since.setUTCSeconds(-1);
  const typed = since.toISOString().slice(0, 19);
  const isAfter = async (): Promise<boolean> => (await first()) >= typed.slice("2026-07-01T".length);
  expect(await isAfter(), "the latest lines are older").toBe(false);
  platform.writeJournal("demo-1", "written after the chosen time");
  await page.getByLabel("Show lines since", { exact: true }).selectOption("time");
  await page.getByLabel("Show lines since this time").fill(typed);
  await expect.poll(isAfter).toBe(true);
  await expect(lines(page).getByText("written after the chosen time", { exact: true })).toBeVisible();
});

const MARKUP = `<img src=x onerror="document.title='run'"><script>document.title="run"</script>`;

test("what a service writes into its journal is shown as text", async ({ open, platform }) => {
  const page = await open("/workloads/train/logs?source=journal&member=agent-1");
  await expect(following(page)).toBeVisible();
  platform.writeJournal(
    "demo-2",
    "hostile-1 \u001b[2J\u001b[31mred\u001b[0m\u0007 \u001b]0;title\u0007bell",
    `hostile-2 ${MARKUP}`,
    "hostile-3 \u202egnp.exe \u2066mirror",
    "hostile-4 one\rtwo",
    `hostile-5 ${"x".repeat(8_192)}`,
  );
  // The node leaves control characters out, and what they began stays as text.
  const shown = [
    "hostile-1 [2J[31mred[0m ]0;titlebell",
    `hostile-2 ${MARKUP}`,
    "hostile-3 gnp.exe mirror",
    "hostile-4 one two",
  ];
  for (const text of shown) await expect(lines(page).getByText(text, { exact: true })).toBeVisible();
  // The node keeps the beginning of a longer line, and says so.
  await expect(lines(page).getByText(/^hostile-5 x+ \[cut; the line has 8202 bytes\]$/)).toBeVisible();
  await expectHarmless(page, "lines that scroll");
  await page.getByLabel("Wrap").check();
  await expectHarmless(page, "wrapped lines");
});

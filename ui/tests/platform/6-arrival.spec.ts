//! A machine is registered, and the page watches it arrive: with a name as long as a name may be and hostile labels, and as a step of the way from
//! nothing to a cluster.

import type { Locator, Page } from "@playwright/test";

import { overflow, settled } from "../browser.ts";
import { Newcomer } from "../newcomer.ts";
import { NODES, output, type Platform, until } from "../platform.ts";
import { release, required } from "../settings.ts";
import { expect, test } from "../signed-in.ts";

const NAME = `gpu-${"rack-b12-".repeat(6)}99999`;
const NOTE = `🚀 שלום <img src=x onerror="document.title='run'"> ${"long".repeat(40)}`;

/** Registers a machine in the dialog of the page of nodes. Returns the dialog and the command that it shows. */
async function register(page: Page, name: string, labels = ""): Promise<{ dialog: Locator; command: string }> {
  await page.getByRole("button", { name: "Register a machine" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name", { exact: true }).fill(name);
  await dialog.getByLabel(/^Labels/).fill(labels);
  await dialog.getByRole("button", { name: "Register", exact: true }).click();
  await expect(dialog.getByRole("listitem").filter({ hasText: "Enrolled" })).toContainText("waiting");
  return { dialog, command: await dialog.getByRole("group", { name: "command" }).innerText() };
}

async function remove(platform: Platform, name: string): Promise<void> {
  await platform.take("POST", `/api/v1/nodes/${name}/retire`);
  await platform.take("DELETE", `/api/v1/nodes/${name}`);
}

test("the dialog watches a machine arrive, whatever its name and labels are", async ({ open, platform }) => {
  expect(NAME).toHaveLength(63);
  const page = await open("/nodes");
  let loads = 0;
  page.on("load", () => (loads += 1));
  const { dialog, command } = await register(page, NAME, `rack=b12\nnote=${NOTE}`);
  // The first half of the command is run as it is: the pinned key is the server's, and the script is there.
  const [download = "", install = ""] = command.split(" | ");
  expect(install).toMatch(/^GPUAAS_ENROLL=\S+ sh$/);
  expect(await output("sh", ["-c", download])).toMatch(/^#!\/bin\/sh/);
  const newcomer = Newcomer.start(platform, NAME, command);
  try {
    await expect(dialog.getByText("The machine is here.")).toBeVisible({ timeout: 30_000 });
    await expect(dialog.getByRole("listitem").filter({ hasText: "done" })).toHaveCount(4);
    await dialog.getByRole("link", { name: "Open the node" }).click();
    await expect(page.getByRole("heading", { level: 1, name: NAME })).toBeVisible();
    await expect(page.getByText("Connected").first()).toBeVisible();
    const navigation = page.getByRole("navigation", { name: "Pages" });
    await expect(navigation.getByRole("link", { name: /^Nodes/ })).toHaveText(
      new RegExp(`^\\s*Nodes\\s*${NODES + 1}\\s*$`),
    );
    expect(loads, "the page was not loaded again").toBe(0);
    expect((await platform.take("GET", `/api/v1/nodes/${NAME}`)).labels.note).toBe(NOTE);

    await expect(page.locator("bdi, code, dd").filter({ hasText: NOTE }).first()).toBeVisible();
    await page.setViewportSize({ width: 360, height: 640 });
    for (const path of [`/nodes/${NAME}`, "/nodes"]) {
      await open(path);
      await settled(page);
      expect(await page.title(), path).not.toBe("run");
      expect(await overflow(page), path).toBe(0);
    }
  } finally {
    // An open page would ask for the deleted node.
    await page.close();
    await newcomer.stop();
    await remove(platform, NAME);
  }
});

test("a refused name is explained at its field in the dialog", async ({ open, console }) => {
  console.expect(/\/api\/v1\/nodes$/);
  const page = await open("/nodes");
  await page.getByRole("button", { name: "Register a machine" }).click();
  const dialog = page.getByRole("dialog");
  const name = dialog.getByLabel("Name", { exact: true });
  await name.fill("Not A Name");
  await dialog.getByRole("button", { name: "Register", exact: true }).click();
  await expect(name).toHaveAttribute("aria-invalid", "true");
});

const FIRST = { project: "first-steps", node: "fresh-1", workload: "first" };

test("from nothing to a cluster, by pages alone", async ({ page, platform, signIn }) => {
  test.setTimeout(120_000);
  await signIn();
  const dialog = page.getByRole("dialog");
  const goTo = (label: string) =>
    page
      .getByRole("navigation", { name: "Pages" })
      .getByRole("link", { name: new RegExp(`^${label}`) })
      .click();
  const steps = page.getByRole("region", { name: "From nothing to a cluster" }).getByRole("listitem");

  await page.goto(`${platform.url}/settings/projects`);
  await page.getByRole("button", { name: "Create a project" }).click();
  await dialog.getByLabel("Name", { exact: true }).fill(FIRST.project);
  await dialog.getByRole("button", { name: "Create", exact: true }).click();
  await expect(dialog).toBeHidden();
  await page.getByRole("link", { name: FIRST.project, exact: true }).click();
  await expect(page.getByText("No workloads yet")).toBeVisible();
  await expect(steps.filter({ hasText: "Create a project" })).toContainText("done");
  await expect(steps.filter({ hasText: "Allocate the machine" })).toContainText("next");

  // The tests' release again: its files are checked and kept as they are.
  await goTo("Artifacts");
  await page.getByRole("button", { name: "Import a release" }).click();
  await dialog.getByLabel("Source", { exact: true }).fill(required("UI_RELEASE", release));
  await dialog.getByRole("button", { name: "Import", exact: true }).click();
  await expect(dialog).toBeHidden({ timeout: 30_000 });
  await expect(page.getByRole("main").getByText("stand-in", { exact: true }).first()).toBeVisible();

  await goTo("Nodes");
  const { command } = await register(page, FIRST.node);
  const newcomer = Newcomer.start(platform, FIRST.node, command);
  try {
    await expect(dialog.getByText("The machine is here.")).toBeVisible({ timeout: 30_000 });
    await dialog.getByRole("link", { name: "Open the node" }).click();
    await page.getByRole("link", { name: "allocate it" }).click();
    await expect(dialog.getByLabel("Node", { exact: true })).toHaveValue(FIRST.node);
    await expect(dialog.getByLabel("Project", { exact: true })).toHaveValue(FIRST.project);
    await dialog.getByRole("button", { name: "Allocate", exact: true }).click();
    await expect(dialog).toBeHidden();
    await expect(page.getByRole("row").filter({ hasText: FIRST.node })).toContainText("Active");

    await goTo("Workloads");
    await steps.getByRole("link", { name: "Deploy an app" }).click();
    await page
      .getByRole("link", { name: /^Deploy / })
      .first()
      .click();
    await page.getByLabel("Name", { exact: true }).fill(FIRST.workload);
    await page.getByRole("radio", { name: new RegExp(`${FIRST.node}$`) }).check();
    await page.getByRole("button", { name: "Review the plan" }).click();
    await page.getByRole("region", { name: "Review" }).getByRole("button", { name: "Deploy", exact: true }).click();
    await expect(page.getByRole("heading", { level: 1, name: FIRST.workload })).toBeVisible();
    await expect(page.getByText("1 of 1 member ready")).toBeVisible({ timeout: 50_000 });

    // An open page would ask for what is deleted.
    await page.close();
    await giveBack(platform);
  } finally {
    await newcomer.stop();
  }
});

/** Removes the cluster, the machine and the project. */
async function giveBack(platform: Platform): Promise<void> {
  const path = `/api/v1/workloads/${FIRST.workload}?project=${FIRST.project}`;
  const isDeployed = async (): Promise<boolean> => (await platform.take("GET", path)).workload.lifecycle === "running";
  await until("the deployment has ended", isDeployed);
  await platform.take("DELETE", path);
  const isRemoved = async (): Promise<boolean> =>
    (await platform.take("GET", path)).workload.lifecycle === "decommissioned";
  await until("the first cluster is removed", isRemoved);
  const { items } = (await platform.take("GET", `/api/v1/allocations?project=${FIRST.project}`)) as {
    items: { id: string }[];
  };
  for (const { id } of items) await platform.take("DELETE", `/api/v1/allocations/${id}`);
  await remove(platform, FIRST.node);
  await platform.take("DELETE", `/api/v1/projects/${FIRST.project}`);
}

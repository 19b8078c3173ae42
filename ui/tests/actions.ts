//! Actions as a person takes them: the dialog with its plan, what it costs, and its command; and what the cluster says afterwards.

import { writeFileSync } from "node:fs";
import { join } from "node:path";

import type { Locator, Page } from "@playwright/test";

import { type Answer, output, type Platform, PROJECT, until } from "./platform.ts";
import { kubectl, program, required } from "./settings.ts";
import { expect } from "./signed-in.ts";

/** Chooses an action of a member on the tab of the members. Returns its dialog. */
export async function ofMember(page: Page, member: string, label: string): Promise<Locator> {
  return choose(page, `Actions for ${member}`, `${label} ${member}…`);
}

/** Chooses an action of the workload. Returns its dialog. */
export async function ofWorkload(page: Page, label: string): Promise<Locator> {
  return choose(page, "Actions", `${label}…`);
}

/** Chooses an action of a node on its page. Returns its dialog. */
export async function ofNode(page: Page, label: string): Promise<Locator> {
  return choose(page, "Actions", `${label}…`);
}

/** The state that a dialog has read. */
export function present(dialog: Locator): Locator {
  return dialog.getByText("Now:", { exact: true }).locator("..");
}

/** Types the name that a dialog asks for, once it shows this state. */
export async function confirm(dialog: Locator, name: string, state: string): Promise<Locator> {
  await expect(present(dialog)).toContainText(state);
  await dialog.getByLabel(/ to confirm$/).fill(name);
  return dialog;
}

/** The menu follows the state of the workload or node, which may be about to change. */
async function choose(page: Page, menu: string, item: string): Promise<Locator> {
  const wanted = page.getByRole("menuitem", { name: item, exact: true });
  await expect(async () => {
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: menu, exact: true }).click({ timeout: 1_000 });
    await wanted.click({ timeout: 1_000 });
  }).toPass({ timeout: 15_000 });
  return page.getByRole("dialog");
}

/** What a dialog must show before the action runs. */
export interface Shown {
  /** What happens to what runs, in plain words. */
  consequence: string;
  /** How the command line begins. */
  command: string;
}

/** Fails unless the dialog shows the plan, its consequence, and a command that the program accepts for exactly this plan. */
export async function expectPlan(dialog: Locator, platform: Platform, { consequence, command }: Shown): Promise<void> {
  await expect(dialog.getByRole("region", { name: "Steps of the plan" }).getByRole("row")).not.toHaveCount(0);
  await expect(dialog.getByText(consequence)).toBeVisible();
  const line = await dialog.getByRole("group", { name: "command" }).innerText();
  expect(line.slice(0, command.length)).toBe(command);
  const [request = "", digest] = line.split(" --plan-digest ");
  // The program acts for the administrator here, also if the line is of a person whose token belongs to the project.
  const named = request.includes(" --project ") ? [] : ["--project", PROJECT];
  const own = [...named, "--dry-run", "--ready-file", join(platform.folder, "ready.json"), "-o", "json"];
  const args = [...request.split(" ").slice(1), ...own];
  const printed = await output(required("UI_PROGRAM", program), args, { HOME: platform.folder });
  expect((JSON.parse(printed) as { digest: string }).digest, request).toBe(digest);
}

/** Fails unless the dialog shows how the workload deviates, above its plan. Returns the part that shows it. */
export async function expectDifferencesFirst(dialog: Locator): Promise<Locator> {
  const parts = dialog.getByRole("region", { name: /^(Desired and observed|Steps of the plan)$/ });
  await expect(parts).toHaveCount(2);
  await expect(parts.first()).toHaveAccessibleName("Desired and observed");
  return parts.first();
}

/** Runs the plan that the dialog shows. */
export async function run(dialog: Locator, label: string): Promise<void> {
  await dialog.getByRole("button", { name: label, exact: true }).click();
  await expect(dialog).toBeHidden();
}

/** Waits until the last operation of the workload is one of this kind in this state. */
export async function untilOperation(platform: Platform, kind: string, state = "succeeded"): Promise<Answer["body"]> {
  let found: Answer["body"];
  await until(`${kind} is ${state}`, async () => {
    const { operation: id } = await platform.workload("train");
    found = (await platform.take("GET", `/api/v1/operations/${id}`)).operation;
    return found.kind === kind && found.state === state;
  });
  return found;
}

/** The names of the cluster's nodes; one that accepts no work has a `!` behind its name. */
export async function clusterNodes(platform: Platform): Promise<string[]> {
  const { kubeconfig } = await platform.take("POST", `/api/v1/workloads/train/kubeconfig?project=${PROJECT}`, {});
  const file = join(platform.folder, "nodes.kubeconfig");
  writeFileSync(file, kubeconfig, { mode: 0o600 });
  const printed = await output(kubectl, ["--kubeconfig", file, "get", "nodes", "-o", "json"], {
    HOME: platform.folder,
  });
  const { items } = JSON.parse(printed) as {
    items: { metadata: { name: string }; spec: { unschedulable?: boolean } }[];
  };
  return items.map(({ metadata, spec }) => metadata.name + (spec.unschedulable === true ? "!" : "")).sort();
}

/** A downloaded kubeconfig. */
export interface Downloaded {
  /** The name that the page gives the file. */
  name: string;
  file: string;
}

/** Takes a kubeconfig as a file. */
export async function downloadKubeconfig(page: Page, platform: Platform): Promise<Downloaded> {
  const arrives = page.waitForEvent("download");
  await page.getByRole("button", { name: "Download", exact: true }).click();
  const download = await arrives;
  const name = download.suggestedFilename();
  const file = join(platform.folder, name);
  await download.saveAs(file);
  return { name, file };
}

/** What kubectl prints for the line that the page shows for a downloaded kubeconfig. */
export async function byShownLine(page: Page, platform: Platform, { name, file }: Downloaded): Promise<string> {
  const line = await page.getByRole("group", { name: "command that uses the file" }).innerText();
  const [program, ...args] = line.split(" ");
  expect(program).toBe("kubectl");
  expect(args).toContain(name);
  const own = args.map((argument) => (argument === name ? file : argument));
  return output(kubectl, own, { HOME: platform.folder });
}

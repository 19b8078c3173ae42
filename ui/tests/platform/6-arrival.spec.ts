//! A machine is registered, and the page watches it arrive. Its name is as long as a name may be, and its labels are hostile.

import { overflow, settled } from "../browser.ts";
import { Newcomer } from "../newcomer.ts";
import { output } from "../platform.ts";
import { expect, test } from "../signed-in.ts";

const NAME = `gpu-${"rack-b12-".repeat(6)}99999`;
const NOTE = `🚀 שלום <img src=x onerror="document.title='run'"> ${"long".repeat(40)}`;

test("the dialog watches a machine arrive, whatever its name and labels are", async ({ open, platform }) => {
  expect(NAME).toHaveLength(63);
  const page = await open("/nodes");
  let loads = 0;
  page.on("load", () => (loads += 1));
  await page.getByRole("button", { name: "Register a machine" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name", { exact: true }).fill(NAME);
  await dialog.getByLabel(/^Labels/).fill(`rack=b12\nnote=${NOTE}`);
  await dialog.getByRole("button", { name: "Register", exact: true }).click();
  const steps = dialog.getByRole("list").getByRole("listitem");
  await expect(steps.filter({ hasText: "Enrolled" })).toContainText("waiting");

  const command = await dialog.getByRole("group", { name: "command" }).innerText();
  // The first half of the command is run as it is: the pinned key is the server's, and the script is there.
  const [download = "", install = ""] = command.split(" | ");
  expect(install).toMatch(/^GPUAAS_ENROLL=\S+ sh$/);
  expect(await output("sh", ["-c", download])).toMatch(/^#!\/bin\/sh/);
  const newcomer = Newcomer.start(platform, NAME, command);
  try {
    await expect(dialog.getByText("The machine is here.")).toBeVisible({ timeout: 30_000 });
    await expect(steps.filter({ hasText: "done" })).toHaveCount(4);
    await dialog.getByRole("link", { name: "Open the node" }).click();
    await expect(page.getByRole("heading", { level: 1, name: NAME })).toBeVisible();
    await expect(page.getByText("Connected").first()).toBeVisible();
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
    await platform.take("POST", `/api/v1/nodes/${NAME}/retire`);
    await platform.take("DELETE", `/api/v1/nodes/${NAME}`);
  }
});

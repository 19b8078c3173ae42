//! Screenshots: every page in both themes at three widths, and the pictures of `README.md`.

import { mkdirSync } from "node:fs";
import { join } from "node:path";

import type { Page } from "@playwright/test";

import { settled } from "../browser.ts";
import { addresses } from "../pages.ts";
import { type Answer, type Platform, PROJECT } from "../platform.ts";
import { objectsOf } from "../platform-objects.ts";
import { output, root } from "../settings.ts";
import { expect, test } from "../signed-in.ts";

const WIDTHS = [1280, 720, 360] as const;
const THEMES = ["light", "dark"] as const;
/** Pictures of the documents: small enough for a repository. */
const PICTURES = [
  { name: "workloads-light", path: "/workloads", theme: "light" },
  { name: "workload-light", path: "/workloads/train", theme: "light" },
] as const;

/** Deploys on the first nodes through the API: the screenshots show what is deployed, not how. */
async function deploy(platform: Platform, name: string, nodes: readonly string[]): Promise<void> {
  const { items } = (await platform.take("GET", `/api/v1/allocations?project=${PROJECT}`)) as {
    items: { id: string; node_name: string }[];
  };
  const ids = nodes.map((node) => items.find(({ node_name: of }) => of === node)?.id);
  const apps = (await platform.take("GET", "/api/v1/apps")) as { items: { slug: string }[] };
  const [server, ...agents] = ids;
  await platform.take("POST", `/api/v1/workloads?project=${PROJECT}`, {
    app: apps.items[0]?.slug,
    name,
    placement: { server_allocation_id: server, agent_allocation_ids: agents },
    config: {},
  });
}

const isHealthy = ({ workload }: Answer["body"]): boolean => workload.health === "healthy";

async function take(page: Page, file: string, fullPage: boolean): Promise<void> {
  mkdirSync(join(file, ".."), { recursive: true });
  await page.screenshot({ path: file, fullPage, animations: "disabled", caret: "hide" });
}

test("screenshots", async ({ open, platform, page }) => {
  await deploy(platform, "train", ["demo-1", "demo-2", "demo-4"]);
  await deploy(platform, "infer", ["demo-3"]);
  await platform.untilWorkload("train", "runs", isHealthy);
  await platform.untilWorkload("infer", "runs", isHealthy);
  await platform.take("POST", `/api/v1/workloads/train/kubeconfig?project=${PROJECT}`, {});
  // A member that fails, for the box that says why.
  platform.injectFaults("demo-2", "exit-at-once");
  platform.killDistribution("demo-2");
  await platform.untilWorkload("train", "is degraded", ({ workload }) => workload.health !== "healthy");

  const pages = addresses(await objectsOf(platform));
  for (const { name, path } of pages) {
    await page.setViewportSize({ width: WIDTHS[0], height: 800 });
    await open(path);
    await settled(page);
    for (const width of WIDTHS)
      for (const colorScheme of THEMES) {
        await page.setViewportSize({ width, height: 800 });
        await page.emulateMedia({ colorScheme });
        await take(page, join(output, `${name}-${colorScheme}-${width}.png`), true);
      }
  }
  await page.setViewportSize({ width: 1280, height: 720 });
  for (const { name, path, theme } of PICTURES) {
    await page.emulateMedia({ colorScheme: theme });
    await open(path);
    await settled(page);
    await take(page, join(root, "docs/images", `${name}.png`), false);
  }
  expect(pages.length).toBeGreaterThan(20);
});

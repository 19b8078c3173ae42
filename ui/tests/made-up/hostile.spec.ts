//! Names, texts and journals that contain markup, right-to-left text and escape sequences: what a tenant or a node can put there.

import type { Page, Route } from "@playwright/test";

import { expectHarmless, settled } from "../browser.ts";
import { type MadeUp, expect, test } from "../made-up.ts";

const MARKUP = '<img src=x onerror="document.title=\'run\'"><script>document.title="run"</script>';
const LONG = "x".repeat(200);
const TEXTS = [
  { text: MARKUP, shown: MARKUP },
  { text: "\u202egnp.exe", shown: "gnp.exe" },
  { text: "\u001b[31mred\u001b[0m\u0007", shown: "red" },
  { text: "名前 😀 עברית", shown: "名前 😀 עברית" },
  { text: LONG, shown: LONG },
];
/** All of them at once, for pages that are opened once. The escape sequences clear a terminal and set its title. */
const ALL = {
  text: `\u001b[2J\u001b[31m${MARKUP}\u001b[0m \u202egnp.exe\u2066 \u001b]0;title\u0007\u009b1m\r\b名前 😀 עברית ${LONG}`,
  shown: MARKUP,
};

/**
 * Fields that a node, a tenant or a program fills in, and on which nothing else of a page depends: every text in them, however deep. Names of nodes
 * and workloads are none of them: the control plane refuses any that is no DNS label.
 */
const FREE = new Set([
  // What the agent of a node reports, and what operators say about the node.
  ...["addresses", "agent_version", "arch", "bus", "clock_service", "cpu_model", "device", "folder", "gateway"],
  ...[
    "gpu_driver",
    "kernel",
    "labels",
    "link",
    "machine_id",
    "model",
    "name_servers",
    "os",
    "path",
    "pci_id",
    "product",
  ],
  "region",
  // Findings, faults, waits, outcomes and residue.
  ...["check", "detail", "evidence", "evidence_source", "fix", "found", "given_up", "next", "outcome", "removed"],
  ...["summary", "unchecked", "what"],
  // Workloads, operations and the audit.
  ...["actor", "address", "endpoint", "metadata", "reason", "requested_by", "target", "version"],
]);
/** The key of a label. */
const LABEL = "rack";

/** Replaces every free text of an answer by a hostile one. */
function hostile(value: unknown, text: string, isFree = false): unknown {
  if (typeof value === "string") return isFree ? text : value;
  if (Array.isArray(value)) return value.map((entry) => hostile(entry, text, isFree));
  if (typeof value !== "object" || value === null) return value;
  const changed = Object.entries(value).map(([name, of]: [string, unknown]) => {
    // The items of a page are objects, those of a report about residue are texts.
    const isReport = name === "items" && Array.isArray(of) && typeof of[0] === "string";
    return [name === LABEL ? text : name, hostile(of, text, isFree || isReport || FREE.has(name))];
  });
  return Object.fromEntries(changed) as unknown;
}

/** A journal of one line. The tab of the events reads the numbers of events from the log. */
async function answerLog(route: Route, text: string): Promise<void> {
  const { searchParams } = new URL(route.request().url());
  if (searchParams.get("source") === "event,task") return route.continue();
  const at = "2026-07-01T14:02:00.000Z";
  const line = { at, source: "journal", member: "agent-1", unit: `${text}.service`, text, position: "1" };
  const isFirst = !searchParams.has("resume");
  return route.fulfill({ contentType: "application/x-ndjson", body: isFirst ? `${JSON.stringify(line)}\n` : "" });
}

async function answerHostile(page: Page, text: string): Promise<void> {
  await page.route(/\/api\/v1\/(workloads|nodes|operations|tasks|audit|events|allocations)/, async (route) => {
    const request = route.request();
    if (new URL(request.url()).pathname.endsWith("/logs")) return answerLog(route, text);
    if ((await request.headerValue("accept"))?.includes("event-stream") === true) return route.continue();
    const response = await route.fetch();
    const type = response.headers()["content-type"] ?? "";
    if (!type.includes("json") || !response.ok()) return route.fulfill({ response });
    return route.fulfill({ response, json: hostile(await response.json(), text) });
  });
}

/** Opens a page and fails unless it shows the text, and shows it as text. */
async function expectShown(page: Page, server: MadeUp, path: string, shown: string): Promise<void> {
  await page.goto(server.url + path);
  await settled(page);
  await expect(page.locator("main"), path).toContainText(shown);
  await expectHarmless(page, path);
}

for (const [index, { text, shown }] of TEXTS.entries()) {
  test(`hostile text ${index + 1} is shown as text`, async ({ page, serve }) => {
    const server = await serve();
    await answerHostile(page, text);
    for (const path of ["/workloads", "/workloads/train", "/nodes"]) await expectShown(page, server, path, shown);
  });
}

test("a hostile node is shown as text by every page about it, its tasks, its logs and its events", async ({
  page,
  serve,
}) => {
  const server = await serve();
  const read = async (path: string): Promise<unknown> => (await page.request.get(server.url + path)).json();
  const { operation } = (await read("/api/v1/workloads/train")) as { operation: string };
  const { items } = (await read(`/api/v1/tasks?operation=${operation}`)) as { items: { id: string; state: string }[] };
  const failed = items.findLast(({ state }) => state === "failed")?.id ?? "";
  await answerHostile(page, ALL.text);
  await expectShown(page, server, "/nodes/gpu-07", ALL.shown);
  // All eight have the same bus now.
  await expect(page.getByRole("region", { name: "GPUs" }).getByRole("row")).toHaveCount(9);
  for (const path of [
    "/nodes/gpu-11/preflight",
    "/nodes/gpu-07/tasks",
    "/nodes/gpu-07/journal",
    "/nodes/gpu-07/residue",
    "/workloads/train/members?member=agent-2",
    "/workloads/train/logs",
    "/workloads/train/events",
    "/allocations",
    `/operations/${operation}`,
    `/tasks/${failed}`,
    "/audit",
  ])
    await expectShown(page, server, path, ALL.shown);
  // The record of the audit is a dialog.
  await page.getByRole("table", { name: "Audit records" }).getByRole("button").first().click();
  await expect(page.getByRole("dialog")).toContainText(ALL.shown);
  await expectHarmless(page, "a record of the audit");
});

//! Every form of the shell on the made-up server: how a person opens it, the request that it sends, and its fields.
//! `src/components/forms.test.ts` fails if one is missing.

import type { Locator, Page } from "@playwright/test";

export interface FormCase {
  /** For the names of tests. */
  name: string;
  /** The component, below `src`. */
  file: string;
  /** The page that has it. */
  path: string;
  /** Opens the form and fills in what it needs to be sent. Returns the part of the page that contains it. */
  open: (page: Page) => Promise<Locator>;
  /** Name of the button that sends it. One without sends by itself what was typed. */
  button?: string;
  method: "GET" | "POST" | "DELETE";
  /** Matches the address of its request. */
  request: RegExp;
  /** Names of its controls, in the order of the page. */
  fields: readonly string[];
  /** Fields that are columns of the table of allocations: their errors are above it. */
  places?: readonly string[];
  signedOut?: boolean;
}

function dialog(button: string, fill: (form: Locator) => Promise<void> = async () => {}) {
  return async (page: Page): Promise<Locator> => {
    await page.getByRole("button", { name: button, exact: true }).click();
    const opened = page.getByRole("dialog");
    await fill(opened);
    return opened;
  };
}

function menu(button: string, item: string, fill: (form: Locator) => Promise<void> = async () => {}) {
  return async (page: Page): Promise<Locator> => {
    await page.getByRole("button", { name: button, exact: true }).click();
    await page.getByRole("menuitem", { name: item, exact: true }).click();
    const opened = page.getByRole("dialog");
    await fill(opened);
    return opened;
  };
}

const named =
  (text: string) =>
  (form: Locator): Promise<void> =>
    form.locator('[name="name"]').fill(text);

export const FORMS: readonly FormCase[] = [
  {
    name: "deploy",
    file: "pages/deploy/Deploy.svelte",
    path: "/apps/rke2/deploy",
    open: async (page) => {
      const form = page.locator("main form");
      await form.locator('[name="name"]').fill("train-2");
      // The errors of the placement are above this table.
      await form.getByRole("table", { name: "Allocations" }).waitFor();
      return form;
    },
    button: "Review the plan",
    method: "POST",
    request: /\/api\/v1\/workloads(\?|$)/,
    fields: ["name", "version", "tls_san"],
    places: ["server_allocation_id"],
  },
  {
    name: "add a member",
    file: "pages/workload/PlannedDialog.svelte",
    path: "/workloads/infer",
    open: dialog("Add member", (form) => form.getByRole("table", { name: "Allocations" }).waitFor()),
    button: "Show the plan",
    method: "POST",
    request: /\/api\/v1\/workloads\/[^/]+\/members\?/,
    fields: [],
    places: ["agent_allocation_ids", "agent_allocation_ids[0]"],
  },
  {
    name: "drain a member",
    file: "pages/workload/PlannedDialog.svelte",
    path: "/workloads/train/members",
    open: menu("Actions for agent-2", "Drain agent-2…"),
    button: "Show the plan",
    method: "POST",
    request: /\/api\/v1\/workloads\/[^/]+\/operations\?/,
    fields: ["member", "force", "timeout_seconds"],
  },
  {
    name: "give up members in a decommission",
    file: "pages/workload/PlannedDialog.svelte",
    path: "/workloads/infer",
    open: menu("Actions", "Decommission…"),
    button: "Show the plan",
    method: "DELETE",
    request: /\/api\/v1\/workloads\/[^/]+\?/,
    fields: ["give_up", "force", "reason"],
  },
  {
    name: "take credentials",
    file: "access/IssueAccess.svelte",
    path: "/workloads/infer/access",
    open: async (page) => {
      const panel = page.getByRole("region", { name: "Get access" });
      await panel.getByRole("radio", { name: "break-glass" }).check();
      await panel.locator('[name="reason"]').fill("INC-4711");
      return panel;
    },
    button: "Download",
    method: "POST",
    request: /\/api\/v1\/workloads\/[^/]+\/kubeconfig/,
    fields: ["kind", "role", "ttl_seconds", "reason"],
  },
  {
    name: "create a token",
    file: "pages/access/CreateToken.svelte",
    path: "/access",
    open: dialog("Create a token", named("ann")),
    button: "Create",
    method: "POST",
    request: /\/api\/v1\/tokens$/,
    fields: ["name", "role", "project", "ttl_seconds"],
  },
  {
    name: "create a service account",
    file: "pages/access/CreateAccount.svelte",
    path: "/access",
    open: dialog("Create a service account", named("nightly")),
    button: "Create",
    method: "POST",
    request: /\/api\/v1\/service-accounts$/,
    fields: ["name", "role"],
  },
  {
    name: "create a token of a service account",
    file: "pages/access/AccountToken.svelte",
    path: "/access",
    open: menu("Actions for ci", "Create a token…"),
    button: "Create",
    method: "POST",
    request: /\/api\/v1\/service-accounts\/ci\/tokens/,
    fields: ["ttl_seconds"],
  },
  {
    name: "register a machine",
    file: "pages/nodes/Register.svelte",
    path: "/nodes",
    open: dialog("Register a machine", named("gpu-99")),
    button: "Register",
    method: "POST",
    request: /\/api\/v1\/nodes$/,
    fields: ["name", "region", "labels"],
  },
  {
    name: "issue an enrollment command",
    file: "pages/nodes/EnrollDialog.svelte",
    path: "/nodes/gpu-02",
    open: menu("Actions", "New enrollment command…", async (form) => {
      await form.getByRole("checkbox", { name: /^Force/ }).check();
      await form.locator('[name="reason"]').fill("INC-4711");
    }),
    button: "Issue",
    method: "POST",
    request: /\/api\/v1\/nodes\/[^/]+\/enrollment$/,
    fields: ["reason"],
  },
  {
    name: "allocate a node",
    file: "pages/allocations/Allocate.svelte",
    path: "/allocations",
    open: dialog("Allocate a node", (form) => form.locator('[name="node"]').fill("gpu-30")),
    button: "Allocate",
    method: "POST",
    request: /\/api\/v1\/allocations$/,
    fields: ["project", "node"],
  },
  {
    name: "create a project",
    file: "pages/settings/CreateProject.svelte",
    path: "/settings",
    open: dialog("Create a project", named("ml")),
    button: "Create",
    method: "POST",
    request: /\/api\/v1\/projects$/,
    fields: ["name"],
  },
  {
    name: "continue a rotation",
    file: "pages/settings/ForceAuthority.svelte",
    path: "/settings/keys",
    open: async (page) => {
      await page.getByRole("button", { name: /^Continue without the nodes that delay / }).click();
      const opened = page.getByRole("dialog");
      await opened.locator('[name="reason"]').fill("INC-4711");
      return opened;
    },
    button: "Continue without them",
    method: "POST",
    request: /\/api\/v1\/authorities\/force$/,
    fields: ["reason"],
  },
  {
    name: "import a release",
    file: "pages/artifacts/ImportRelease.svelte",
    path: "/artifacts",
    open: dialog("Import a release", (form) => form.locator('[name="source"]').fill("https://releases.example/")),
    button: "Import",
    method: "POST",
    request: /\/api\/v1\/artifacts$/,
    fields: ["app", "source", "version", "sums_sha256", "signature"],
  },
  {
    name: "filter the audit",
    file: "pages/audit/Audit.svelte",
    path: "/audit",
    open: async (page) => {
      const filter = page.locator("main search");
      await filter.locator('[name="actor"]').fill("nobody");
      await filter.locator('[name="actor"]').press("Tab");
      return filter;
    },
    method: "GET",
    request: /\/api\/v1\/audit\?.*actor=nobody/,
    fields: ["actor", "workload", "since"],
  },
  {
    name: "sign in",
    file: "pages/sign-in/ByToken.svelte",
    path: "/",
    open: async (page) => {
      const form = page.locator("main form");
      await form.locator('[name="token"]').fill("a-token");
      return form;
    },
    button: "Sign in",
    method: "POST",
    request: /\/api\/v1\/sessions$/,
    fields: ["token"],
    signedOut: true,
  },
];

/** Answers the matching requests of a page. */
export async function answer(
  page: Page,
  { method, request }: Pick<FormCase, "method" | "request">,
  by: (url: URL) => Promise<{ status: number; json: unknown }>,
): Promise<void> {
  await page.route(request, async (route) => {
    if (route.request().method() !== method) return route.fallback();
    const { status, json } = await by(new URL(route.request().url()));
    const contentType = status < 400 ? "application/json" : "application/problem+json";
    return route.fulfill({ status, contentType, body: JSON.stringify(json) });
  });
}

/** The sentence about a field in the refusal. */
export const sentenceOf = (field: string): string => `${field} is refused`;

/** A refusal with a reason for each of these fields. */
export function refusal(fields: readonly string[]): { status: number; json: unknown } {
  const errors = fields.map((field) => ({ field, code: "field_invalid", detail: sentenceOf(field) }));
  const json = {
    type: "/docs/errors/field_invalid",
    title: "Unprocessable Content",
    status: 422,
    code: "field_invalid",
    detail: "the request is refused",
    correlation_id: "0198c0de-7a3b-7c11-9b54-0242ac120002",
    errors,
  };
  return { status: 422, json };
}

//! Several people, their rights, and the end of their sessions.

import type { BrowserContext, Page } from "@playwright/test";

import { byShownLine, downloadKubeconfig } from "../actions.ts";
import { type Platform, PROJECT } from "../platform.ts";
import { expect, test } from "../signed-in.ts";

/** Revokes the session of a browser, and waits until its page has learned it by itself: its stream of events ends with the session. */
async function revoke(page: Page, context: BrowserContext, platform: Platform): Promise<void> {
  const session = (await (await context.request.get(`${platform.url}/api/v1/session`)).json()) as {
    id: string;
    csrf: string;
  };
  const headers = { "x-gpuaas-csrf": session.csrf, "sec-fetch-site": "same-origin" };
  const revoked = await context.request.delete(`${platform.url}/api/v1/sessions/${session.id}`, { headers });
  expect(revoked.status()).toBeLessThan(300);
  await expect(page.getByRole("heading", { level: 1, name: "Sign in" })).toBeVisible({ timeout: 20_000 });
  await expect(page.getByText(/Your session ended/)).toBeVisible();
}

async function signInByToken(page: Page, token: string): Promise<void> {
  await page.getByLabel("Token, or a whole sign-in link").fill(token);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
}

test("a one-time link signs in once and leaves the address bar", async ({
  page,
  platform,
  context,
  signIn,
  console,
}) => {
  console.expect(/\/api\/v1\/sessions?$/);
  await signIn();
  await context.clearCookies();
  const { url } = (await platform.take("POST", "/api/v1/sign-in-links")) as { url: string };
  await page.goto(url);
  await expect(page.getByRole("heading", { level: 1, name: "Workloads" })).toBeVisible();
  expect(page.url()).not.toContain("sign-in");
  const [cookie] = await context.cookies();
  expect(cookie).toMatchObject({ name: "__Host-gpuaas-session", httpOnly: true, secure: true, sameSite: "Strict" });
  await context.clearCookies();
  await page.goto("about:blank");
  await page.goto(url);
  await expect(page.getByRole("heading", { level: 1, name: "Sign in" })).toBeVisible();
  await expect(page.getByText("gpuaas login --browser").first()).toBeVisible();
});

test("a viewer sees the workload and its changes, and is offered nothing that the API refuses", async ({
  browser,
  page,
  platform,
  signIn,
}) => {
  await signIn("viewer");
  await page.goto(`${platform.url}/workloads?project=${PROJECT}`);
  await page.getByRole("link", { name: "train", exact: true }).waitFor();
  await expect(page.getByRole("link", { name: "Deploy an app" })).toHaveCount(0);
  const navigation = page.getByRole("navigation", { name: "Pages" });
  await expect(navigation.getByRole("link", { name: /^Nodes/ })).toHaveCount(0);
  await page.getByRole("link", { name: "train", exact: true }).click();
  await expect(page.getByRole("heading", { level: 1, name: "train" })).toBeVisible();
  await expect(page.getByRole("button", { name: "Actions" })).toHaveCount(0);

  // What is refused says why.
  await page.goto(`${platform.url}/nodes?project=${PROJECT}`);
  await expect(page.getByText("Your role does not include this page")).toBeVisible();
  await expect(page.getByText("your role viewer does not include platform.read")).toBeVisible();
  for (const [path, permission] of [
    ["/allocations", "allocations.write"],
    ["/artifacts", "artifacts.write"],
    ["/settings/projects", "projects.write"],
  ] as const) {
    await page.goto(`${platform.url}${path}?project=${PROJECT}`);
    await expect(page.getByText(`your role viewer does not include ${permission}`)).toBeVisible();
  }

  // A member of the project has more, at the same time, in another browser.
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  await context.addCookies(await platform.cookies(await platform.token("second-person", "project-member")));
  const other = await context.request.get(`${platform.url}/api/v1/session`);
  expect(((await other.json()) as { permissions: string[] }).permissions).toContain("workloads.write");
  await context.close();
});

test("a tenant opens the node that the project holds, and learns who changes nodes", async ({
  page,
  platform,
  signIn,
}) => {
  await signIn("project-member");
  await page.goto(`${platform.url}/workloads/train/members?project=${PROJECT}`);
  await page
    .getByRole("row")
    .filter({ hasText: "server-1" })
    .getByRole("link", { name: "demo-1", exact: true })
    .click();
  await expect(page.getByRole("heading", { level: 1, name: "demo-1" })).toBeVisible();
  await expect(page.getByText("Connected").first()).toBeVisible();
  await expect(page.getByText("your role project-member does not include nodes.write")).toBeVisible();
  // The overview of the workload links to it, too.
  await page.goto(`${platform.url}/workloads/train?project=${PROJECT}`);
  const link = page.getByRole("link", { name: /server-1/ }).first();
  await expect(link).toHaveAttribute("href", /^\/nodes\/demo-1/);
});

test("a member of the project is offered to deploy", async ({ page, platform, signIn }) => {
  await signIn("project-member");
  await page.goto(`${platform.url}/workloads?project=${PROJECT}`);
  await expect(page.getByRole("link", { name: "Deploy an app" }).first()).toBeVisible();
  await page.getByRole("link", { name: "train", exact: true }).click();
  await expect(page.getByRole("button", { name: "Actions" })).toBeVisible();
});

test("a viewer is offered only the credentials that it may take, and takes one", async ({ page, platform, signIn }) => {
  await signIn("viewer");
  await page.goto(`${platform.url}/workloads/train/access?project=${PROJECT}`);
  const panel = page.getByRole("region", { name: "Get access" });
  await expect(panel.getByRole("radio", { name: "cluster-view" })).toBeChecked();
  for (const [refused, needs] of [
    ["break-glass", "access.break_glass"],
    ["cluster-admin", "access.take"],
  ] as const) {
    await expect(panel.getByRole("radio", { name: refused })).toBeDisabled();
    await expect(panel.getByText(needs)).toBeVisible();
  }
  const downloaded = await downloadKubeconfig(page, platform);
  expect(downloaded.name).toBe("train-cluster-view.yaml");
  // The role reads no nodes: its line asks for what it reads.
  await byShownLine(page, platform, downloaded);
  const delivered = page.getByRole("table", { name: "Delivered credentials" });
  await expect(delivered.getByRole("row").filter({ hasText: "cluster-view" })).toHaveCount(1);
  await expect(delivered.getByRole("button", { name: /^Revoke/ })).toHaveCount(0);

  const path = `/api/v1/workloads/train/access?project=${PROJECT}`;
  const { grants } = (await platform.take("GET", path)) as { grants: { id: string; role: string }[] };
  const own = grants.filter(({ role }) => role === "cluster-view");
  for (const { id } of own) await platform.take("DELETE", `/api/v1/access-grants/${id}`);
});

test("a session that is revoked leads to the sign-in and back to the same place", async ({
  open,
  context,
  platform,
  console,
}) => {
  console.expect(/\/api\/v1\//);
  const page = await open("/workloads/train/events");
  await page.getByRole("heading", { level: 1, name: "train" }).waitFor();
  const address = page.url();
  await revoke(page, context, platform);
  await signInByToken(page, platform.running.token);
  await expect(page.getByRole("heading", { level: 1, name: "train" })).toBeVisible();
  expect(page.url()).toBe(address);
});

test("a dialog outlives a revoked session with what was typed, and is sent once in the next one", async ({
  open,
  context,
  platform,
  console,
}) => {
  console.expect(/\/api\/v1\//);
  const page = await open("/access");
  let posted = 0;
  page.on("request", (request) => {
    const isCreation = request.method() === "POST" && new URL(request.url()).pathname === "/api/v1/tokens";
    posted += isCreation ? 1 : 0;
  });
  await page.getByRole("button", { name: "Create a token" }).click();
  const dialog = page.getByRole("dialog", { name: "Create a token" });
  await dialog.getByLabel("Name", { exact: true }).fill("outlives");
  await revoke(page, context, platform);
  await signInByToken(page, platform.running.token);
  await expect(dialog).toBeVisible();
  await expect(dialog.getByLabel("Name", { exact: true })).toHaveValue("outlives");
  await dialog.getByRole("button", { name: "Create", exact: true }).click();
  await expect(page.getByText("This token is shown only now.")).toBeVisible();
  expect(posted).toBe(1);
  const { items } = (await platform.take("GET", `/api/v1/tokens?project=${PROJECT}`)) as {
    items: { id: string; name: string }[];
  };
  const made = items.filter(({ name }) => name === "outlives");
  expect(made).toHaveLength(1);
  for (const { id } of made) await platform.take("DELETE", `/api/v1/tokens/${id}`);
});

test("a session that is ended in one browser signs out the other", async ({
  page,
  person,
  platform,
  signIn,
  console,
}) => {
  console.expect(/\/api\/v1\//);
  await signIn("project-member");
  const other = await person("project-member");
  await other.goto(`${platform.url}/workloads?project=${PROJECT}`);
  await other.getByRole("link", { name: "train", exact: true }).waitFor();
  await page.goto(`${platform.url}/sessions?project=${PROJECT}`);
  const end = page.getByRole("button", { name: /^End the session of / });
  await end.click();
  const dialog = page.getByRole("dialog", { name: "End this session" });
  await expect(dialog.getByRole("group", { name: "command" })).toHaveText(/^gpuaas session revoke [0-9a-f-]{36}$/);
  await dialog.getByRole("button", { name: "End the session", exact: true }).click();
  await expect(dialog).toBeHidden();
  await expect(end).toHaveCount(0);
  await expect(other.getByRole("heading", { level: 1, name: "Sign in" })).toBeVisible();
  await expect(page.getByRole("heading", { level: 1, name: "My sessions" })).toBeVisible();
});

test("what others make appears at a project's administrator without reload: tokens, service accounts, sessions", async ({
  page,
  person,
  platform,
  signIn,
}) => {
  await signIn("project-admin");
  await page.goto(`${platform.url}/access?project=${PROJECT}`);
  const tokens = page.getByRole("table", { name: "Tokens" });
  await tokens.waitFor();
  let loads = 0;
  page.on("load", () => (loads += 1));

  const { token } = (await platform.take("POST", "/api/v1/tokens", {
    name: "appears",
    role: "viewer",
    project: PROJECT,
  })) as { token: { id: string } };
  const row = tokens.getByRole("row").filter({ hasText: "appears" });
  await expect(row).toHaveClass(/arrived/);
  await expect(page.getByRole("status").filter({ hasText: "New token: appears" })).toBeVisible();
  await platform.take("DELETE", `/api/v1/tokens/${token.id}`);
  await expect(row).toHaveCount(0);

  await platform.take("POST", "/api/v1/service-accounts", { name: "appears", role: "viewer", project: PROJECT });
  const account = page.getByRole("table", { name: "Service accounts" }).getByRole("row").filter({ hasText: "appears" });
  await expect(account).toBeVisible();
  await platform.take("DELETE", `/api/v1/service-accounts/appears?project=${PROJECT}`);
  await expect(account).toHaveCount(0);

  await page.getByRole("button", { name: /^project-admin-/ }).click();
  await page.getByRole("menuitem", { name: "My sessions" }).click();
  const sessions = page.getByRole("table", { name: "My sessions" }).getByRole("row");
  await expect(sessions).toHaveCount(1 + 1);
  await person("project-admin");
  await expect(sessions).toHaveCount(1 + 2);
  expect(loads).toBe(0);
});

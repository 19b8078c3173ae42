import { expect, test } from "../made-up.ts";

test("a used link says what went wrong and what to do, and leaves the address bar", async ({
  page,
  serve,
  console,
}) => {
  console.expect(/\/api\/v1\/sessions?$/);
  const server = await serve({ signedIn: false });
  await page.goto(`${server.url}/workloads#sign-in=wrong`);
  await expect(page.getByText("the sign-in link was used already")).toBeVisible();
  await expect(page.getByText("gpuaas login --browser").first()).toBeVisible();
  expect(page.url()).not.toContain("sign-in");
});

test("a link replaces a session only after a question", async ({ page, serve }) => {
  const server = await serve({});
  await page.goto(`${server.url}/workloads#sign-in=somebody-elses`);
  await expect(page.getByRole("dialog")).toContainText("This browser is signed in as");
  expect(page.url()).not.toContain("sign-in");
  await page.getByRole("button", { name: "Stay signed in" }).click();
  await expect(page.getByRole("dialog")).toBeHidden();
  await expect(page.getByRole("heading", { level: 1, name: "Workloads" })).toBeVisible();
});

test("a token becomes a session, and no trace of it stays in the browser", async ({ page, serve, console }) => {
  console.expect(/\/api\/v1\/session$/);
  const server = await serve({ signedIn: false });
  await page.goto(`${server.url}/workloads/train`);
  await page.getByLabel(/^Token/).fill("a-secret-token");
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("heading", { level: 1, name: "train" })).toBeVisible();
  const stored = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, location.href]));
  expect(stored).not.toContain("a-secret-token");
  expect(await page.content()).not.toContain("a-secret-token");
});

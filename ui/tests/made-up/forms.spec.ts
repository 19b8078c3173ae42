//! Every form shows all errors of a refusal at once, each at its field, and moves the focus to the first.

import { answer, FORMS, refusal, sentenceOf } from "../forms.ts";
import { expect, test } from "../made-up.ts";

/** A field that no form has: its error must not vanish. */
const ELSEWHERE = "elsewhere";

for (const form of FORMS) {
  test(`${form.name}: each error is at its field at once`, async ({ page, serve, console }) => {
    console.expect(form.request);
    if (form.signedOut === true) console.expect(/\/api\/v1\/session$/);
    const { fields, places = [] } = form;
    await answer(page, form, () => Promise.resolve(refusal([...fields, ...places, ELSEWHERE])));
    const server = await serve({ signedIn: form.signedOut !== true });
    await page.goto(server.url + form.path);
    const opened = await form.open(page);
    if (form.button !== undefined) await opened.getByRole("button", { name: form.button, exact: true }).click();

    const alerts = page.getByRole("alert");
    for (const field of fields) {
      const control = opened.locator(`[name="${field}"]`);
      await expect(control).toHaveAttribute("aria-invalid", "true");
      await expect(control).toHaveAccessibleDescription(new RegExp(sentenceOf(field)));
      await expect(alerts.filter({ hasText: sentenceOf(field) }), "it is not repeated elsewhere").toHaveCount(1);
    }
    const above = opened.locator("[data-refused]");
    for (const place of places) await expect(above).toContainText(sentenceOf(place));
    await expect(alerts.filter({ hasText: sentenceOf(ELSEWHERE) })).toBeVisible();
    const first = fields[0] === undefined ? above : opened.locator(`[name="${fields[0]}"]`);
    // A filter is read while a person works elsewhere: it takes no focus.
    // A group of radio buttons takes none itself: one of them does.
    const focused = first.and(page.locator(":focus-within"));
    if (form.button !== undefined) await expect(focused, "the first has the focus").toHaveCount(1);
  });
}

test("a value that cannot be sent is named at its field, and the rest is refused at the same time", async ({
  page,
  serve,
  console,
}) => {
  console.expect(/\/api\/v1\/workloads/);
  const form = { method: "POST", request: /\/api\/v1\/workloads(\?|$)/ } as const;
  const bodies: string[] = [];
  page.on("request", (request) => {
    if (form.request.test(request.url())) bodies.push(request.postData() ?? "");
  });
  await answer(page, form, () => Promise.resolve(refusal(["tls_san"])));
  const server = await serve();
  await page.goto(`${server.url}/apps/rke2/deploy`);
  await page.getByLabel("Name", { exact: true }).fill("train-2");
  const labels = page.locator('[name="node_labels"]');
  await labels.fill("no pair");
  await page.getByRole("button", { name: "Review the plan" }).click();
  await expect(page.locator('[name="tls_san"]')).toHaveAccessibleDescription(/tls_san is refused/);
  await expect(labels).toHaveAccessibleDescription(/Write name=value, one a line: no pair/);
  await expect(page.getByText("1 field cannot be sent as written")).toBeVisible();
  await expect(labels).toBeFocused();
  expect(bodies.some((body) => body.includes("no pair"))).toBe(false);
});

test("a form that is not sent says so, and moves the focus to what is wrong", async ({ page, serve }) => {
  const server = await serve();
  await page.goto(`${server.url}/nodes`);
  let requests = 0;
  page.on("request", (request) => (requests += request.method() === "POST" ? 1 : 0));
  await page.getByRole("button", { name: "Register a machine" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.locator('[name="name"]').fill("gpu-99");
  await dialog.locator('[name="labels"]').fill("no label");
  await dialog.getByRole("button", { name: "Register", exact: true }).click();
  await expect(dialog.getByText("Nothing was sent")).toBeVisible();
  await expect(dialog.locator('[name="labels"]')).toBeFocused();
  expect(requests).toBe(0);
});

test("errors are at their fields alone after the page under a dialog was read again", async ({
  page,
  serve,
  console,
}) => {
  const form = FORMS.find(({ name }) => name === "drain a member");
  if (form?.button === undefined) throw new Error("the form is not there");
  console.expect(form.request);
  let read = 0;
  page.on("response", (response) => {
    if (/\/api\/v1\/workloads\/train(\?|$)/.test(response.url())) read += 1;
  });
  await answer(page, form, () => Promise.resolve(refusal(form.fields)));
  // Every event about the workload makes the fields of the dialog again.
  const server = await serve({ rate: 100 });
  await page.goto(server.url + form.path);
  const opened = await form.open(page);
  await expect(opened.locator('[name="timeout_seconds"]')).toBeVisible();
  const before = read;
  await expect.poll(() => read).toBeGreaterThan(before + 2);
  await opened.getByRole("button", { name: form.button, exact: true }).click();
  for (const field of form.fields)
    await expect(page.getByRole("alert").filter({ hasText: sentenceOf(field) }), field).toHaveCount(1);
});

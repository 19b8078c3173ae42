import { answer } from "../forms.ts";
import { expect, test } from "../made-up.ts";

const DELIVERED = {
  grant: "g",
  kind: "direct",
  role: "cluster-view",
  kubeconfig: "v1",
  expires_at: "2036-07-01T12:00:00Z",
};

test("what has expired is not offered to be revoked", async ({ page, serve }) => {
  const server = await serve();
  await page.goto(`${server.url}/workloads/infer/access`);
  const rows = page.getByRole("table", { name: "Delivered credentials" }).getByRole("row");
  const expired = rows.filter({ hasText: "Expired" });
  await expect(expired).toHaveCount(1);
  await expect(expired.getByRole("button")).toHaveCount(0);
  await expect(rows.getByRole("button", { name: /^Revoke access of / })).toHaveCount(3);
});

test("a credential is asked for by the workload's id, and is not saved if the tab was left before it arrives", async ({
  page,
  serve,
}) => {
  const server = await serve();
  const read = await page.request.get(`${server.url}/api/v1/workloads/infer`);
  const { workload } = (await read.json()) as { workload: { id: string } };
  let release = (): void => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  const asked: string[] = [];
  await answer(page, { method: "POST", request: /\/kubeconfig/ }, async ({ pathname }) => {
    asked.push(pathname);
    await held;
    return { status: 201, json: DELIVERED };
  });
  let saved = 0;
  page.on("download", () => (saved += 1));
  await page.goto(`${server.url}/workloads/infer/access`);
  const download = page.getByRole("button", { name: "Download", exact: true });
  await download.click();
  await expect.poll(() => asked).toEqual([`/api/v1/workloads/${workload.id}/kubeconfig`]);

  const tabs = page.getByRole("navigation", { name: "Parts of the workload" });
  await tabs.getByRole("link", { name: "Settings" }).click();
  await expect(page.getByRole("region", { name: "Controller" })).toBeVisible();
  const arrived = page.waitForResponse(/\/kubeconfig/);
  release();
  await (await arrived).finished();
  await tabs.getByRole("link", { name: "Access" }).click();
  const second = page.waitForEvent("download");
  await download.click();
  await second;
  expect([saved, asked.length]).toEqual([1, 2]);
});

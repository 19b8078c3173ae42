import { expect, test } from "../made-up.ts";

test("what has expired is not offered to be revoked", async ({ page, serve }) => {
  const server = await serve();
  await page.goto(`${server.url}/workloads/infer/access`);
  const rows = page.getByRole("table", { name: "Delivered credentials" }).getByRole("row");
  const expired = rows.filter({ hasText: "Expired" });
  await expect(expired).toHaveCount(1);
  await expect(expired.getByRole("button")).toHaveCount(0);
  await expect(rows.getByRole("button", { name: /^Revoke access of / })).toHaveCount(3);
});

import { expect, test } from "../made-up.ts";

for (const [what, clockMs] of [
  ["an hour ahead", -3_600_000],
  ["an hour behind", 3_600_000],
] as const) {
  test(`ages are right in a browser whose clock is ${what} of the server's`, async ({ page, serve }) => {
    const server = await serve({ clockMs });
    await page.goto(`${server.url}/workloads`);
    const row = page.getByRole("row").filter({ has: page.getByRole("link", { name: "train", exact: true }) });
    // The made-up server stamps its data by its own clock: it has been waiting for three minutes.
    await expect(row.getByText(/^[34] min/)).toBeVisible();
  });
}

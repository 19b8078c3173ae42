import { defineConfig } from "@playwright/test";

import { chromium, flags, output, program } from "./settings.ts";

export default defineConfig({
  outputDir: `${output}/failures`,
  // One control plane serves all tests: they run one after the other, in the order of their files.
  workers: 1,
  fullyParallel: false,
  forbidOnly: true,
  retries: 0,
  maxFailures: 10,
  timeout: 60_000,
  expect: { timeout: 10_000 },
  reporter: [["list"], ["json", { outputFile: `${output}/report.json` }]],
  globalSetup: program === undefined ? undefined : "./platform-start.ts",
  use: {
    browserName: "chromium",
    launchOptions: { executablePath: chromium, args: flags },
    viewport: { width: 1280, height: 800 },
    ignoreHTTPSErrors: true,
    permissions: ["clipboard-read", "clipboard-write"],
    locale: "en-GB",
    timezoneId: "UTC",
    actionTimeout: 10_000,
    trace: "retain-on-failure",
  },
  projects: [
    { name: "made-up", testDir: "made-up" },
    ...(program === undefined ? [] : [{ name: "platform", testDir: "platform" }]),
  ],
});

import { defineConfig } from "@playwright/test";

import tests from "./playwright.config.ts";
import { chromium, flags } from "./settings.ts";

/** Measurements of the shell; nothing is asserted. */
export default defineConfig({
  ...tests,
  timeout: 300_000,
  reporter: [["line"]],
  projects: [{ name: "bench", testDir: "bench" }],
  use: {
    ...tests.use,
    trace: "off",
    launchOptions: {
      executablePath: chromium,
      args: [...flags, "--js-flags=--expose-gc", "--enable-precise-memory-info"],
    },
  },
});

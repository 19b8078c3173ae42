import { defineConfig } from "@playwright/test";

import tests from "./playwright.config.ts";
import { output } from "./settings.ts";

/** Screenshots of every page, and the pictures of the documents. */
export default defineConfig({
  ...tests,
  timeout: 900_000,
  maxFailures: 1,
  reporter: [["list"]],
  projects: [{ name: "screenshots", testDir: "screenshots" }],
  metadata: { folder: output },
});

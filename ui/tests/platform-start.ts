//! Starts the control plane before the tests, and ends it after them.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Platform } from "./platform.ts";

export default async function start(): Promise<() => Promise<void>> {
  const folder = mkdtempSync(join(tmpdir(), "gpuaas-ui-"));
  const platform = new Platform(folder);
  // The workers inherit it.
  process.env["UI_PLATFORM"] = folder;
  const stop = async (): Promise<void> => {
    await platform.stop();
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    await platform.start();
    await platform.prepare();
  } catch (failure) {
    await stop();
    throw failure;
  }
  return stop;
}

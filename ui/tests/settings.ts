//! Where the programs are that the tests use. `cargo xtask` sets these variables.

import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

function variable(name: string): string | undefined {
  const value = process.env[name];
  return value === "" ? undefined : value;
}

/** The program `gpuaas`, with `gpuaas-agent` beside it. Without it, only the tests against made-up data run. */
export const program = variable("UI_PROGRAM");
/** Folder of a release that sandbox nodes can run. */
export const release = variable("UI_RELEASE");
export const kubectl = variable("UI_KUBECTL") ?? "kubectl";
export const chromium = variable("UI_CHROMIUM") ?? "/usr/bin/chromium";
/** Folder for screenshots, traces of failed tests, and the data of control planes. */
export const output = variable("UI_OUTPUT") ?? fileURLToPath(new URL("../../target/ui-tests", import.meta.url));
export const root = fileURLToPath(new URL("../..", import.meta.url));

/** Command line of a browser that runs as root and in small containers, too. */
export const flags = ["--no-sandbox", "--disable-dev-shm-usage", "--font-render-hinting=none"];

export function required(name: string, value: string | undefined): string {
  if (value === undefined) throw new Error(`${name} is not set: run the tests by cargo xtask`);
  if (!existsSync(value)) throw new Error(`${name}: ${value} does not exist`);
  return value;
}

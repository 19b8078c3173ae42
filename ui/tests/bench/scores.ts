//! Scores of pages by Lighthouse, which needs no network. Version 12.8 is the last for Node 20.

import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

import { type BrowserContext, chromium as playwright } from "@playwright/test";

import { chromium, flags } from "../settings.ts";

export const CATEGORIES = ["performance", "accessibility", "best-practices"] as const;
/** Scores of 0 to 100. */
export type Scores = Record<(typeof CATEGORIES)[number], number>;

interface Audit {
  title: string;
  score: number | null;
  displayValue?: string;
}

interface Report {
  categories: Record<string, { score: number | null; auditRefs: { id: string; weight: number }[] }>;
  audits: Record<string, Audit>;
}

type Lighthouse = (
  url: string,
  flags: { port: number; logLevel: "error"; onlyCategories: readonly string[]; disableStorageReset: boolean },
  config: unknown,
) => Promise<{ lhr: Report } | undefined>;

const folder = fileURLToPath(new URL("lighthouse/node_modules/lighthouse/core", import.meta.url));

/** False where the packages of `bench/lighthouse` were not installed. */
export const isInstalled = existsSync(folder);

async function load<T>(file: string): Promise<T> {
  const module = (await import(pathToFileURL(join(folder, file)).href)) as { default: T };
  return module.default;
}

/** Scores of the page at an address as a browser with a large window sees it, and what it lost points for. */
export async function scoresOf(
  url: string,
  cookies: Parameters<BrowserContext["addCookies"]>[0],
): Promise<{ scores: Scores; lost: string[] }> {
  const profile = mkdtempSync(join(tmpdir(), "gpuaas-ui-scores-"));
  const context = await playwright.launchPersistentContext(profile, {
    executablePath: chromium,
    args: [...flags, "--remote-debugging-port=0", "--ignore-certificate-errors"],
  });
  try {
    await context.addCookies(cookies);
    const port = Number(readFileSync(join(profile, "DevToolsActivePort"), "utf8").split("\n")[0]);
    const lighthouse = await load<Lighthouse>("index.js");
    const options = { port, logLevel: "error", onlyCategories: CATEGORIES, disableStorageReset: true } as const;
    const result = await lighthouse(url, options, await load("config/desktop-config.js"));
    if (result === undefined) throw new Error(`no scores of ${url}`);
    return { scores: scores(result.lhr), lost: lost(result.lhr) };
  } finally {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  }
}

function scores({ categories }: Report): Scores {
  const of = (category: string): number => 100 * (categories[category]?.score ?? Number.NaN);
  return {
    performance: of("performance"),
    accessibility: of("accessibility"),
    "best-practices": of("best-practices"),
  };
}

/** The audits without full points that count. */
function lost({ categories, audits }: Report): string[] {
  return Object.entries(categories).flatMap(([category, { auditRefs }]) =>
    auditRefs.flatMap(({ id, weight }) => {
      const audit = audits[id];
      if (audit === undefined || weight === 0 || audit.score === null || audit.score >= 0.9) return [];
      return [`${category}: ${audit.title} ${audit.displayValue ?? ""}`.trim()];
    }),
  );
}

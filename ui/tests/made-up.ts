//! A server with made-up data for tests of what a real control plane cannot show within seconds: many rows, many events, hostile nodes.

import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

import { test as base } from "./browser.ts";

export interface Settings {
  workloads?: number;
  nodes?: number;
  /** Events a second. */
  rate?: number;
  /** What the server's clock is ahead, in milliseconds. */
  clockMs?: number;
  signedIn?: boolean;
  /** A platform on which nothing exists, or one with projects and nothing else. */
  empty?: "platform" | "project";
  /** The session of a viewer, instead of the platform's administrator. */
  readOnly?: boolean;
  /** Lines of each workload's log, of about 200 bytes each. */
  journalLines?: number;
  /** Lines a second that a followed log gets. */
  logRate?: number;
}

export class MadeUp {
  readonly #child: ChildProcess;
  readonly url: string;

  private constructor(child: ChildProcess, url: string) {
    this.#child = child;
    this.url = url;
  }

  static async start(settings: Settings = {}): Promise<MadeUp> {
    const server = fileURLToPath(new URL("../fixture/server.mjs", import.meta.url));
    const child = spawn(process.execPath, [server], {
      stdio: ["ignore", "pipe", "inherit"],
      env: {
        PATH: process.env["PATH"],
        PORT: "0",
        WORKLOADS: String(settings.workloads ?? 0),
        NODES: String(settings.nodes ?? 64),
        RATE: String(settings.rate ?? 0.2),
        CLOCK_MS: String(settings.clockMs ?? 0),
        SIGNED_IN: settings.signedIn === false ? "0" : "1",
        EMPTY: settings.empty ?? "",
        READ_ONLY: settings.readOnly === true ? "1" : "0",
        JOURNAL_LINES: String(settings.journalLines ?? 3_000),
        LOG_RATE: String(settings.logRate ?? 2),
      },
    });
    const url = await new Promise<string>((resolve, reject) => {
      child.once("exit", (code) => {
        reject(new Error(`the server with made-up data ended with ${code}`));
      });
      child.stdout.on("data", (text: Buffer) => {
        const found = /http:\/\/\S+/.exec(text.toString())?.[0];
        if (found !== undefined) resolve(found);
      });
    });
    return new MadeUp(child, url);
  }

  stop(): void {
    this.#child.kill();
  }
}

export const test = base.extend<{ serve: (settings?: Settings) => Promise<MadeUp> }>({
  serve: async ({ context }, use) => {
    const started: MadeUp[] = [];
    await use(async (settings) => {
      const server = await MadeUp.start(settings);
      started.push(server);
      return server;
    });
    // A test may end while one of its routes still answers a request of the page.
    await Promise.all([context, ...context.pages()].map((of) => of.unrouteAll({ behavior: "ignoreErrors" })));
    started.forEach((server) => {
      server.stop();
    });
  },
});

export { expect } from "./browser.ts";

//! A real `gpuaas dev` with sandbox nodes and the stand-in distribution, and requests that prepare and check what pages do.

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";

import { type APIRequestContext, request } from "@playwright/test";

import { program, release, required } from "./settings.ts";

/** The project of the tests. */
export const PROJECT = "ours";
export const NODES = 5;
/** Nodes with an allocation: the last node has none. */
export const ALLOCATED = 4;
/** More requests a second than a browser sends. */
const RATE = "1000000";
const READY_MS = 120_000;

interface Running {
  pid: number;
  url: string;
  token: string;
}

export interface Answer {
  status: number;
  // The tests read single fields of many documents; a wrong name fails their expectations.
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  body: any;
}

export async function until(what: string, holds: () => boolean | Promise<boolean>, withinMs = 60_000): Promise<void> {
  const deadline = Date.now() + withinMs;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`not within ${withinMs / 1000} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Sessions that this process began and has not ended. */
const begun: { token: string; id: string }[] = [];

export class Platform {
  readonly folder: string;
  #requests: APIRequestContext | undefined;

  constructor(folder: string) {
    this.folder = folder;
  }

  get running(): Running {
    return JSON.parse(readFileSync(join(this.folder, "running.json"), "utf8")) as Running;
  }

  get url(): string {
    return this.running.url;
  }

  /** Starts it on the data that an earlier one left in the folder, and at its address. */
  async start(): Promise<void> {
    mkdirSync(this.folder, { recursive: true });
    const before = existsSync(join(this.folder, "running.json")) ? new URL(this.url).host : "127.0.0.1:0";
    const ready = join(this.folder, "ready.json");
    rmSync(ready, { force: true });
    const log = openSync(join(this.folder, "dev.log"), "a");
    const child = spawn(
      required("UI_PROGRAM", program),
      [
        "dev",
        "--nodes",
        String(NODES),
        "--listen",
        before,
        "--data-dir",
        join(this.folder, "data"),
        "--ready-file",
        ready,
      ],
      { stdio: ["ignore", log, log], env: environment(), detached: true },
    );
    closeSync(log);
    await until("gpuaas dev is ready", () => isReady(child, ready, this.folder), READY_MS);
    const { url, token } = JSON.parse(readFileSync(ready, "utf8")) as Running;
    writeFileSync(join(this.folder, "running.json"), JSON.stringify({ pid: child.pid, url, token }), { mode: 0o600 });
    child.unref();
  }

  /** Ends it and waits until all of its processes have. */
  async stop(): Promise<void> {
    const { pid } = this.running;
    if (!isAlive(pid)) return;
    process.kill(pid, "SIGTERM");
    await until("gpuaas dev has ended", () => !isAlive(pid));
  }

  async #client(): Promise<APIRequestContext> {
    this.#requests ??= await request.newContext({ ignoreHTTPSErrors: true });
    return this.#requests;
  }

  /** Sends a request, as the platform's administrator unless another token is given. */
  async send(method: string, path: string, data?: unknown, token = this.running.token): Promise<Answer> {
    const client = await this.#client();
    const headers = { authorization: `Bearer ${token}`, accept: "application/json" };
    const answer = await client.fetch(this.url + path, { method, headers, ...(data !== undefined && { data }) });
    const text = await answer.text();
    return { status: answer.status(), body: text === "" ? undefined : (JSON.parse(text) as unknown) };
  }

  /** The body of a successful answer. */
  async take(method: string, path: string, data?: unknown): Promise<Answer["body"]> {
    const { status, body } = await this.send(method, path, data);
    if (status >= 300) throw new Error(`${method} ${path}: ${status} ${JSON.stringify(body)}`);
    return body;
  }

  /** Signs a browser in without a page. Returns the cookies for its context. */
  async cookies(token: string): Promise<{ name: string; value: string; url: string; secure: true; httpOnly: true }[]> {
    const client = await request.newContext({ ignoreHTTPSErrors: true });
    const answer = await client.post(`${this.url}/api/v1/sessions`, { data: { token } });
    if (answer.status() !== 201) throw new Error(`sign-in: ${answer.status()} ${await answer.text()}`);
    begun.push({ token, id: ((await answer.json()) as { id: string }).id });
    const stored = answer.headers()["set-cookie"] ?? "";
    await client.dispose();
    const [name = "", value = ""] = (stored.split(";")[0] ?? "").split(/=(.*)/s);
    return [{ name, value, url: this.url, secure: true, httpOnly: true }];
  }

  /** Ends the sessions that `cookies` began: a token has at most 20. Those that have ended already are not found. */
  async endSessions(): Promise<void> {
    const ended = begun.splice(0);
    await Promise.all(ended.map(({ token, id }) => this.send("DELETE", `/api/v1/sessions/${id}`, undefined, token)));
  }

  /** Creates a token with a role, of the project unless it is a role of the platform. */
  async token(name: string, role: string): Promise<string> {
    const project = role.startsWith("platform-") ? undefined : PROJECT;
    const made = (await this.take("POST", "/api/v1/tokens", { name, role, project })) as { secret: string };
    return made.secret;
  }

  async workload(name: string): Promise<Answer["body"]> {
    return this.take("GET", `/api/v1/workloads/${name}?project=${PROJECT}`);
  }

  async untilWorkload(
    name: string,
    what: string,
    holds: (detail: Answer["body"]) => boolean | Promise<boolean>,
  ): Promise<void> {
    await until(`workload ${name}: ${what}`, async () => holds(await this.workload(name)));
  }

  /** Imports the release and gives nodes to the project. */
  async prepare(): Promise<void> {
    const [app] = ((await this.take("GET", "/api/v1/apps")) as { items: { slug: string }[] }).items;
    await this.take("POST", "/api/v1/artifacts", { app: app?.slug, source: required("UI_RELEASE", release) });
    await this.take("POST", "/api/v1/projects", { name: PROJECT });
    for (let node = 1; node <= ALLOCATED; node += 1)
      await this.take("POST", "/api/v1/allocations", { project: PROJECT, node: `demo-${node}` });
    await until("all allocations are active", async () => {
      const { items } = (await this.take("GET", "/api/v1/allocations")) as { items: { state: string }[] };
      return items.length === ALLOCATED && items.every(({ state }) => state === "active");
    });
  }

  /** Path of a file in a sandbox node's own tree. */
  nodeFile(node: string, path: string): string {
    return join(this.folder, "data/nodes", node, path);
  }

  /** Switches faults of the stand-in on, from the next start of the distribution on this node. */
  injectFaults(node: string, names: string): void {
    const file = this.nodeFile(node, "etc/rancher/rke2/stand-in-faults");
    mkdirSync(join(file, ".."), { recursive: true });
    writeFileSync(file, names);
  }

  /** Processes of the distribution on a node. */
  distribution(node: string): number[] {
    const root = `GPUAAS_SANDBOX_ROOT=${this.nodeFile(node, "")}`.replace(/\/$/, "");
    return readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .filter((pid) => {
        const command = read(`/proc/${pid}/cmdline`).split("\0");
        return /(^|\/)rke2$/.test(command[0] ?? "") && read(`/proc/${pid}/environ`).split("\0").includes(root);
      })
      .map(Number);
  }

  /** Writes lines as if the distribution on a node had printed them: its unit's journal gets them. */
  writeJournal(node: string, ...lines: string[]): void {
    const [pid] = this.distribution(node);
    if (pid === undefined) throw new Error(`no distribution runs on ${node}`);
    writeFileSync(`/proc/${pid}/fd/1`, lines.map((line) => `${line}\n`).join(""));
  }

  /** Kills the distribution on a node. */
  killDistribution(node: string): void {
    const pids = this.distribution(node);
    if (pids.length === 0) throw new Error(`no distribution runs on ${node}`);
    pids.forEach((pid) => process.kill(pid, "SIGKILL"));
  }
}

/** The platform that `platform-start.ts` has started. */
export function running(): Platform {
  const folder = process.env["UI_PLATFORM"];
  if (folder === undefined) throw new Error("no platform was started");
  return new Platform(folder);
}

/** Runs a program and returns its standard output. */
export async function output(command: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<string> {
  const { stdout } = await promisify(execFile)(command, args, { env: { PATH: process.env["PATH"], ...env } });
  return stdout;
}

function environment(): NodeJS.ProcessEnv {
  const own = Object.entries(process.env).filter(([name]) => !name.startsWith("GPUAAS_"));
  const key = readFileSync(join(required("UI_RELEASE", release), "stand-in.pub"), "utf8").split("\n")[1];
  return {
    ...Object.fromEntries(own),
    GPUAAS_RELEASE_TRUSTED_KEYS: key,
    GPUAAS_REQUESTS_PER_TOKEN: RATE,
    GPUAAS_REQUESTS_PER_PROJECT: RATE,
    GPUAAS_REQUESTS_PER_ADDRESS: RATE,
  };
}

function isReady(child: ChildProcess, file: string, folder: string): boolean {
  if (child.exitCode === null) return existsSync(file);
  throw new Error(`gpuaas dev ended with ${child.exitCode}:\n${readFileSync(join(folder, "dev.log"), "utf8")}`);
}

function isAlive(pid: number): boolean {
  // A process that has ended and that its parent has not waited for counts as ended.
  return existsSync(`/proc/${pid}`) && !/^State:\s+Z/m.test(read(`/proc/${pid}/status`));
}

function read(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}
